"""FL-TOP: compressed updates, with and without noise."""

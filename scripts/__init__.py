"""Command-line programs; they need a clone of the repository."""

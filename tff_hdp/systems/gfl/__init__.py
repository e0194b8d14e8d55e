"""GFL: servers in a graph, noise that cancels between them."""

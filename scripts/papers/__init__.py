"""A folder for each paper: what regenerates its tables and figures."""

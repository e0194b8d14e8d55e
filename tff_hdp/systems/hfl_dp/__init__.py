"""HFL-DP: clients, edges and a cloud, noise on every link."""

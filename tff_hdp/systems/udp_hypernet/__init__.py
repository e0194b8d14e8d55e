"""UDP-Alg: personal models from a private hypernetwork."""

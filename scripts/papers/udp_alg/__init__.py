"""Tables and figures of the UDP-Alg paper."""

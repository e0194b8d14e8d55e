"""Tables and figures of the HFL-DP paper."""

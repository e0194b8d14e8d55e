"""Tables and figures of the HDP paper."""

"""Tables and figures of the GFL paper."""

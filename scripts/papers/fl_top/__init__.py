"""Tables and figures of the FL-TOP paper."""

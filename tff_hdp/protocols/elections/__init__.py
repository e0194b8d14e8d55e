"""Elections of super-nodes that anyone can verify."""

from tff_hdp.protocols.elections.supernodes import SuperNodes

__all__ = ["SuperNodes"]

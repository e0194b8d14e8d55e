"""The bound on one client's update."""

import dataclasses
import math
from typing import Literal

from tff_hdp.privacy.checks import check_positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clipping:
    """The bound S on the L2 norm of one client's update.

    Attributes:
      clip_norm: S, the bound on the whole update; for `adaptive` its initial value.
      kind: `flat` clips the whole update to S; `per_layer` clips each weight
        tensor to `layer_norms` with S the root of their summed squares;
        `adaptive` tracks `target_quantile` of the norms privately (Andrew et
        al. 2021, as in tensorflow-privacy).
      layer_norms: C_l per weight tensor; for `per_layer` only. None there
        means equal shares, C_l = S / sqrt(number of tensors).
      target_quantile: For `adaptive`, the share of updates left unclipped.
      source: Where S comes from, in words, for the report.
    """

    clip_norm: float = 1.0
    kind: Literal["flat", "per_layer", "adaptive"] = "flat"
    layer_norms: tuple[float, ...] | None = None
    target_quantile: float = 0.5
    source: str = "given"

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        if self.kind not in ("flat", "per_layer", "adaptive"):
            raise ValueError(
                f"kind is {self.kind!r}; allowed are flat, per_layer, adaptive"
            )
        if not 0.0 < self.target_quantile < 1.0:
            raise ValueError(
                f"target_quantile is {self.target_quantile}; allowed is (0, 1)"
            )
        if self.layer_norms is not None:
            object.__setattr__(self, "layer_norms", tuple(map(float, self.layer_norms)))
            if self.kind != "per_layer":
                raise ValueError(f"layer_norms are given but kind is {self.kind!r}")
            for i, c in enumerate(self.layer_norms):
                check_positive(f"layer_norms[{i}]", c)
            total = math.sqrt(sum(c * c for c in self.layer_norms))
            if not math.isclose(total, self.clip_norm, rel_tol=1e-6):
                raise ValueError(
                    f"clip_norm is {self.clip_norm} but the layer_norms combine to "
                    f"{total}"
                )

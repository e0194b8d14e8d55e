"""The neighbour systems, each as one round that can be run again and again.

All starts from one model, all clients take part with one example each, and all but the
victim's are known to every observer. What observers hold comes out of the system's own
process; each is named as in the system's account.
"""

from collections.abc import Callable, Sequence

from tff_hdp.attacks.setting import Example, Setting, SystemUnderAttack
from tff_hdp.attacks.systems import fl_top, gfl, hfl_dp, udp_hypernet

SYSTEMS: dict[str, Callable[[Setting, Sequence[Example]], SystemUnderAttack]] = {
    "fl_top": fl_top.under_attack,
    "udp_hypernet": udp_hypernet.under_attack,
    "gfl": gfl.under_attack,
    "hfl_dp": hfl_dp.under_attack,
}

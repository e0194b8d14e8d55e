"""Trains one model with averaging at edges and a cloud, noised on every link (HFL-DP).

    python scripts/hfl_dp.py --task=digits --noise=theorem_1
    python scripts/hfl_dp.py --flagfile=scripts/papers/hfl_dp/figure2_noisy.flags

Leaves metrics.csv, privacy.json, noise.csv, checkpoints and a figure in --out; the
same command again resumes a run that was cut short.
"""

from tff_hdp.simulation.binary import run_binary
from tff_hdp.systems.hfl_dp.config import HflDpConfig

if __name__ == "__main__":
    run_binary(HflDpConfig)

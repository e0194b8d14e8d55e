"""Trains one model with noise at any level of the hierarchy.

    python scripts/train.py --task=digits --privacy=hdp --noise_multiplier=0.5
    python scripts/train.py --flagfile=scripts/papers/hdp/mnist_hdp.flags

Leaves metrics.csv, privacy.json, checkpoints and a figure in --out; the same
command again resumes a run that was cut short.
"""

from tff_hdp.simulation.binary import run_binary
from tff_hdp.systems.hdp.config import HdpConfig

if __name__ == "__main__":
    run_binary(HdpConfig)

"""Trains one model over servers in a graph (GFL).

    python scripts/gfl.py --scheme=hybrid --sigma_g=0.2 --rounds=500
    python scripts/gfl.py --flagfile=scripts/papers/gfl/mnist_hybrid.flags

Leaves metrics.csv, privacy.json, checkpoints and a figure in --out; the same
command again resumes a run that was cut short.
"""

from tff_hdp.simulation.binary import run_binary
from tff_hdp.systems.gfl.config import GflConfig

if __name__ == "__main__":
    run_binary(GflConfig)

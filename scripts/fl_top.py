"""Trains one model by FL-TOP or a scheme beside it, with or without privacy.

    python scripts/fl_top.py --task=digits --scheme=fl_top_dp --ratio=0.1
    python scripts/fl_top.py --flagfile=scripts/papers/fl_top/table1_reduced.flags

Prints the paper's table row: best accuracy, its round, kilobytes down and up per
client, and epsilon. Leaves metrics.csv, privacy.json, checkpoints and a figure in
--out; the same command again resumes a run that was cut short.
"""

from tff_hdp.simulation.binary import run_binary
from tff_hdp.systems.fl_top.config import FlTopConfig

if __name__ == "__main__":
    run_binary(FlTopConfig)

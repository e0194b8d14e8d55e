"""Trains personalised models with UDP-Alg: a hypernetwork under user-level DP.

    python scripts/udp_hypernet.py --task=mnist --model=lenet --noise_multiplier=2
    python scripts/udp_hypernet.py --flagfile=scripts/papers/udp_alg/mnist.flags

Leaves metrics.csv, privacy.json, users.csv, checkpoints and a figure in --out; the
same command again resumes a run that was cut short. The paper's figures:
scripts/papers/udp_alg/reproduce.py.
"""

from tff_hdp.simulation.binary import run_binary
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

if __name__ == "__main__":
    run_binary(UdpHypernetConfig)

r"""Hosts one TFF worker, which --runtime=cluster sends clients' work to.

    python scripts/worker.py --port=8470
    python scripts/train.py --noise_multiplier=1 --runtime=cluster \
        --workers=127.0.0.1:8470

The worker asks nobody for credentials, so only this machine's loopback reaches it;
from another machine, through a tunnel: ssh -N -L 8471:127.0.0.1:8470 HOST, and
--workers=127.0.0.1:8471. It ends with this program.
"""

import os
import sys

# A process of several threads cannot move to another network, and NumPy would start
# one a core for products that nothing here computes.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.runtime import private_worker, worker_process


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_integer(
        "port", None, "Where to listen; 0 takes a free port.", lower_bound=0
    )
    flags.DEFINE_boolean(
        "listen_without_credentials",
        False,
        "Listen on every interface: whoever reaches this machine can run code in "
        "the worker as you.",
    )


def main() -> int:
    """Runs the worker until it ends or is interrupted."""
    port = flags.FLAGS.port
    if port is None or port > 65535:
        raise ArgumentError("port", port, "0..65535")
    everyone = flags.FLAGS.listen_without_credentials
    serve = (
        worker_process.serve_everyone if everyone else private_worker.serve_on_loopback
    )
    try:
        status = serve(port, lambda address: print(f"worker on {address}", flush=True))
    except private_worker.NoPrivateNetworkError as error:
        raise ArgumentError(
            "listen_without_credentials",
            False,
            "True, if everyone who reaches this machine may run code as you; to keep "
            f"others out takes a network namespace, refused here: {error.strerror}",
        ) from error
    except OSError as error:
        raise ArgumentError(
            "port", port, f"one that is free; {error.strerror}"
        ) from error
    print(f"the worker ended with status {status}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))

"""Times this project's reconstructions against those of the library breaching.

    python benchmarks/inversion.py --attack=dlg --task=cifar10 --victims=20
    python benchmarks/inversion.py --attack=ig --evaluations=1000 --csv=FILE

Both get the same victims of the same model, their gradients and labels, the same number
of evaluations of the objective, and one thread; breaching keeps its own settings
otherwise. Seconds are of processor time, compilation included. breaching is installed
from benchmarks/peers/breaching on the first call.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

PEER = "breaching"
FOLDER = pathlib.Path(__file__).parent
_BUDGETS = {"dlg": 2000, "ig": 1000}
_KINDS = {"Conv2D": "conv", "Dense": "dense", "MaxPooling2D": "pool"}


def define_flags() -> None:
    """Defines the flags; the attack's own config checks the rest."""
    flags.DEFINE_enum("attack", "dlg", list(_BUDGETS), "What to reconstruct by.")
    flags.DEFINE_string("task", "cifar10", "Whose test examples are the victims.")
    flags.DEFINE_string("model", "zhu", "Zhu et al.'s, or one of the task's models.")
    flags.DEFINE_integer("victims", 20, "How many.", lower_bound=1)
    flags.DEFINE_integer(
        "evaluations",
        None,
        f"Of the objective, at most, a victim; default {_BUDGETS}.",
        lower_bound=1,
    )
    flags.DEFINE_integer("seed", 0, "Of weights and victims.")
    flags.DEFINE_string("data_dir", None, "Where local data packs lie.")
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Runs both and prints a line for each."""
    import environments
    import machine
    import pandas as pd
    import tensorflow as tf

    from tff_hdp.attacks.attacker import Attacker
    from tff_hdp.attacks.config import AttackConfig
    from tff_hdp.files import write_text

    machine.hide_gpus()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    f = flags.FLAGS
    evaluations = f.evaluations or _BUDGETS[f.attack]
    given = ("attack", "task", "model", "victims", "seed", "data_dir")
    config = AttackConfig(
        **{name: f[name].value for name in given},
        privacy="none",
        level="1",
        evaluations=evaluations,
    )
    attacker = Attacker(config)
    victims = Victims(attacker, f.victims)
    environments.install(PEER)
    found = {"tff_hdp": victims.ours(), PEER: victims.theirs()}
    rows = [
        {
            "attack": f.attack,
            "task": f.task,
            "model": attacker.model_name,
            "library": library,
            "victims": f.victims,
            **columns,
            "machine": machine.described("cpu"),
        }
        for library, columns in found.items()
    ]
    print(pd.DataFrame(rows).drop(columns="machine").to_string(index=False))
    if f.csv:
        table = pd.DataFrame(rows).to_csv(index=False, float_format="%.5g")
        write_text(pathlib.Path(f.csv), table)
    return 0


class Victims:
    """Who is attacked, and both attacks on them.

    Args:
      attacker: Of the config; its clients take one step each and nobody clips.
      count: How many.
    """

    def __init__(self, attacker: Any, count: int) -> None:
        import numpy as np

        from tff_hdp.attacks.analytic import infer_labels

        self.attacker, target = attacker, attacker.target
        if len(target.labels) < count:
            raise ArgumentError(
                "victims", count, f"at most {len(target.labels)}, all test examples"
            )
        features = target.features[:count]
        self.originals = features / target.max_value
        self.updates = target.updates(
            features[:, np.newaxis], target.labels[:count, np.newaxis]
        )
        self.labels = infer_labels(target, self.updates, 1)

    def ours(self) -> dict[str, Any]:
        """This project's attack, compilation included."""
        import numpy as np

        from tff_hdp.attacks import inversion
        from tff_hdp.attacks.forward import Forward

        config = self.attacker.config
        forward = Forward(self.attacker.target, None)
        stamps = [time.process_time()]

        def said(*_: int) -> None:
            stamps.append(time.process_time())

        if config.attack == "dlg":
            search, budget = inversion.deep_leakage, "evaluations"
        else:
            search, budget = inversion.inverting_gradients, "steps"
        found = search(
            forward,
            self.updates.astype(np.float64),
            self.labels,
            seed=config.seed,
            progress=said,
            **{budget: config.evaluations},
        )
        if config.attack == "dlg":
            seconds = np.diff(stamps)
        else:
            # In batches: everybody has had an equal share.
            each = (stamps[-1] - stamps[0]) / len(self.updates)
            seconds = np.full(len(self.updates), each)
        return self._columns(found[:, 0], seconds, config.evaluations)

    def theirs(self) -> dict[str, Any]:
        """breaching's, in a process and an environment of its own."""
        import numpy as np

        config, target = self.attacker.config, self.attacker.target
        python = FOLDER / ".venvs" / PEER / "bin" / "python"
        problem = {
            "attack": config.attack,
            "evaluations": config.evaluations,
            "layers": layers(target.keras_model),
            "weights": len(target.weights),
            "image_shape": list(target.features.shape[1:]),
        }
        with tempfile.TemporaryDirectory(prefix="tff_hdp_bench_") as name:
            folder = pathlib.Path(name)
            (folder / "problem.json").write_text(json.dumps(problem))
            np.savez(
                folder / "problem.npz",
                gradients=self.updates / target.learning_rate,
                labels=self.labels[:, 0].astype(np.int64),
                **{f"weight{i}": w for i, w in enumerate(target.weights)},
            )
            program = FOLDER / "peers" / PEER / "program.py"
            # What breaching prints is not this program's.
            subprocess.run(
                [str(python), "-W", "ignore", str(program), str(folder)],
                check=True,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            with np.load(folder / "found.npz") as pack:
                evaluations = float(pack["evaluations"].mean())
                return self._columns(pack["images"], pack["seconds"], evaluations)

    def _columns(self, images: Any, seconds: Any, evaluations: float) -> dict[str, Any]:
        """Decibels and seconds a victim."""
        import numpy as np

        from tff_hdp.attacks import distances

        decibels = distances.psnr(self.originals, images)
        return {
            "evaluations": evaluations,
            "psnr_median": float(np.median(decibels)),
            "psnr_mean": float(decibels.mean()),
            "psnr_min": float(decibels.min()),
            "psnr_max": float(decibels.max()),
            "seconds_median": float(np.median(seconds)),
            "seconds_min": float(seconds.min()),
            "seconds_max": float(seconds.max()),
        }


def layers(model: Any) -> list[dict[str, Any]]:
    """What a peer must know of a Keras model to build it, weights apart.

    Raises:
      ArgumentError: If there is a layer that peers do not build.
    """
    found: list[dict[str, Any]] = []
    for layer in model.layers:
        kind = type(layer).__name__
        if kind in ("Flatten", "Rescaling", "InputLayer"):
            continue
        if kind not in _KINDS:
            raise ArgumentError("model", kind, f"of {', '.join(_KINDS)}")
        own: dict[str, Any] = {"kind": _KINDS[kind]}
        if kind == "MaxPooling2D":
            if (layer.pool_size, layer.strides) != ((2, 2), (2, 2)):
                raise ArgumentError("model", layer.get_config(), "pooling 2x2 by 2")
        else:
            own["activation"] = layer.activation.__name__
        if kind == "Conv2D":
            own |= {"stride": layer.strides[0], "padding": layer.padding}
        found.append(own)
    return found


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))

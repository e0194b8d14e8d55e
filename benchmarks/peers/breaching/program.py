"""breaching: reconstructs the victims of `benchmarks/inversion.py`, one by one.

    python benchmarks/peers/breaching/program.py FOLDER

FOLDER holds problem.json and problem.npz; found.npz is left beside them. The attacks
are breaching's own configurations, at the budget that is given, and with the labels.
"""

import json
import pathlib
import sys
import time
from typing import Any

import numpy as np
import torch

# PyPI's torchvision, which breaching imports for data sets and models that are not used
# here, has compiled operators for PyTorch's CUDA build only, and misses these.
_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _operators.define(_name + "(Tensor boxes, Tensor scores, float iou) -> Tensor")

import breaching  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

# Calls of the objective that PyTorch's L-BFGS makes, at least, a step of breaching.
_CALLS_A_STEP = 20
_ACTIVATIONS = {
    "linear": torch.nn.Identity,
    "relu": torch.nn.ReLU,
    "sigmoid": torch.nn.Sigmoid,
}


class SamePadding(torch.nn.Module):
    """TensorFlow's: the odd pixel goes right and below.

    Args:
      size: Of the kernel.
      stride: Of the convolution.
    """

    def __init__(self, size: int, stride: int) -> None:
        super().__init__()
        self.size, self.stride = size, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pads images [B, c, H, W]."""
        sides = []
        for length in (x.shape[3], x.shape[2]):
            outputs = -(-length // self.stride)
            missing = max((outputs - 1) * self.stride + self.size - length, 0)
            sides += [missing // 2, missing - missing // 2]
        return torch.nn.functional.pad(x, sides)


class Flatten(torch.nn.Module):
    """In TensorFlow's order, channels last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From [B, c, H, W] to [B, H * W * c]."""
        return x.permute(0, 2, 3, 1).flatten(1)


def network(layers: list[dict[str, Any]], weights: list[np.ndarray]) -> torch.nn.Module:
    """The victims' model.

    Args:
      layers: Those with weights, in order, and poolings.
      weights: In Keras' order and layout.
    """
    parts, left = [], list(weights)
    flat = False
    for layer in layers:
        if layer["kind"] == "pool":
            parts.append(torch.nn.MaxPool2d(2))
            continue
        kernel, bias = torch.tensor(left.pop(0)), torch.tensor(left.pop(0))
        if layer["kind"] == "conv":
            size, _, before, after = kernel.shape
            if layer["padding"] == "same":
                parts.append(SamePadding(size, layer["stride"]))
            own = torch.nn.Conv2d(before, after, size, layer["stride"])
            kernel = kernel.permute(3, 2, 0, 1)
        else:
            if not flat:
                parts.append(Flatten())
                flat = True
            own = torch.nn.Linear(*kernel.shape)
            kernel = kernel.T
        with torch.no_grad():
            own.weight.copy_(kernel)
            own.bias.copy_(bias)
        parts += [own, _ACTIVATIONS[layer["activation"]]()]
    return torch.nn.Sequential(*parts)


def attack_config(attack: str, evaluations: int) -> Any:
    """The library's configuration of an attack, at a budget.

    `deepleakage` is run with given labels, as all attacks here are.
    """
    name = {"dlg": "deepleakage", "ig": "invertinggradients"}[attack]
    config = breaching.get_attack_config(name)
    OmegaConf.set_struct(config, False)
    iterations = evaluations
    if attack == "dlg":
        config.attack_type = "optimization"
        iterations = -(-evaluations // _CALLS_A_STEP)
    config.optim.max_iterations = iterations
    config.optim.callback = iterations + 1
    return config


def main(folder: pathlib.Path) -> None:
    """Reconstructs every victim; what is timed is the attack alone."""
    problem = json.loads((folder / "problem.json").read_text())
    with np.load(folder / "problem.npz") as pack:
        weights = [pack[f"weight{i}"] for i in range(problem["weights"])]
        gradients, labels = pack["gradients"], pack["labels"]
    model = network(problem["layers"], weights).eval()
    loss = torch.nn.CrossEntropyLoss()
    height, width, channels = problem["image_shape"]
    attacker = breaching.attacks.prepare_attack(
        model, loss, attack_config(problem["attack"], problem["evaluations"])
    )
    calls = _counted(attacker)
    payload = {
        "parameters": list(model.parameters()),
        "buffers": [],
        "metadata": OmegaConf.create(
            {"shape": [channels, height, width], "modality": "vision"}
        ),
    }
    images, seconds, evaluations = [], [], []
    for gradient, label in zip(gradients, labels, strict=True):
        torch.manual_seed(len(images))
        shared = {
            "gradients": _split(gradient, model, weights),
            "buffers": None,
            "metadata": {
                "num_data_points": 1,
                "labels": torch.tensor([label]),
                "local_hyperparams": None,
            },
        }
        calls.clear()
        begin = time.process_time()
        found, _ = attacker.reconstruct([payload], [shared], {})
        seconds.append(time.process_time() - begin)
        evaluations.append(len(calls))
        images.append(found["data"][0].detach().numpy().transpose(1, 2, 0))
    np.savez(
        folder / "found.npz",
        images=np.clip(images, 0, 1),
        seconds=seconds,
        evaluations=evaluations,
    )


def _counted(attacker: Any) -> list[None]:
    """A list that grows by one with each call of the attacker's objective."""
    calls: list[None] = []
    attacker.objective.register_forward_hook(lambda *_: calls.append(None))
    return calls


def _split(
    gradient: np.ndarray, model: torch.nn.Module, weights: list[np.ndarray]
) -> list[torch.Tensor]:
    """A flat gradient in Keras' order, as PyTorch has it."""
    orders = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
    parts, at = [], 0
    for weight, parameter in zip(weights, model.parameters(), strict=True):
        own = gradient[at : at + weight.size].reshape(weight.shape)
        own = torch.tensor(own.transpose(orders[weight.ndim]).copy())
        assert own.shape == parameter.shape
        parts.append(own)
        at += weight.size
    return parts


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

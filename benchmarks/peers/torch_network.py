"""A work's model in PyTorch, for the peers that train with it."""

from collections.abc import Sequence

import numpy as np
import populations
import torch
import works

# As the others compute: on newer GPUs convolutions shorten their factors unless told
# not to.
torch.backends.cudnn.allow_tf32 = False
# A GPU wherever one is to be seen; `--devices=cpu` hides them.
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Network(torch.nn.Module):
    """The layers of `Work`, on channels-first images in channels-last memory.

    Args:
      work: Whose model; weights are the work's initial ones.
    """

    def __init__(self, work: works.Work) -> None:
        super().__init__()
        layers = []
        for shape in work.weight_shapes[::2]:
            if len(shape) == 4:
                layers.append(
                    torch.nn.Conv2d(shape[2], shape[3], shape[0], padding="same")
                )
            else:
                layers.append(torch.nn.Linear(*shape))
        self.layers = torch.nn.ModuleList(layers)
        load(self, works.initial_weights(work))
        self.to(DEVICE, memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [B, classes] of features [B, ...]."""
        for layer in self.layers[:-1]:
            if isinstance(layer, torch.nn.Linear) and x.dim() == 4:
                # In channels-last memory this moves nothing, and the inputs come in
                # the order that the work's dense kernel expects.
                x = x.permute(0, 2, 3, 1).flatten(1)
            x = torch.nn.functional.relu(layer(x))
            if isinstance(layer, torch.nn.Conv2d):
                x = torch.nn.functional.max_pool2d(x, 2)
        return self.layers[-1](x)


def client_tensors(work: works.Work, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One client's examples as the network takes them."""
    return _tensors(work, *works.client_examples(work, client))


def test_tensors(work: works.Work) -> tuple[torch.Tensor, torch.Tensor]:
    """The test set of the work's population as the network takes it."""
    population = populations.read(work.population)
    # Copies, since PyTorch wants what it may write to.
    features, labels = population.test_features, population.test_labels
    return _tensors(work, np.array(features), np.array(labels))


def _tensors(
    work: works.Work, features: np.ndarray, labels: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.from_numpy(features)
    if work.filters:
        x = x.permute(0, 3, 1, 2)  # NHWC in memory is channels-last already
    return x.to(DEVICE), torch.from_numpy(labels).long().to(DEVICE)


@torch.no_grad()
def accuracy(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Share of the examples x [B, ...] that are taken for their class y [B]."""
    return float((network(x).argmax(1) == y).float().mean())


def to_torch(weights: Sequence[np.ndarray]) -> list[torch.Tensor]:
    """From the layout of `Work.weight_shapes` to PyTorch's."""
    permutations = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
    return [torch.from_numpy(w.transpose(permutations[w.ndim])) for w in weights]


def from_torch(weights: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """The reverse of `to_torch`."""
    permutations = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
    arrays = [w.detach().cpu().numpy() for w in weights]
    return [a.transpose(permutations[a.ndim]) for a in arrays]


def load(network: torch.nn.Module, weights: Sequence[np.ndarray]) -> None:
    """Sets the network's weights."""
    with torch.no_grad():
        for p, w in zip(network.parameters(), to_torch(weights), strict=True):
            p.copy_(w)

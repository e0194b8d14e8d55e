"""Fashion-MNIST over 6,000 clients of 10 images, as in the FL-TOP paper."""

from pathlib import Path

import numpy as np

from tasks import originals, packs
from tasks.dataset import Dataset, Examples
from tasks.models import CNN_LARGE, CNN_SMALL, DNN

PACK = "fashion_mnist.npz"


def _read(data_dir: Path) -> Examples:
    if (data_dir / PACK).exists():
        names = ("x_train", "y_train", "x_test", "y_test")
        arrays = packs.read_plain(data_dir / PACK, *names)
        x_train, x_test = (arrays[x][..., np.newaxis] for x in ("x_train", "x_test"))
        y_train, y_test = arrays["y_train"], arrays["y_test"]
        origin = PACK
    else:
        x_train, y_train, x_test, y_test = originals.read_tfds(
            "fashion_mnist", data_dir
        )
        origin = "TensorFlow Datasets"
    return Examples(
        features=x_train,
        labels=y_train,
        test_features=x_test,
        test_labels=y_test,
        source=f"Fashion-MNIST (Xiao et al. 2017), from {origin}",
        split="Fashion-MNIST's own",
    )


FASHION_MNIST = Dataset(
    name="fashion_mnist",
    num_classes=10,
    class_names=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    input_shape=(28, 28, 1),
    max_value=255,
    models={"cnn_large": CNN_LARGE, "cnn_small": CNN_SMALL, "dnn": DNN},
    partitions=("iid", "dirichlet"),
    num_clients=6000,
    read=_read,
    files=(
        f"Put there either {PACK}, or the folder fashion_mnist/ that TensorFlow "
        f"Datasets makes from {originals.TFDS_ORIGINS['fashion_mnist']} (with a "
        "network this is done for you; elsewhere: tfds build fashion_mnist "
        "--data_dir=FOLDER). task=digits needs no files."
    ),
)

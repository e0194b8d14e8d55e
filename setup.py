"""Package metadata and dependencies of tff_hdp."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
# Read, not imported: the version must be known before what it needs is installed.
VERSION = re.search(
    r'^__version__ = "(.+)"$', (ROOT / "tff_hdp" / "__init__.py").read_text(), re.M
)[1]
# TensorFlow 2.14's own `and-cuda` extra pins a TensorRT that is no longer on
# the index. These are the rest of its wheels; training does not need TensorRT.
GPU = [
    "nvidia-cublas-cu11==11.11.3.6",
    "nvidia-cuda-cupti-cu11==11.8.87",
    "nvidia-cuda-nvcc-cu11==11.8.89",
    "nvidia-cuda-runtime-cu11==11.8.89",
    "nvidia-cudnn-cu11==8.7.0.84",
    "nvidia-cufft-cu11==10.9.0.58",
    "nvidia-curand-cu11==10.3.0.86",
    "nvidia-cusolver-cu11==11.4.1.48",
    "nvidia-cusparse-cu11==11.7.5.86",
    "nvidia-nccl-cu11==2.16.5",
]
# TensorFlow pins typing-extensions 4.5, too old for a newer IPython.
IPYTHON = ["ipykernel>=6.29", "ipython<8.19"]
NOTEBOOKS = [*IPYTHON, "ipywidgets>=8.1", "jupyterlab>=4.2"]
DOCS = ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.24"]
DEV = [
    *DOCS,
    *IPYTHON,
    "hypothesis>=6.100",
    "nbclient>=0.10",
    "nbformat>=5.10",
    "pytest>=8.2",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.6",
]

setup(
    name="tff_hdp",
    version=VERSION,
    description="Hierarchical differential privacy in TensorFlow Federated.",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.12",
    # With the folder named, an editable install puts the clone itself on the path,
    # so that scripts find `scripts.papers`.
    package_dir={"": "."},
    packages=find_packages(include=["tff_hdp", "tff_hdp.*", "tasks", "tasks.*"]),
    package_data={"tff_hdp": ["py.typed"]},
    install_requires=[
        "absl-py>=1.4,<2",
        "cryptography>=42",
        "dp-accounting==0.4.3",
        "importlib-resources>=6",  # tensorflow-datasets needs it, but does not say so
        "matplotlib>=3.8",
        "networkx>=3.2",
        "numpy>=1.25,<1.26",
        "pandas>=2.1",
        "Pillow>=10",
        "pyarrow>=14,<19",  # newer ones want NumPy 2; tensorflow-datasets takes any
        "scikit-learn>=1.4",
        "scipy>=1.9.3,<1.10",
        "tensorboard>=2.14,<2.15",
        "tensorflow==2.14.1",
        "tensorflow-datasets>=4.9,<4.10",
        "tensorflow-federated==0.87.0",
        "tensorflow-metadata<1.16",  # newer ones want a newer protobuf
        "tensorflow-privacy==0.9.0",
        "tqdm>=4.66",
    ],
    extras_require={"gpu": GPU, "notebooks": NOTEBOOKS, "docs": DOCS, "dev": DEV},
)

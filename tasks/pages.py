"""Next characters of English pages that are bundled: one client per page.

TensorFlow Datasets ships a page of prose for many of its data sets, each by whoever
added it: documentation under the Apache licence 2.0. No package that this library needs
bundles a text in the public domain.
"""

import importlib.util
from pathlib import Path

from tasks.dataset import TEST_SHARE, Examples
from tasks.text import joined, text_dataset, windows
from tff_hdp.errors import FileError

# Shorter ones have little to learn from and to be tested on.
LEAST_CHARACTERS = 250


def pages() -> dict[str, str]:
    """The pages by name, with every run of white space as one blank.

    Raises:
      FileError: If the package has none.
    """
    found = importlib.util.find_spec("tensorflow_datasets")
    folder = Path(found.origin).parent / "datasets"
    texts = {
        path.parent.name: " ".join(path.read_text(encoding="utf-8").split())
        for path in sorted(folder.glob("*/README.md"))
    }
    long = {name: text for name, text in texts.items() if len(text) >= LEAST_CHARACTERS}
    if not long:
        raise FileError(folder, "holds no pages; reinstall tensorflow-datasets")
    return long


def _read(_: Path | None) -> Examples:
    texts = pages()
    cuts = {name: round((1 - TEST_SHARE) * len(text)) for name, text in texts.items()}
    train = ((name, windows(text, 0, cuts[name])) for name, text in texts.items())
    test = ((name, windows(text, cuts[name])) for name, text in texts.items())
    features, labels, writers = joined(train)
    test_features, test_labels, test_writers = joined(test)
    return Examples(
        features=features,
        labels=labels,
        test_features=test_features,
        test_labels=test_labels,
        source=(
            f"TensorFlow Datasets' pages of {LEAST_CHARACTERS} characters or more on "
            f"its data sets ({len(texts)}), letters without case"
        ),
        split="the last fifth of every page is tested on",
        writers=writers,
        test_writers=test_writers,
    )


PAGES = text_dataset(name="pages", num_clients=100, read=_read)

"""Code in pages is what Python reads, and runs as it stands, on small settings."""

import ast
import re
import textwrap
from unittest import mock

import pytest

import tff_hdp
from tasks.text import WINDOW, encode
from tests.test_docs import PAGES, ROOT, named

# In this order: a page's code finds what an earlier page's left. What a page takes for
# granted, and what is made smaller, is in `given` and SMALL.
RUN = (
    "docs/how-to/track_a_run.md",
    "README.md",
    "docs/how-to/use_a_run.md",
    "docs/how-to/own_data.md",
    "docs/privacy.md",
    "docs/training.md",
    "docs/runtime.md",
)
SMALL = {
    "rounds=60": "rounds=1, num_clients=20, clients_per_round=8, zones=2, quiet=True",
    # The run that the README's command makes.
    "runs/tracked": "runs/mine",
}
# Why the others are read only.
READ_ONLY = {
    "docs/drop_in.md": "tests/aggregators/test_drop_in.py runs it",
    "docs/attacks.md": "needs packages that are not among ours",
}
# Workers, and a setting that must come before TensorFlow's first use.
NOT_HERE = ('set_context("cluster"', "intra_op_threads")


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)


WITH_CODE = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_all_of_it_is_python(page):
    for block in blocks(page):
        ast.parse(block)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_all_of_it_is_found(page):
    """Indented Python is not marked as such, so nothing would read it."""
    for block in re.findall(r"\n\n((?: {4}.*\n+)+)", page.read_text()):
        first = textwrap.dedent(block).lstrip().partition("\n")[0]
        assert not re.match(r"(import|from) \w|\w+ = \w+[.(]", first), first


def test_every_page_is_run_or_said_why_not():
    assert {named(page) for page in WITH_CODE} == {*RUN, *READ_ONLY}


def test_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from tff_hdp.systems.hdp.config import HdpConfig
    from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

    tff_hdp.run(
        UdpHypernetConfig(
            noise_multiplier=1.0,
            num_clients=10,
            hidden_width=4,
            rounds=1,
            quiet=True,
            out="runs/udp",
        )
    )
    tff_hdp.run(
        HdpConfig(
            task="pages",
            privacy="none",
            num_clients=6,
            zones=2,
            clients_per_round=4,
            rounds=1,
            quiet=True,
            out="runs/text",
        )
    )
    service = mock.Mock()
    given = {"my_client": service}
    for name in RUN:
        namespace = dict(given)
        for block in blocks(ROOT / name):
            if any(words in block for words in NOT_HERE):
                continue
            for large, small in SMALL.items():
                block = block.replace(large, small)
            exec(compile(block, name, "exec"), namespace)
            if "runs/text" in block:
                assert namespace["ids"] == encode(namespace["text"])[-WINDOW:].tolist()
        if name.endswith("track_a_run.md"):
            ((metrics,), step) = service.log_metrics.call_args
            assert step == {"step": 1} and {"accuracy", "epsilon_rdp"} <= metrics.keys()
        if name == "README.md":
            assert namespace["classes"].shape == (2,)


def test_the_drop_in_is_fifteen_lines():
    first = blocks(ROOT / "docs" / "drop_in.md")[0]
    assert len(first.splitlines()) <= 15

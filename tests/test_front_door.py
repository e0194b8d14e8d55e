"""The names of the package: there at once, documented, and no TensorFlow until then."""

import inspect
import pydoc
import subprocess
import sys

import pytest

import tff_hdp

WITHOUT_TENSORFLOW = """
import sys, time
began = time.monotonic()
import tff_hdp
assert time.monotonic() - began < 2
plan = tff_hdp.configurations.c2(
    zone_sizes=(5, 5),
    sampling=tff_hdp.PoissonSampling((0.5, 0.5)),
    noise_multiplier=1.0,
)
assert isinstance(plan, tff_hdp.NoisePlan) and plan.is_noisy
assert tff_hdp.account(plan, 10, 1e-5)
ledger = tff_hdp.Ledger()
ledger.record(plan, 10)
assert tff_hdp.load_task("digits").num_classes == 10
tff_hdp.Zoning(("a", "b"), (0, 1)), tff_hdp.Clipping(), tff_hdp.calibrate
assert issubclass(tff_hdp.ArgumentError, ValueError)
assert "tensorflow" not in sys.modules
"""


def test_plans_and_accounts_need_no_tensorflow(repository):
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW],
        capture_output=True,
        text=True,
        cwd=repository,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", sorted(set(tff_hdp.__all__) - {"__version__"}))
def test_every_name_is_there_and_says_what_it_is(name):
    assert inspect.getdoc(getattr(tff_hdp, name))
    assert name in dir(tff_hdp)
    # The table of contents leaves nothing out.
    assert name in tff_hdp.__doc__


def test_there_are_few_names_and_no_others():
    assert len(tff_hdp.__all__) <= 27
    assert tff_hdp.__all__ == sorted(set(tff_hdp.__all__))
    with pytest.raises(AttributeError, match="'tff_hdp' has no attribute 'nothing'"):
        _ = tff_hdp.nothing
    assert "who adds noise" in pydoc.render_doc(tff_hdp).lower()


def test_the_package_is_typed_and_has_a_version(repository):
    assert (repository / "tff_hdp" / "py.typed").exists()
    assert tff_hdp.__version__.count(".") == 2

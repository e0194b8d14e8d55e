"""Accounts of any settings: rows or an error that names the setting, and in seconds.

Help too is there at once.
"""

import json
import math
import pathlib
import re
import resource
import time
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.secure import SECURE_SUMS

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "account.py"


@st.composite
def settings_of_accounts(draw):
    choices = AccountConfig.choices
    found = {
        name: draw(st.sampled_from(choices[name]))
        for name in ("privacy", "mixing", "sampling")
    }
    found["neighbours"] = draw(st.sampled_from((None, *choices["neighbours"])))
    for name, numbers in {
        "alpha": (None, 0.0, 0.5, 1.0),
        "beta": (None, 0.0, 0.5, 1.0),
        "clients": (1, 7, 500, 10**6),
        "zones": (1, 2, 10, 500),
        "clients_per_round": (1e-9, 0.5, 7, 500),
        "min_zone_clients": (1, 1, 2),
        "colluding_super_nodes": (0, 0, 1, 10),
        "colluding_clients": (0, 0, 1, 100),
        "dropout_rate": (0.0, 0.0, 0.3, 1 - 1e-15),
        "noise_multiplier": (1e-6, 0.3, 1.0, 20.0, 1e6, math.nan),
        "rounds": (0, 1, 200, 10**9, 10**20),
        "delta": (1e-300, 1e-5, 0.5, 0.999999),
        "levels": ((), (), (1,), (5, 2)),
        "noising_levels": ((), (), (2,), (3,)),
    }.items():
        found[name] = draw(st.sampled_from(numbers))
    found["cohort_known"] = draw(st.booleans())
    found["secure_aggregation"] = draw(st.sampled_from(SECURE_SUMS))
    return found


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(settings_of_accounts())
def test_any_setting_gives_rows_or_an_argument_error(asked):
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            table = AccountConfig(**asked).rows(("rdp", "paper"))
    except ArgumentError:
        table = []
    for row in table:
        json.dumps(row.to_dict(), allow_nan=False)
        assert row.epsilon_rdp is None or row.epsilon_rdp >= 0
        assert row.assumptions
    assert time.process_time() - start < 20


@pytest.mark.parametrize("sampling", ["poisson", "revealed"])
@pytest.mark.parametrize("rounds", [10**6, 10**6 + 1, 10**9])
def test_rounds_beyond_a_million_are_accounted_by_rdp_alone(sampling, rounds):
    """Some compositions did not come back; at the limit they are tighter than RDP."""
    asked = {"privacy": "cdp", "sampling": sampling, "rounds": rounds}
    start = time.process_time()
    (*_, row) = AccountConfig(
        **asked, **{"clients_per_round": 1.0, "noise_multiplier": 100.0}
    ).rows(("rdp", "pld"))
    assert time.process_time() - start < 25
    assert 0 < row.epsilon_rdp < 1000
    if rounds > 10**6:
        assert row.epsilon_pld is None
        assert "PLD is not taken of more than 1,000,000 rounds" in row.assumptions
    else:
        assert 0.8 * row.epsilon_rdp < row.epsilon_pld < row.epsilon_rdp


def test_no_rounds_cost_nothing_by_any_account():
    """RDP's conversion gave .005 at this delta."""
    for row in AccountConfig(privacy="ldp", rounds=0, delta=1e-300).rows(("rdp",)):
        assert row.epsilon_rdp == 0.0


def test_an_account_at_losses_beyond_a_floats_exponent_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        (*_, row) = AccountConfig(
            **{"privacy": "cdp", "noise_multiplier": 0.01, "clients_per_round": 0.5},
            **{"rounds": 1, "delta": 0.5, "sampling": "revealed", "cohort_known": True},
        ).rows(("pld",))
    # The client takes part with probability .001.
    assert row.epsilon_pld < 1e-6


@pytest.mark.parametrize(
    "asked",
    [
        {"clients": 10**6, "zones": 1000, "clients_per_round": 10**4},
        {"clients": 500, "zones": 500, "colluding_clients": 100, "delta": 0.999999},
        {"clients": 10**8, "sampling": "fixed", "clients_per_round": 10**5},
        *(
            pytest.param(asked, marks=pytest.mark.slow)
            for asked in [
                {"clients": 10**9, "clients_per_round": 1.0, "rounds": 200},
                {"clients": 10**8, "sampling": "fixed", "rounds": 200},
                {"clients": 10**6 + 3, "zones": 1000, "mixing": "equal", "rounds": 200},
                {
                    **{"clients": 10**6, "zones": 1000, "secure_aggregation": "zone"},
                    "min_zone_clients": 2,
                },
                {
                    **{"clients": 10**6, "zones": 1000, "sampling": "full"},
                    **{"min_zone_clients": 100, "dropout_rate": 0.1},
                    **{"colluding_clients": 5, "rounds": 0},
                },
            ]
        ),
    ],
    ids=[
        *("large", "delta next to 1", "many drawn", "rare", "fixed", "unequal"),
        *("left out below", "no rounds"),
    ],
)
def test_what_used_to_hang(asked):
    start = time.process_time()
    method = "rdp" if asked.get("clients_per_round", 0) >= 10**4 else "pld"
    table = AccountConfig(**{"privacy": "ldp", "rounds": 3} | asked).rows((method,))
    assert all(getattr(row, f"epsilon_{method}") is not None for row in table)
    assert time.process_time() - start < 25


def test_a_calibration_says_its_multiplier_whatever_the_format(run_program):
    asked = ("--privacy=ldp", "--calibrate=2", "--method=rdp", "--rounds=2")
    for style in ("json", "csv"):
        arguments = (*asked, "--observer=aggregator", f"--format={style}")
        done = run_program("scripts/account.py", *arguments)
        line, *_ = done.stderr.splitlines()
        z = re.fullmatch(r"--noise_multiplier=(\S+) meets the target", line)[1]
        config = AccountConfig(privacy="ldp", noise_multiplier=float(z), rounds=2)
        rows = config.rows(("rdp",))
        seen = [row.epsilon_rdp for row in rows if row.observer == "aggregator"]
        assert max(seen) == pytest.approx(2.0, rel=1e-3)


def test_a_figure_of_no_guarantee_is_refused(assert_refused, tmp_path):
    path = tmp_path / "epsilon.png"
    asked = ["--zones=4", "--colluding_super_nodes=4", "--rounds=2"]
    words = [f"--figure is {path}; allowed: nothing where no client has a guarantee"]
    assert_refused("scripts/account.py", [*asked, f"--figure={path}"], words)
    assert not path.exists()


def test_program_fails_without_traceback(run_program):
    done = run_program("scripts/account.py", "--delta=7")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --delta is 7.0; allowed: [1e-300, 1)\n"


def test_help_is_quick_and_needs_no_tensorflow(start_program):
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = start_program(SCRIPT, "--help")
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert shown.returncode == 0, shown.stderr
    # Processor time: others may be busy on the machine.
    assert end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime < 1.5
    for flag in ("--privacy", "--calibrate", "--secure_aggregation"):
        assert flag in shown.stdout
    code = (
        "import sys, runpy; sys.argv = ['account.py', '--rounds=2', '--format=json']\n"
        f"try:\n  runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('tensorflow')])"
    )
    done = start_program("-c", code)
    assert done.stdout.strip().endswith("[]"), done.stderr

"""UDP-Alg's command lines: what is refused, and how."""

import pytest


@pytest.mark.parametrize(
    ("script", "arguments", "named"),
    [
        ("udp_hypernet.py", [], ["--sigma", "exactly one"]),
        (
            "udp_hypernet.py",
            ["--sigma=0.1", "--sampling_rate=2"],
            ["--sampling_rate", "2"],
        ),
        ("udp_hypernet.py", ["--sigma=0.1", "--task=imagenet"], ["--task", "celeba"]),
        ("udp_hypernet.py", ["--privacy=ldp"], ["--privacy", "ldp", "udp_alg"]),
        ("papers/udp_alg/reproduce.py", ["--privacy=none"], ["--privacy", "none"]),
        ("papers/udp_alg/reproduce.py", ["--what=4"], ["--what", "4", "2a, 2b, 3"]),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(
    assert_refused, script, arguments, named
):
    assert_refused(f"scripts/{script}", arguments, named)


def test_a_figure_without_its_data_is_left_out_and_said_to_be(run_program, tmp_path):
    result = run_program(
        *("scripts/papers/udp_alg/reproduce.py", "--what=3"),
        *(f"--data_dir={tmp_path}", f"--out={tmp_path / 'out'}"),
    )
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: figure 3 left out:")
    assert "celeba.sqlite" in last

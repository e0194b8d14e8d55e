"""The table and figure of a tree's levels, from the command line."""

SCRIPT = "scripts/papers/hdp/multi_level.py"


def test_table_and_figure(run_program, tmp_path):
    figure = f"--figure={tmp_path / 'levels.png'}"
    result = run_program(SCRIPT, "--fan_ins=10,10", figure, timeout=120)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    cells = {(line.split()[1], line.split()[3]): line.split() for line in lines[1:7]}
    # The released model under LDP and HDP: k = 100 of 500, s = 10.
    assert cells["0", "2"][4:6] == ["2.481", "2.964"]
    assert cells["1", "2"][4:6] == ["7.845", "4.436"]
    assert "All at delta 1e-05, 200 rounds." in lines
    assert (tmp_path / "levels.png").stat().st_size > 1000


def test_bad_flags_are_one_line(assert_refused):
    for arguments, named in (
        (["--fan_ins=10,x"], "--fan_ins is 10,x; allowed: whole numbers"),
        (["--fan_ins=10,0"], "--fan_ins is (10, 0)"),
        (["--q=2"], "--q is 2.0"),
        (["--delta=0"], "--delta is 0.0"),
        (["--figure=/nowhere/f.png"], "--figure is /nowhere/f.png"),
    ):
        assert_refused(SCRIPT, arguments, [named])

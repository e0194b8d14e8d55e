"""Other forms of training in the span are timed only if they train the same."""


def test_the_command_has_a_line_a_form(run_program):
    done = run_program("benchmarks/span_forms.py", "--clients=2", "--turns=1")
    assert done.returncode == 0, done.stderr
    _, *lines = done.stdout.splitlines()
    assert [line.split(" median ")[0].strip() for line in lines] == [
        "landed",
        "one index",
        "blocks",
    ]


def test_a_block_of_other_steps_is_one_line(run_program):
    done = run_program("benchmarks/span_forms.py", "--block=3")
    assert done.returncode == 2
    assert "--block is 3; allowed: a divisor of 25" in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_turns_are_refused_before_any(run_program):
    done = run_program("benchmarks/span_forms.py", "--turns=0")
    assert done.returncode == 2 and "flag --turns=0: 0 is not a positive" in done.stderr

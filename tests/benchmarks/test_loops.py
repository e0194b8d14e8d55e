"""Work F: what a loop tells of itself, and what is refused."""

import dataclasses
import sys
import time

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_on_path")


@pytest.fixture(scope="module")
def population():
    """Three clients of unlike size, with eight features and three classes."""
    import populations

    rng = np.random.default_rng(0)
    return populations.Population(
        features=rng.random((20, 8), dtype=np.float32),
        labels=rng.integers(3, size=20, dtype=np.int32),
        offsets=np.array([0, 4, 11, 20]),
        test_features=rng.random((400, 8), dtype=np.float32),
        test_labels=rng.integers(3, size=400, dtype=np.int32),
    )


@pytest.fixture(scope="module")
def work(population, tmp_path_factory):
    """All of those clients in every round, each of whose batches is all it has."""
    import works

    class Small(works.Work):
        classes = 3

    folder = tmp_path_factory.mktemp("work") / "population"
    population.write(folder)
    return Small(
        "F",
        (8,),
        (),
        16,
        clients=3,
        batch_size=population.largest,
        clip_norm=0.3,
        population=str(folder),
    )


@pytest.fixture(scope="module")
def trained(work, population):
    """Weights after each of three rounds by Keras, with the noise of a multiplier."""
    import loop_checks
    import tensorflow as tf
    import works
    from programs import tensorflow_model

    z = loop_checks.noise_multiplier(work, population)
    model = tensorflow_model.build_model(work)
    model.compile(
        tf.keras.optimizers.SGD(work.learning_rate),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    rng = np.random.default_rng(1)
    weights, found = works.initial_weights(work), []
    for _ in range(3):
        total = [np.zeros(w.shape) for w in weights]
        for client in range(work.clients):
            model.set_weights(weights)
            x, y = works.client_examples(work, client)
            for _ in range(work.epochs):
                model.train_on_batch(x, y)
            update = [a - b for a, b in zip(model.get_weights(), weights, strict=True)]
            norm = np.sqrt(sum(np.sum(np.square(u)) for u in update))
            scale = min(1.0, work.clip_norm / norm)
            total = [t + scale * u for t, u in zip(total, update, strict=True)]
        weights = [
            w + t / work.clients + rng.normal(0.0, work.noise_stddev(z), w.shape)
            for w, t in zip(weights, total, strict=True)
        ]
        found.append([np.float32(w) for w in weights])
    return z, found


def accuracy(weights, population):
    hidden = np.maximum(population.test_features @ weights[0] + weights[1], 0.0)
    guesses = np.argmax(hidden @ weights[2] + weights[3], 1)
    return float(np.mean(guesses == population.test_labels))


@pytest.fixture
def findings(tmp_path, trained, population):
    """What a loop of those rounds hands over."""
    import recording

    spec = {"rounds": 3, "reads_all": True, "out": str(tmp_path)}
    recorder = recording.Recorder(spec)
    for number, weights in enumerate(trained[1]):
        path = tmp_path / f"round_{number}"
        path.touch()
        recorder.end(accuracy=accuracy(weights, population), checkpoint=path)
        assert recorder.reads
        recorder.keep(weights, weights)
    recorder.write(round=[3.0, 2.0, 1.0])
    return recording.Findings.read(tmp_path)


def test_clients_are_read_as_they_were_written(population, tmp_path):
    import populations
    import works

    population.write(tmp_path / "folder")
    found = populations.read(str(tmp_path / "folder"))
    assert found.largest == 9
    x, y = found.examples(1)
    np.testing.assert_array_equal(x, population.features[4:11])
    np.testing.assert_array_equal(y, population.labels[4:11])
    x += 1.0  # its own copy
    work = dataclasses.replace(works.WORKS["A"], population=str(tmp_path / "folder"))
    np.testing.assert_array_equal(
        works.client_examples(work, 1)[0], population.features[4:11]
    )


def test_what_a_loop_tells_comes_back(findings, trained):
    assert len(findings.ends) == 3
    assert findings.ends == sorted(findings.ends)
    assert findings.parts == {"round": [3.0, 2.0, 1.0]}
    assert sorted(findings.held) == [1, 2, 3]
    for number, pair in findings.held.items():
        for weights in pair:
            for found, wanted in zip(weights, trained[1][number - 1], strict=True):
                np.testing.assert_array_equal(found, wanted)


def test_the_last_round_alone_is_read_where_rounds_are_timed(tmp_path):
    import recording

    spec = {"rounds": 2, "reads_all": False, "out": str(tmp_path)}
    recorder = recording.Recorder(spec)
    path = tmp_path / "checkpoint"
    with pytest.raises(FileNotFoundError):
        recorder.end(accuracy=0.5, checkpoint=path)
    recorder = recording.Recorder(spec)
    path.touch()
    read = []
    for _ in range(2):
        recorder.end(accuracy=0.5, checkpoint=path)
        read.append(recorder.reads)
    assert read == [False, True]


def test_the_same_rounds_by_keras_pass(findings, work, population, trained):
    import loop_checks

    loop_checks.check_files("keras", findings, population)
    loop_checks.check_rounds("keras", findings, work, population, trained[0])


def test_another_update_or_noise_fails(findings, work, population, trained):
    import loop_checks
    from measure import CheckError

    others = {
        "clip_norm": 0.28,
        "learning_rate": 0.11,
        "epochs": 4,
        "clients": 2,
    }
    for name, value in others.items():
        other = dataclasses.replace(work, **{name: value})
        with pytest.raises(CheckError, match=r"after round 1 .* allowed"):
            loop_checks.check_rounds("it", findings, other, population, trained[0])
    for z in (0.0, trained[0] / 2, trained[0] * 2):
        with pytest.raises(CheckError, match="the norm of the noise"):
            loop_checks.check_rounds("it", findings, work, population, z)


def test_a_round_that_does_not_go_on_from_the_last_fails(
    findings, work, population, trained
):
    import loop_checks
    from measure import CheckError

    held = {**findings.held, 2: findings.held[1], 3: findings.held[2]}
    stuck = dataclasses.replace(findings, held=held)
    with pytest.raises(CheckError, match="after round 2"):
        loop_checks.check_rounds("it", stuck, work, population, trained[0])


def test_missing_stale_or_untested_checkpoints_fail(findings, population):
    import loop_checks
    from measure import CheckError

    first, last = findings.held[1][0], findings.held[3][0]
    same = findings.checkpoints[:2] * 2
    wrong = [*findings.accuracies[:2], findings.accuracies[2] + 0.01]
    for changes, words in (
        ({"checkpoints": same[:3]}, "2 checkpoints of 3 rounds"),
        ({"held": {3: (last, first)}}, "round 3 has other weights"),
        ({"held": {2: findings.held[2]}}, "last checkpoint was not read"),
        ({"accuracies": wrong}, "its test after round 3"),
        ({"accuracies": [np.nan] * 3}, "its test after round 1"),
        ({"accuracies": [None] * 3}, "its test after round 3"),
    ):
        bad = dataclasses.replace(findings, **changes)
        with pytest.raises(CheckError, match=words):
            loop_checks.check_files("it", bad, population)
    untested = [None, *findings.accuracies[1:]]
    fine = dataclasses.replace(findings, accuracies=untested)
    loop_checks.check_files("it", fine, population)


def test_measured_are_the_rounds_after_warm_up_and_the_rest_of_their_parts(findings):
    import loops

    rounds = loops.WARM + 3
    ends = np.cumsum([100.0] * loops.WARM + [4.0, 5.0, 6.0]).tolist()
    parts = {"round": [50.0] * loops.WARM + [1.0] * 3, "evaluation": [1.0] * rounds}
    run = dataclasses.replace(
        findings, ends=ends, parts=parts, accuracies=[0.5] * rounds
    )
    runs = loops.Runs(loops.own_subject("in_process"))
    runs.add(run, 10.0)
    runs.add(run, 30.0)
    assert [r.tolist() for r in runs.seconds] == [[4.0, 5.0, 6.0]] * 2
    assert runs.parts() == {"round": 1.0, "evaluation": 1.0, "all else": 4.0}
    assert runs.peak_rss_mb == 30.0
    assert runs.accuracies == [0.5, 0.5]
    silent = loops.Runs(loops.own_subject("native"))
    silent.add(dataclasses.replace(run, parts={}), 10.0)
    assert silent.parts() is None


def test_a_task_without_data_is_left_out_in_one_line(monkeypatch, caplog, tmp_path):
    import loops

    monkeypatch.setenv("TFF_HDP_DATA", str(tmp_path / "none"))
    found = loops.training_loops(["mnist"], ["in_process"], [], rounds=1, runs=1)
    assert found == []
    (record,) = caplog.records
    assert record.getMessage().startswith("mnist is left out: ")
    assert len(record.getMessage().splitlines()) == 1


def test_a_program_is_run_to_its_end_with_all_that_it_starts(tmp_path):
    import children
    import processes

    def has_ended(pid):
        deadline = time.monotonic() + 10
        while any(map(processes.peak_kb, processes.tree(pid))):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(p.pid, file=open(sys.argv[1], 'w'))\n"
        "time.sleep(1)\n"
        "sys.exit(int(sys.argv[2]))"
    )
    told = tmp_path / "pid"
    command = [sys.executable, "-c", code, str(told)]
    peak = children.run_to_end([*command, "0"], cwd=tmp_path, poll_seconds=0.1)
    assert 5 < peak < 1000
    assert has_ended(int(told.read_text()))
    with pytest.raises(children.ProgramError, match="failed"):
        children.run_to_end([*command, "3"], cwd=tmp_path, poll_seconds=0.1)
    assert has_ended(int(told.read_text()))

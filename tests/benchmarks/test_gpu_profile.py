"""Rows of what a GPU did, from a trace made by hand."""

import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_on_path")

STREAM = "Stream #13(MemcpyD2H,Compute)"


@pytest.fixture
def trace():
    """Two rounds: kernels of Conv2D and Sub, a copy, and what no GPU did."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    for plane_name, line_name in (
        ("/device:GPU:0", STREAM),
        ("/device:GPU:0", "TensorFlow Ops"),
        ("/host:CPU", "Stream #1"),
    ):
        plane = space.planes.add(name=plane_name)
        plane.stat_metadata[1].name = "tf_op"
        plane.stat_metadata[2].name = "step/Conv2D_1:Conv2D"
        plane.stat_metadata[3].name = "correlation_id"
        for number, kernel in enumerate(
            ["implicit_convolve", "Sub_kernel", "MemcpyH2D", "Memset 3"], 1
        ):
            plane.event_metadata[number].name = kernel
        line = plane.lines.add(name=line_name)
        for number, milliseconds in (1, 60), (1, 40), (2, 10), (3, 20), (4, 0.2):
            event = line.events.add(
                metadata_id=number, duration_ps=int(milliseconds * 1e9)
            )
            event.stats.add(metadata_id=3, uint64_value=7)
            if number == 1:
                event.stats.add(metadata_id=1, ref_value=2)
            elif number == 2:
                event.stats.add(metadata_id=1, str_value="while/body/sub:Sub")
            elif number == 3:  # for whom it is, which is no operation's time
                event.stats.add(metadata_id=1, str_value="while/body/sub:_Send")
    return space


def test_rows_are_of_operations_on_gpus_alone(trace):
    import gpu_profile

    rows = gpu_profile.operations(trace, "B", seconds=0.4, rounds=2)
    found = [
        (r["operation"], r["share"], r["milliseconds"], r["kernels"]) for r in rows
    ]
    assert found == [
        ("Conv2D", pytest.approx(0.25), pytest.approx(50), 1),
        ("copies from and to the host", pytest.approx(0.05), pytest.approx(10), 0.5),
        ("Sub", pytest.approx(0.025), pytest.approx(5), 0.5),
        ("all others", pytest.approx(0.0005), pytest.approx(0.1), 0.5),
        ("the round", 1.0, pytest.approx(200), None),
    ]
    assert {r["work"] for r in rows} == {"B"}

"""Forms of convolutions for a GPU, tried on the processor."""

import dataclasses

import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_on_path")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_form_trains_the_same():
    import gpu_forms
    import works

    from tff_hdp.clients import stacked_model
    from tff_hdp.runtime import environment

    before = environment.gpus, stacked_model._convolution
    work = dataclasses.replace(works.WORKS["lenet"], examples=20, epochs=1)
    rows = gpu_forms.timed(work, 3, turns=1, device="CPU")
    assert (environment.gpus, stacked_model._convolution) == before
    names = [(row["form"], row["jit_compile"]) for row in rows]
    assert names == [
        ("one by one", False),
        *((form, compiled) for form in gpu_forms.FORMS[1:] for compiled in (0, 1)),
    ]
    assert all(row["apart"] < 1e-4 for row in rows)
    assert all(row["milliseconds"] > 0 for row in rows)

"""What a default schedule has no registers for has another one."""

from __future__ import annotations

import pytest

from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.pipeline import build
from fuser.runtime import fallback
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.runtime.explain import dense, explain
from fuser.runtime.fallback import fitted

SHAPE = (780, 231_264)


def beside_its_log_softmax() -> Fusion:
    """Twice a tensor, and its sum with its log softmax: three of each row's elements are held."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "bf16")
    fd.add_output(fd.ops.add(x, x))
    fd.add_output(fd.ops.add(x, fd.ops.log_softmax(fd.ops.cast(x, "f32"), [1])))
    return fd.fusion()


def called(fusion: Fusion) -> dict[str, Spec]:
    """A call with rows that are too long for the registers of a cluster."""
    (x,) = fusion.inputs
    assert isinstance(x, TensorView)
    return {x.name: dense(x, SHAPE, 1 << 32)}


def test_a_refused_kernel_has_another_schedule() -> None:
    """A user who names no schedule cannot mend it."""
    fusion = beside_its_log_softmax()
    specs = called(fusion)
    shapes = classify(fusion, None, specs)
    with pytest.raises(ScheduleError, match="registers of fragments") as refused:
        build(fusion, None, shapes)
    assert refused.value.kernel == 0
    program = fitted(fusion, shapes, specs)
    assert program.shapes != shapes
    assert program.launches[0].params == program.shapes.schedules[0] != shapes.schedules[0]
    assert str(program.shapes.schedules[0].family) in str(explain(fusion, SHAPE))


def test_what_fits_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked for other schedules."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.relu(fd.define_tensor([-1, -1], "bf16")))
    fusion = fd.fusion()
    shapes = classify(fusion, None, called(fusion))

    def asked(*_: object) -> None:
        raise AssertionError("it is not refused")

    monkeypatch.setattr(fallback, "Alternatives", asked)
    assert fitted(fusion, shapes, called(fusion)).shapes == shapes


def test_the_first_refusal_is_said_if_nothing_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or if no schedule is to blame."""
    fusion = beside_its_log_softmax()
    specs = called(fusion)
    shapes = classify(fusion, None, specs)
    monkeypatch.setattr(fallback, "TRIES", 0)
    with pytest.raises(ScheduleError, match=r"tile=\(1, 30720\)"):
        fitted(fusion, shapes, specs)

    def refuse(*_: object) -> None:
        raise ScheduleError("the fusion asks for it")

    monkeypatch.setattr(fallback, "build", refuse)
    with pytest.raises(ScheduleError, match="the fusion asks"):
        fitted(fusion, shapes, specs)

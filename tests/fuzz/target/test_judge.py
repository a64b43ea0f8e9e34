"""Who is wrong is said, and why; what torch does not take is no pass."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from functions import case_of

from fuser.fusion.definition import Ops, TensorView
from fuzz.target import judge as module
from fuzz.target.judge import FUSED, Answer, calls, judge, judge_text, request
from fuzz.target.script import EAGER, Target

RIGHT = Target("wrong_backends:plain")
WRONG = Target("wrong_backends:tanh_is_sin")


def statuses(answer: Answer) -> list[tuple[str, str, str]]:
    """Subjects, what was said of them, and causes."""
    return [(r.subject, r.status, r.cause) for r in answer.records]


def tanh_of_abs(ops: Ops, x: TensorView) -> TensorView:
    """Two operations, of which a planted fault is about the last."""
    return ops.tanh(ops.abs(x))


def test_right_ones_pass() -> None:
    """With every element checked, by a text as a child gets it."""
    answer = judge_text(request(RIGHT, case_of(tanh_of_abs)))
    assert [(r.subject, r.status) for r in answer.records] == [
        (EAGER, "pass"),
        (RIGHT.backend, "pass"),
    ]
    assert all(record.checked == 80 for record in answer.records)
    assert not answer.scripts


def test_a_wrong_operation_is_named() -> None:
    """Eager torch is right, so it is the compiler; the operation is the first that goes wrong."""
    answer = judge(WRONG, case_of(tanh_of_abs))
    assert statuses(answer) == [
        (EAGER, "pass", ""),
        (WRONG.backend, "fail", f"{WRONG.backend} tanh/float32"),
    ]
    assert answer.records[-1].kind == "value"
    assert [*answer.scripts] == [WRONG.backend]


def test_eager_torch_is_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where eager torch is wrong alone, it is the one that is named."""
    monkeypatch.setattr(torch, "tanh", torch.sin)
    answer = judge(RIGHT, case_of(tanh_of_abs))
    assert {said[1:] for said in statuses(answer)} == {("fail", "eager torch tanh/float32")}


def test_a_fault_of_fusing_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every tensor is right once it is an output."""
    plain = module._compiled

    def compiled(target: Target, fusion: object, subject: str) -> Callable[..., object]:
        run = plain(target, fusion, subject)  # type: ignore[arg-type]  # a fusion
        alone = len(fusion.outputs) == 1  # type: ignore[attr-defined]
        return lambda *a: [t + 1 for t in run(*a)] if alone and subject != EAGER else run(*a)

    monkeypatch.setattr(module, "_compiled", compiled)
    assert statuses(judge(RIGHT, case_of(tanh_of_abs)))[-1][1:] == (
        "fail",
        f"{RIGHT.backend} {FUSED}",
    )


def test_an_exception_of_the_compiler_is_a_failure_without_the_names_of_the_case() -> None:
    """Eager torch runs the case, so the compiler has to."""
    (_, record) = judge(Target("wrong_backends:raises"), case_of(tanh_of_abs)).records
    assert (record.status, record.kind) == ("fail", "raises")
    assert record.cause.endswith("KeyError: '# is #'")


def test_what_eager_torch_refuses_is_unsupported() -> None:
    """And nobody else is asked."""
    answer = judge(RIGHT, case_of(lambda ops, x: ops.gather(x, 0, ops.cast(x, "i32")), "f8e5m2"))
    assert statuses(answer) == [(EAGER, "unsupported", "")]


def test_what_the_compiler_says_it_does_not_take_is_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph break is no pass and no failure."""
    plain = torch.tanh

    def breaks(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return plain(x)

    monkeypatch.setattr(torch, "tanh", breaks)
    (eager, other) = judge(RIGHT, case_of(tanh_of_abs)).records
    assert (eager.status, other.status) == ("pass", "unsupported")
    assert "graph_break" in other.reason


def test_calls_are_the_case_other_values_and_other_extents() -> None:
    """Extents change only where torch was told so; never to smaller ones, which slices need."""
    case = case_of(tanh_of_abs, seed=5)
    assert [call.kind for call in calls(RIGHT, case)] == ["integers", "reals"]
    (*_, last) = calls(Target(dynamic=True), case)
    assert last.extents["i0"] > case.extents["i0"]


def test_16_bits_may_be_rounded_between_operations_or_not() -> None:
    """256 + 1 - 256 is 1 in f32 and 0 in bf16; eager torch rounds, a compiler need not."""

    def cancels(ops: Ops, x: TensorView) -> TensorView:
        one = ops.add(ops.mul(x, 0.0), 1.0)
        return ops.sub(ops.add(ops.add(ops.mul(x, 0.0), 256.0), one), 256.0)

    assert {r.status for r in judge(RIGHT, case_of(cancels, "bf16")).records} == {"pass"}


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a compiler of C++")
def test_inductor_is_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The default target, with extents left open, at two of them."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch._inductor.config, "compile_threads", 1)
    case = case_of(lambda ops, x: ops.sum(ops.mul(x, 0.5), [1]), "bf16", seed=5)
    (eager, inductor) = judge(Target(dynamic=True), case).records
    assert (inductor.subject, inductor.status) == ("inductor", "pass")
    assert eager.checked == inductor.checked > 2 * 5


def test_a_backend_called_eager_is_a_target_like_others() -> None:
    """Torch has one of that name, which runs what dynamo has traced."""
    (eager, other) = judge(Target("eager"), case_of(tanh_of_abs)).records
    assert (eager.subject, other.subject) == (EAGER, "eager")
    assert eager.checked == other.checked == 80

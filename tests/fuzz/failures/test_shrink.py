"""A failing case is made as small as it can be, whoever drew it, and without slipping."""

from __future__ import annotations

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, compiled, from_text, to_text
from fuzz.failures.shrink import SEEDED_STEPS, fewer_outputs, least, one_kernel, one_output, shorter

TILE = PointwiseParams((4, 256), 4, 4, 2, "tma", "direct", stages=4, prefetch=2)


def chain() -> Case:
    """Several operations, several outputs, an operation that is to blame in the middle."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
    y = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
    t = fd.ops.exp(fd.ops.add(x, y))
    u = fd.ops.sub(fd.ops.neg(t), x)
    fd.add_output(fd.ops.relu(u))
    fd.add_output(fd.ops.mul(t, y))
    return Case(fd.fusion(), TILE, {"i0": 37, "i1": 650}, "reals", 7, gap=3)


def ops(case: Case) -> list[str]:
    """Operations of a case."""
    return [tv.op for tv in case.fusion.tensors if tv.op != "input"]


def test_what_does_not_matter_is_left_out() -> None:
    """All but the guilty operation, and every number that may be smaller."""
    asked = []

    def fails(case: Case) -> bool:
        asked.append(case)
        return "sub" in ops(case) and case.extents.get("i1", 1) > 256

    small = least(chain(), fails)
    assert ops(small) == ["sub"]
    assert small.extents == {"i1": 257}, "an axis of one element is left out, too"
    assert (small.kind, small.seed, small.gap) == ("integers", 0, 0)
    assert small.params == PointwiseParams((1, 1), 1, 1, None, "direct", "direct")
    assert {str(tv.dtype) for tv in small.fusion.tensors} == {"f32"}
    texts = [to_text(case) for case in asked]
    assert len(set(texts)) == len(texts), "nothing is judged twice"
    assert to_text(from_text(to_text(small))) == to_text(small)


def test_whole_kernels_are_left_out_first() -> None:
    """Of a program of several only the failing one need be judged."""
    fd = FusionDefinition()
    a = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
    b = fd.define_tensor(shape=["i1", "i2"], dtype="bf16")
    c = fd.define_tensor(shape=["i2", "i3"], dtype="bf16")
    fd.add_output(fd.ops.matmul(fd.ops.relu(fd.ops.matmul(a, b)), c))
    params = MatmulParams((64, 64, 64), 1, "pipelined", 2, 1, persistent=False)
    case = Case(fd.fusion(), params, {"i0": 8, "i1": 8, "i2": 8, "i3": 8}, "integers", 0)
    parts = list(one_kernel(case))
    assert len(compiled(case).launches) == 2
    assert [len(compiled(part).launches) for part in parts] == [1, 1]


def test_what_never_fails_again_stays_as_it_is() -> None:
    """It is reported as it was found."""
    case = chain()
    assert least(case, lambda _: False) is case


def test_only_the_steps_that_are_given_are_taken() -> None:
    """Who has no kernels leaves the params alone."""
    small = least(chain(), lambda case: "sub" in ops(case), [one_output, shorter])
    assert small.params == TILE
    assert set(small.extents.values()) == {1}
    assert small.gap == 3


def test_one_of_several_outputs_is_left_out() -> None:
    """What fails of two outputs together loses the third."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
    for op in (fd.ops.exp, fd.ops.neg, fd.ops.relu):
        fd.add_output(op(x))
    case = Case(fd.fusion(), TILE, {"i0": 37, "i1": 650}, "reals", 7)
    assert [ops(one) for one in fewer_outputs(case)] == [
        ["exp", "neg"],
        ["exp", "relu"],
        ["neg", "relu"],
    ]
    assert ops(least(case, lambda one: {"exp", "relu"} <= set(ops(one)))) == ["exp", "relu"]


def test_what_fails_under_another_seed_is_smaller_too() -> None:
    """A smaller fusion may be refused at other extents than the one that was found."""

    def fails(case: Case) -> bool:
        return "sub" in ops(case) and (len(ops(case)) > 3 or case.seed == 5)

    assert len(ops(least(chain(), fails))) > 3
    small = least(chain(), fails, SEEDED_STEPS)
    assert (ops(small), small.seed) == (["sub"], 5)

"""Views are right as torch's are, and cost no kernel where memory says it all."""

from __future__ import annotations

import random

import judged
import moved
import pytest
import torch
from moved import MOVED

from fuser.errors import FusionError
from fuser.fusion.definition import Fusion, FusionDefinition, Symbol, to_python
from fuser.fusion.ir import TensorView
from fuser.runtime.binding import _check_promises
from fuser.runtime.call import Spec
from fuser.runtime.executable import Executable
from fuser.schedule.segment import intermediates, segments
from fuser.schedule.shape_class import Choices
from fuser.schedule.views import Join, Layout, Lie, Narrow, Split, Step
from fuzz.cases.case import Case, Kind
from fuzz.cases.strategies import PRODUCTS
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status


def agree(name: str, got: list[torch.Tensor], x: torch.Tensor) -> None:
    """Compare with torch."""
    made = MOVED[name][1](x.double(), x.shape[1])
    for one, other in zip(got, made if isinstance(made, tuple) else (made,), strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f32", "i64"])
@pytest.mark.parametrize("name", MOVED)
def test_the_reference_is_torch(name: str, dtype: str) -> None:
    """Shapes and elements."""
    for shape in moved.SHAPES[:3]:
        fusion, (x,) = moved.case(name, shape, dtype)
        agree(name, [want.value for want in evaluate(fusion, [x])], x)
        names: dict[str, Fusion] = {}
        exec(to_python(fusion), names)
        assert str(names["fusion"]) == str(fusion)


@pytest.mark.parametrize("name", MOVED)
def test_kernels_read_and_write_where_views_say(name: str) -> None:
    """In the simulator, with outputs poisoned before."""
    fusion, _ = moved.case(name, (5, 12), "bf16")
    kind: Kind = "reals" if name == "group_norm" else "integers"
    for rows in (5, 0, 33):
        case = Case(fusion, PRODUCTS, {"m": rows}, kind, 1)
        records = judged.records(case, ("simulator", "differential"))
        assert {record.status for record in records} <= {"pass", "unknown"}, records


KERNELS = {
    "slice": (1, 0),
    "steps": (1, 0),
    "slice of a slice": (1, 0),
    "rotate": (1, 0),
    "flatten": (1, 0),
    "cat": (2, 0),
    "reshape": (1, 0),
    "unflatten": (1, 0),
    "slice of a result": (1, 0),
    "product of halves": (1, 0),
    "cat that is used": (2, 0),
}


@pytest.mark.parametrize("name", KERNELS)
def test_only_what_is_computed_is_stored(name: str) -> None:
    """A view of an input or into an output is no copy."""
    fusion, _ = moved.case(name, (5, 12), "bf16")
    cut = segments(fusion)
    assert (len(cut), len(intermediates(fusion, cut, Choices()))) == KERNELS[name]


def test_layouts_are_those_of_torch() -> None:
    """Steps one after the other: extents, strides, where it begins, and what is promised of it."""
    rng = random.Random(4)
    for _ in range(400):
        shape = [rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(1, 3))]
        order = rng.sample(range(len(shape)), len(shape))
        dense = torch.arange(torch.Size(shape).numel()).reshape([shape[n] for n in order])
        seen = dense.permute([order.index(n) for n in range(len(shape))])
        places = tuple(len(shape) - 1 - order.index(n) for n in range(len(shape)))
        layout = Layout(tuple(seen.shape), seen.stride())
        lie = Lie(tuple(shape), (True,) * len(shape), places)
        for _ in range(rng.randint(1, 4)):
            step, seen = _step(rng, seen)
            layout, lie = step.of(layout, {}, "x"), step.lie(lie)
            assert layout.shape == tuple(seen.shape) == lie.extents
            got = dense.as_strided(layout.shape, layout.strides, layout.first)
            assert torch.equal(got, seen)
            _check_promises(
                _promised(lie), Spec(layout.shape, layout.strides, 0, _promised(lie).dtype)
            )


def _step(rng: random.Random, seen: torch.Tensor) -> tuple[Step, torch.Tensor]:
    axis = rng.randrange(seen.dim())
    size = seen.shape[axis]
    kind = rng.choice(("narrow", "split", "join"))
    if kind == "join" and axis + 1 < seen.dim():
        try:
            return Join(axis, axis + 1), seen.view(
                *seen.shape[:axis], size * seen.shape[axis + 1], *seen.shape[axis + 2 :]
            )
        except RuntimeError:
            pass  # no view of torch's either
    if kind == "split":
        inner = rng.choice([n for n in range(1, size + 1) if size % n == 0])
        return Split(axis, (size // inner, inner)), seen.unflatten(axis, (size // inner, inner))
    start, step = rng.randrange(size), rng.randint(1, 2)
    many = rng.randint(1, (size - start - 1) // step + 1)
    index = [slice(None)] * axis + [slice(start, start + (many - 1) * step + 1, step)]
    return Narrow(axis, start, step, many), seen[tuple(index)]


def _promised(lie: Lie) -> TensorView:
    fd = FusionDefinition()
    return fd.define_tensor(list(lie.extents), "f32", list(lie.contiguity), list(lie.order))


def test_a_tensor_that_is_too_short_is_refused() -> None:
    """Nothing is read beyond its end."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", 8], "f32")
    fd.add_output(fd.ops.slice(x, 0, 2, 6))
    records = judged.records(Case(fd.fusion(), PRODUCTS, {"m": 5}, "integers", 1), ("simulator",))
    assert [record.status for record in records] == ["invalid"]
    assert "axis 0 has 5 elements, slice takes those up to 6; pass a longer" in records[0].reason


REFUSALS = [
    (lambda o, x: o.slice(x, 0, 1), r"axis 0 has extent m; pin it to a number, or name start, end"),
    (lambda o, x: o.slice(x, 0, -2, 4), r"axis 0 has extent m; pin it"),
    (lambda o, x: o.slice(x, 1, 0, 4, 0), r"step 0 is below 1; use 1 or more"),
    (lambda o, x: o.slice(x, 1, 0.5), r"are not all integers; use some, or leave end out"),
    (lambda o, x: o.flatten(x), r"extents \(m, 8\) are not all known; pin them"),
    (lambda o, x: o.flatten(x, 1, 0), r"axis 1 lies behind axis 0; name the first one first"),
    (lambda o, x: o.unflatten(x, 1, [3, -1]), r"axis 1 has extent 8; name sizes whose product"),
    (lambda o, x: o.unflatten(x, 1, [-1, -1]), r"are no extents; name numbers, and -1 once"),
    (lambda o, x: o.cat([x, x], 0), r"extents \(m, m\) are not all known; pin them"),
    (lambda o, x: o.cat([], 0), r"there is no tensor; pass one or more"),
    (lambda o, x: o.cat([x, o.cast(x, "i32")], 1), r"T0 f32 of 2 axes, T1 i32 of 2 axes; cast or"),
    (lambda o, x: o.cat([o.full([3, 2], 1, "f32"), o.full([4, 2], 1, "f32")], 1), r"differ; make"),
    (lambda o, x: o.reshape(x, [4, "m", 2]), r"extent m is not known where axes change; pin it"),
    (lambda o, x: o.pad(x, [1]), r"give two whole numbers for each of the last"),
    (lambda o, x: o.group_norm(x, 3), r"group_norm\(T0, 3\): .*unflatten.*product is that"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "says"), REFUSALS, ids=[says[:40] for _, says in REFUSALS])
def test_mistakes_are_refused_with_a_way_out(call: moved.Ours, says: str) -> None:
    """The call as written, what is wrong, the way out."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", 8], "f32")
    with pytest.raises(FusionError, match=says):
        call(fd.ops, x)  # type: ignore[call-arg]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64"])
@pytest.mark.parametrize("name", MOVED)
def test_the_device_agrees(name: str, dtype: str) -> None:
    """Odd rows and many of them."""
    for shape in moved.SHAPES:
        fusion, (x,) = moved.case(name, shape, dtype)
        got = [out.cpu() for out in Executable(fusion)(x.cuda())]
        verdict = compare(evaluate(fusion, [x]), got, exact=False)
        assert verdict.status in (Status.PASS, Status.UNKNOWN), verdict
        assert Symbol("m") in fusion.inputs[0].shape  # type: ignore[union-attr]

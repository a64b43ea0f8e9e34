"""Definitions: what they become, how they print, and everything they refuse."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.errors import FusionError
from fuser.fusion.definition import (
    Fusion,
    FusionDefinition,
    IterType,
    Ops,
    Symbol,
    TensorView,
    to_python,
)
from fuser.fusion.ops import COMPOSITIONS, METHODS, OPS

DTYPES = ("f64", "f32", "f16", "bf16", "i32", "i64", "bool")


def rebuilt(fusion: Fusion) -> Fusion:
    """Run the Python text of a fusion."""
    names: dict[str, Any] = {}
    exec(to_python(fusion), names)
    result = names["fusion"]
    assert isinstance(result, Fusion)
    return result


def test_a_fusion_prints_one_line_per_tensor() -> None:
    """The text is what people read in reports and compare in golden files."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
        y = fd.define_tensor(shape=[-1, 8], dtype="f32", stride_order=[0, 1])
        scale = fd.define_scalar("f64")
        fd.add_output(fd.ops.cast(fd.ops.mul(fd.ops.add(x, y), scale), "f16"))
    assert str(fd.fusion()).splitlines() == [
        "inputs: T0, T1, S0",
        "S0: f64",
        "T0: bf16[i0, 8] = input()",
        "T1: f32[i0, 8] = input(contiguity=[True, True], stride_order=[0, 1])",
        "T2: f32[i0, 8] = add(T0, T1)",
        "T3: f32[i0, 8] = mul(T2, S0)",
        'T4: f16[i0, 8] = cast(T3, dtype="f16")',
        "outputs: T4",
    ]


def test_extents_that_meet_become_one_symbol() -> None:
    """Exact equality is known everywhere, also in tensors defined before the meeting."""
    fd = FusionDefinition()
    a, b, c = (fd.define_tensor([-1, -1], "f32") for _ in range(3))
    fd.add_output(fd.ops.add(fd.ops.add(b, c), fd.ops.permute(a, [1, 0])))
    fusion = fd.fusion()
    assert [tv.shape for tv in fusion.tensors[:3]] == [
        (Symbol("i0"), Symbol("i1")),
        (Symbol("i1"), Symbol("i0")),
        (Symbol("i1"), Symbol("i0")),
    ]


def test_numbers_and_names_win_over_fresh_symbols() -> None:
    """A user's name stays readable; a pinned extent reaches every tensor it meets."""
    fd = FusionDefinition()
    a, b = fd.define_tensor([-1, -1], "f32"), fd.define_tensor(["rows", 16], "f32")
    fd.add_output(fd.ops.add(a, b))
    assert [tv.shape for tv in fd.fusion().tensors] == [(Symbol("rows"), 16)] * 3


def test_axes_of_extent_one_stretch_and_do_not_unify() -> None:
    """BROADCAST is exactly extent 1."""
    fd = FusionDefinition()
    a, b = fd.define_tensor([-1, 1], "f32"), fd.define_tensor([1, -1], "f32")
    total = fd.ops.add(a, b)
    fd.add_output(total)
    assert [axis.iter_type for axis in a.logical] == [IterType.ITERATION, IterType.BROADCAST]
    assert str(fd.fusion()).splitlines()[3] == "T2: f32[i0, i1] = add(T0, T1)"


def test_a_refused_call_changes_nothing() -> None:
    """Generators try calls and go on; half a unification would poison the rest."""
    fd = FusionDefinition()
    a, b = fd.define_tensor([-1, 4], "f32"), fd.define_tensor([9, 5], "f32")
    with pytest.raises(FusionError, match="differ"):
        fd.ops.add(a, b)
    fd.add_output(fd.ops.neg(a))
    assert "T0: f32[i0, 4]" in str(fd.fusion())


def test_scalars_and_inputs_keep_their_order() -> None:
    """The order of inputs is the order of the call, even where tensors come late."""
    fd = FusionDefinition()
    first = fd.define_scalar("i32")
    x = fd.define_tensor([4], "i32")
    y = fd.ops.add(x, first)
    fd.define_scalar("bool")
    z = fd.define_tensor([4], "i32")
    fd.add_output(fd.ops.mul(y, z))
    fusion = fd.fusion()
    assert [arg.name for arg in fusion.inputs] == ["S0", "T0", "S1", "T2"]
    assert str(rebuilt(fusion)) == str(fusion)


ENTRIES: st.SearchStrategy[Any] = st.sampled_from([-1, 1, 4, 0, "n", "i1"])


def _applied(draw: st.DrawFn, ops: Ops, op: str, args: list[Any]) -> TensorView:
    """Call one operation; what does not fit raises FusionError."""
    x, a, b, _ = args
    match op:
        case "cast":
            return ops.cast(x, draw(st.sampled_from(DTYPES)))
        case "broadcast":
            return ops.broadcast(x, [True] + [False] * x.rank)
        case "expand":
            return ops.expand(x, [draw(ENTRIES) for _ in x.logical])
        case "squeeze":
            return ops.squeeze(x, [0])
        case "sum" | "prod" | "mean" | "max" | "min":
            reduced: TensorView = getattr(ops, op)(x, [-1], keepdim=draw(st.booleans()))
            return reduced
        case "cumsum":
            return ops.cumsum(x, draw(st.integers(-1, 0)))
        case "slice":
            return ops.slice(x, -1, draw(st.integers(-3, 3)), draw(st.none() | st.integers(0, 9)))
        case "flatten":
            return ops.flatten(x, draw(st.integers(0, 1)))
        case "unflatten":
            return ops.unflatten(x, draw(st.integers(0, 1)), [2, -1])
        case "gather":
            return ops.gather(x, draw(st.integers(0, 1)), a)
        case "cat":
            return ops.cat([x, x], draw(st.integers(0, 1)))
        case "permute":
            return ops.permute(x, draw(st.permutations(range(x.rank))))
        case "iota":
            return ops.iota(draw(ENTRIES), a, b, "f32")
        case "full":
            return ops.full([draw(ENTRIES), 2], a, draw(st.sampled_from(DTYPES)))
        case "matmul" | "linear" | "fused_multiply_sum":
            kind = draw(st.sampled_from(["bf16", "f16", "f32"]))
            precision = "tf32" if kind == "f32" else None
            factors = ops.cast(x, kind), ops.cast(a, kind)
            product: TensorView = getattr(ops, op)(*factors, precision=precision)
            return product
        case "grouped_matmul":
            kind = draw(st.sampled_from(["bf16", "f16"]))
            return ops.grouped_matmul(ops.cast(x, kind), ops.cast(a, kind), b)
        case _:
            result: TensorView = getattr(ops, op)(*args[: OPS[op].arity])
            return result


@st.composite
def fusions(draw: st.DrawFn) -> Fusion:
    """Small fusions with every kind of statement.

    Shrinks towards one `abs` of one f64 input of rank 0.
    """
    fd = FusionDefinition()
    live: list[TensorView] = []
    shape = draw(st.lists(ENTRIES, max_size=3))
    numbers: list[Any] = [True, 2, -3, 0.5, float("inf"), float("nan"), -0.0]
    for _ in range(draw(st.integers(1, 3))):
        rank = len(shape)
        order = draw(st.none() | st.permutations(range(rank)))
        flags = draw(st.none() | st.lists(st.booleans(), min_size=rank, max_size=rank))
        dtype = draw(st.sampled_from(DTYPES))
        live.append(fd.define_tensor(shape, dtype, contiguity=flags, stride_order=order))
        numbers.append(fd.define_scalar(draw(st.sampled_from(["f64", "f32", "i64", "bool"]))))
    fd.add_output(fd.ops.abs(fd.ops.cast(live[0], "f32")))
    names = sorted(set(METHODS) - {*COMPOSITIONS})
    for op in draw(st.lists(st.sampled_from(names), max_size=8)):
        x = draw(st.sampled_from(live))
        a, b = (draw(st.sampled_from([*live, *numbers])) for _ in range(2))
        try:
            live.append(_applied(draw, fd.ops, op, [x, a, b, 2]))
        except FusionError:
            continue
        if draw(st.booleans()):
            fd.add_output(live[-1])
    try:
        return fd.fusion()
    except FusionError:  # an extent that no input has
        return _plain()


def _plain() -> Fusion:
    fd = FusionDefinition()
    fd.add_output(fd.ops.abs(fd.define_tensor([], "f32")))
    return fd.fusion()


@settings(max_examples=150, deadline=None)
@given(fusions())
def test_python_text_makes_the_same_fusion(fusion: Fusion) -> None:
    """Bugs are kept as Python text, so nothing may be lost in it."""
    assert str(rebuilt(fusion)) == str(fusion)
    again = rebuilt(fusion)
    for old, new in zip(fusion.tensors, again.tensors, strict=True):
        assert (old.shape, old.dtype, old.attrs) == (new.shape, new.dtype, new.attrs)
        assert (old.contiguity, old.stride_order) == (new.contiguity, new.stride_order)


@settings(max_examples=100, deadline=None)
@given(fusions())
def test_fusions_are_closed(fusion: Fusion) -> None:
    """Every argument is defined earlier, and extent 1 is exactly BROADCAST."""
    seen: set[object] = {arg for arg in fusion.inputs if not isinstance(arg, TensorView)}
    for tv in fusion.tensors:
        for arg in tv.args:
            assert arg in seen or not arg.__class__.__name__.startswith(("Tensor", "Scalar"))
        for axis in tv.logical:
            assert (axis.extent == 1) == (axis.iter_type is IterType.BROADCAST)
        seen.add(tv)
    assert set(fusion.outputs) <= seen


Call = Callable[[FusionDefinition, TensorView, TensorView], object]

REFUSALS: list[tuple[Call, str]] = [
    (lambda fd, x, f: fd.define_tensor([-1], "int16"), r"unknown dtype; use one of f64, f32"),
    (lambda fd, x, f: fd.define_tensor([-2], "f32"), r"extent -2 is negative; use 0 or more"),
    (lambda fd, x, f: fd.define_tensor([2**31], "f32"), r"above 2\*\*31 - 1 = 2147483647; split"),
    (lambda fd, x, f: fd.define_tensor([2**31 - 1] * 3, "f32"), r"elements; use at most 2\*\*62"),
    (lambda fd, x, f: fd.define_tensor([1.5], "f32"), r"extent 1.5 is not an integer, a name"),  # type: ignore[list-item]
    (lambda fd, x, f: fd.define_tensor([True], "f32"), r"extent True is not an integer"),
    (lambda fd, x, f: fd.define_tensor(["a b"], "f32"), r"'a b' is not a name; use letters"),
    (lambda fd, x, f: fd.define_tensor(7, "f32"), r"7 is not a list; write it as"),  # type: ignore[arg-type]
    (lambda fd, x, f: fd.define_tensor([4], "f32", contiguity=[True, True]), r"2 contiguity flags"),
    (lambda fd, x, f: fd.define_tensor([4], "f32", contiguity=[None]), r"None is not a bool"),
    (lambda fd, x, f: fd.define_tensor([4, 4], "f32", stride_order=[0]), r"1 entries in stride_o"),
    (lambda fd, x, f: fd.define_tensor([4, 4], "f32", stride_order=[0, 0]), r"one axis twice"),
    (lambda fd, x, f: fd.define_tensor([4], "f32", stride_order=[3]), r"pick one in 0\.\.0"),
    (lambda fd, x, f: fd.define_scalar("bf16"), r"scalars of bf16 do not exist; use one of f64"),
    (lambda fd, x, f: fd.ops.add(x, fd.define_tensor([4], "f32")), r"differ in rank; broadcast"),
    (
        lambda fd, x, f: fd.ops.add(x, fd.define_tensor([-1, 4], "f32")),
        r"add\(T0, T2\): shapes \(i0, 8\) and \(i2, 4\) differ; make each pair",
    ),
    (lambda fd, x, f: fd.ops.bitwise_and(x, x), r"operands are f32; cast to one of i32, i64, bool"),
    (lambda fd, x, f: fd.ops.sub(f, f), r"operands are bool; cast to one of f64, f32"),
    (lambda fd, x, f: fd.ops.lerp(fd.ops.iota(4), 1, 2), r"operands are i64; cast to one of f64"),
    (lambda fd, x, f: fd.ops.where(x, x, x), r"condition T0 is f32; use ne\(T0, 0\)"),
    (lambda fd, x, f: fd.ops.add(1, 2), r"no argument is a tensor; make one with full"),
    (lambda fd, x, f: fd.ops.add(x, "2"), r"'2' is neither a tensor nor a number"),  # type: ignore[arg-type]
    (lambda fd, x, f: fd.ops.add(x, None), r"None is neither a tensor nor a number"),  # type: ignore[arg-type]
    (lambda fd, x, f: fd.ops.exp(2.0), r"exp\(2.0\): 2.0 is not a tensor"),  # type: ignore[arg-type]
    (lambda fd, x, f: fd.ops.add(x, 2**70), r"does not fit in 64 bits; write it as a float"),
    (lambda fd, x, f: fd.ops.add(fd.ops.cast(x, "i32"), 2**40), r"does not fit in i32; cast"),
    (lambda fd, x, f: fd.ops.pow(fd.ops.cast(x, "i32"), -1), r"i32 to the negative power -1"),
    (lambda fd, x, f: fd.ops.cast(x, "f8"), r"cast\(T0, 'f8'\).*unknown dtype; use one of"),
    (lambda fd, x, f: fd.ops.nope(x), r"ops.nope: no such operation; use one of"),  # type: ignore[attr-defined]
    (lambda fd, x, f: fd.ops.broadcast(x, [True, False]), r"1 entries are False but T0 has 2 axes"),
    (lambda fd, x, f: fd.ops.broadcast(x, [0, 0]), r"0 is not a bool; use True or False"),  # type: ignore[list-item]
    (lambda fd, x, f: fd.ops.expand(x, [4, 9]), r"only axes of extent 1 stretch, use -1"),
    (lambda fd, x, f: fd.ops.expand(x, [1, -1]), r"only axes of extent 1 stretch"),
    (lambda fd, x, f: fd.ops.expand(x, [4]), r"1 entries for the 2 axes of T0; broadcast first"),
    (lambda fd, x, f: fd.ops.expand(x, [Symbol("other"), 8]), r"other is of another definition"),
    (lambda fd, x, f: fd.ops.squeeze(x, [1]), r"axis 1 has extent 8; squeeze only axes of extent"),
    (lambda fd, x, f: fd.ops.squeeze(x, [2]), r"T0.*has 2 axes and none is axis 2; pick one in 0"),
    (lambda fd, x, f: fd.ops.permute(x, [0]), r"1 of 2 axes named; name each once"),
    (lambda fd, x, f: fd.ops.permute(x, ["a", 0]), r"axis 'a' is not an integer; use 0\.\.1"),  # type: ignore[list-item]
    (lambda fd, x, f: fd.ops.iota(4, dtype="bool"), r"bool is not a number; use an integer or"),
    (lambda fd, x, f: fd.ops.iota(-1), r"extent -1 is negative"),
    (lambda fd, x, f: fd.ops.iota(4, start=0.5), r"0.5 is f64, more than i64 holds; use a wider"),
    (lambda fd, x, f: fd.ops.full([4], 2**40, "i32"), r"does not fit in i32"),
    (lambda fd, x, f: fd.add_output(x), r"T0 is an input, and an output may not alias it; use ops"),
    (lambda fd, x, f: fd.add_output(3), r"add_output\(3\): 3 is not a tensor"),  # type: ignore[arg-type]
    (lambda fd, x, f: fd.fusion(), r"nothing is computed; name a result with add_output"),
]


@pytest.mark.parametrize(("call", "says"), REFUSALS, ids=[says[:40] for _, says in REFUSALS])
def test_mistakes_are_refused_with_a_way_out(call: Call, says: str) -> None:
    """Nothing a user writes ends in another exception than FusionError."""
    fd = FusionDefinition()
    x, flag = fd.define_tensor([-1, 8], "f32"), fd.define_tensor([-1, 8], "bool")
    with pytest.raises(FusionError, match=says):
        call(fd, x, flag)


def test_tensors_of_another_definition_are_refused() -> None:
    """Names repeat between definitions, so mixing them would go unseen."""
    here, there = FusionDefinition(), FusionDefinition()
    x, other = here.define_tensor([4], "f32"), there.define_tensor([4], "f32")
    for bad in (other, there.define_scalar("f32")):
        with pytest.raises(FusionError, match="is of another definition; use the tensors of this"):
            here.ops.add(x, bad)


def test_an_output_twice_is_refused() -> None:
    """Two outputs in one buffer would alias."""
    fd = FusionDefinition()
    y = fd.ops.neg(fd.define_tensor([4], "f32"))
    fd.add_output(y)
    with pytest.raises(FusionError, match=r"output already; use ops.set\(T1\)"):
        fd.add_output(y)


def test_an_extent_that_no_input_has_is_refused() -> None:
    """A kernel could not know it."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.iota("n"))
    with pytest.raises(FusionError, match="no input tensor has the extent n; pin it to a number"):
        fd.fusion()


def test_a_slice_of_what_proves_too_short_is_refused() -> None:
    """A property test drew one: the text of such a fusion made another one."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1], "f32")
    fd.add_output(fd.ops.add(x, fd.ops.slice(x, 0, 1, 4)))
    says = r"start=1, end=4, step=1\): axis 0 has 3 elements, as T0 meets others; use end=3"
    with pytest.raises(FusionError, match=says):
        fd.fusion()


def test_garbage_in_every_place_is_refused_properly() -> None:
    """A blunt sweep: wrong values in every argument of every operation and of define_tensor."""
    garbage: list[Any] = [None, "x", [], {}, 1.5, object(), [None], [[0]], b"y", 2**80, (True, 3)]
    refusals: list[str] = []

    def attempt(function: Callable[..., object], arguments: list[Any]) -> None:
        try:
            function(*arguments)
        except FusionError as error:
            refusals.append(str(error))

    most = {"cast": 2, "iota": 4, "full": 3, "fused_multiply_sum": 6, "matmul": 3, "linear": 4}
    most["grouped_matmul"] = 5
    for name in set(METHODS) - {*COMPOSITIONS}:
        arity = most[name] if name in most else OPS[name].arity
        arity = 2 if name in ("broadcast", "expand", "squeeze", "permute", "cat") else arity
        arity = {"slice": 5, "flatten": 3, "unflatten": 3, "gather": 3}.get(name, arity)
        arity = 2 if name in ("sum", "prod", "mean", "max", "min", "cumsum") else arity
        for bad, place in itertools.product(garbage, range(arity)):
            fd = FusionDefinition()
            given: list[Any] = [fd.define_tensor([-1, 8], "f32")] * arity
            given[place] = bad
            attempt(getattr(fd.ops, name), given)
    for bad, place in itertools.product(garbage, range(4)):
        arguments: list[Any] = [[4], "f32", [True], [0]]
        arguments[place] = bad
        attempt(FusionDefinition().define_tensor, arguments)
    assert len(refusals) > 800
    assert all(": " in text and "; " in text for text in refusals)

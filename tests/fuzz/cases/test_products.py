"""Products are drawn in every form that the compiler takes, and shrink to one matmul."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import Phase, find, given, seed, settings

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, TensorView, to_python
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.fusion.ops import accumulator
from fuzz.cases.draft import INEXACT
from fuzz.cases.products import indexed_fusions, product_fusions

QUIET = settings(database=None, phases=(Phase.generate, Phase.shrink), max_examples=300)
LEAST = """from fuser.fusion.definition import FusionDefinition

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i2"], dtype="bf16")
T1 = fd.define_tensor(shape=["i2", "i1"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(T0, T1, axes=[2], axis_mapping=[[0, -1, 1], [-1, 1, 0]], \
dtype="bf16")
fd.add_output(T2)
fusion = fd.fusion()
"""


def products(fusion: Fusion) -> list[TensorView]:
    """The products of a fusion."""
    return [tv for tv in fusion.tensors if tv.op == "mma"]


def sources(tv: TensorView) -> set[TensorView]:
    """Everything that a tensor is computed from."""
    found: set[TensorView] = set()
    stack = [tv]
    while stack:
        for arg in stack.pop().args:
            if isinstance(arg, TensorView) and arg not in found:
                found.add(arg)
                stack.append(arg)
    return found


def source(tv: TensorView) -> TensorView:
    """What an operand is, but for its type."""
    while tv.op == "cast" and isinstance(tv.args[0], TensorView):
        tv = tv.args[0]
    return tv


def traits(fusion: Fusion) -> set[str]:
    """What is special about a fusion, in words."""
    found = set()
    made = products(fusion)
    used = {arg for tv in fusion.tensors for arg in tv.args}
    for tv in made:
        axes = roles(tv)
        count = Counter(axis.role for axis in axes)
        a, b = (arg for arg in tv.args if isinstance(arg, TensorView))
        kept = [axis.role for axis in axes if axis.result is not None]
        operands = (a, b)
        found |= {
            f"operands in {a.dtype}",
            f"result in {tv.dtype}",
            *["two types of operands"] * (a.dtype is not b.dtype),
            *["sums in f16"] * (accumulator(tv) is DType.F16),
            *["batch"] * bool(count[AxisRole.BATCH]),
            *["vector"] * (count[AxisRole.M] + count[AxisRole.N] == 1),
            *["dot"] * (count[AxisRole.M] + count[AxisRole.N] == 0),
            *["several M or N"] * (max(count[AxisRole.M], count[AxisRole.N]) > 1),
            *["several K"] * (count[AxisRole.K] > 1),
            *["result transposed"] * (kept == [AxisRole.N, AxisRole.M]),
            *["stretched"] * any(s.op == "expand" for s in (*operands, *sources(tv))),
            *["pointwise operand"] * any(s.op not in ("input", "permute") for s in operands),
            *["permuted operand"] * any(arg.op == "permute" for arg in operands),
            *["operand by strides"] * any(not arg.is_row_major for arg in operands),
            *["broadcast operand"] * any(arg.op == "broadcast" for arg in operands),
            *["indexed operand"] * any(source(arg).op == "gather" for arg in operands),
            *["chained"] * any(s.op == "mma" for s in sources(tv)),
            *["output"] * (tv in fusion.outputs),
            *["output and used"] * (tv in fusion.outputs and tv in used),
        }
        found |= {f"{axis.role.value} pinned" for axis in axes if isinstance(axis.extent, int)}
    if len(made) > 1:
        shared = [arg for tv in made for arg in set(tv.args)]
        found |= {"several", *["gated"] * (len(shared) > len(set(shared)))}
    if len(fusion.outputs) > 1:
        found.add("several outputs")
    if {tv.op for tv in fusion.tensors} - {"input", "mma", "permute", "broadcast"}:
        found.add("epilogue or prologue")
    return found


EVERY = (
    "operands in bf16",
    "operands in f16",
    "operands in f32",
    "operands in i8",
    "operands in f8e4m3",
    "operands in f8e5m2",
    "two types of operands",
    "sums in f16",
    "result in i32",
    "result in f32",
    "result in bf16",
    "result in f16",
    "batch",
    "vector",
    "dot",
    "several M or N",
    "several K",
    "result transposed",
    "stretched",
    "pointwise operand",
    "permuted operand",
    "operand by strides",
    "broadcast operand",
    "indexed operand",
    "chained",
    "output",
    "output and used",
    "M pinned",
    "N pinned",
    "K pinned",
    "several",
    "gated",
    "several outputs",
    "epilogue or prologue",
)


def test_products_shrink_to_one_matmul() -> None:
    """The least fusion is the one that the docstring promises."""
    least = find(product_fusions(), lambda _: True, settings=QUIET, random=Random(1))
    assert to_python(least) == LEAST


def test_a_failure_of_a_chain_keeps_two_products_only() -> None:
    """Shrinking must drop everything but what matters; the cast of one to the other may stay."""
    least = find(
        product_fusions(),
        lambda f: any(tv.op == "mma" for p in products(f) for tv in sources(p)),
        settings=QUIET,
        random=Random(3),
    )
    left = Counter(tv.op for tv in least.tensors if tv.op != "cast")
    assert left == {"input": 3, "mma": 2}
    assert len(least.tensors) <= 6


def test_every_kind_of_product_is_drawn() -> None:
    """What no strategy reaches is never tested."""
    counts: Counter[str] = Counter()

    @seed(3)
    @settings(database=None, phases=(Phase.generate,), max_examples=350, deadline=None)
    @given(product_fusions())
    def draw(fusion: Fusion) -> None:
        counts.update(traits(fusion))

    draw()
    assert not [trait for trait in EVERY if counts[trait] < 2], counts


def test_layers_of_experts_are_drawn_in_every_form() -> None:
    """Either operand is taken; the rows are blocks, or one matrix of so many blocks as a number."""
    counts: Counter[str] = Counter()

    @seed(3)
    @settings(database=None, phases=(Phase.generate,), max_examples=60, deadline=None)
    @given(indexed_fusions())
    def draw(fusion: Fusion) -> None:
        (made,) = products(fusion)
        a, b = (source(arg).op for arg in made.args if isinstance(arg, TensorView))
        assert (a == "gather") != (b == "gather")
        which = (
            "first" if a == "gather" else "second, of a matrix" if a == "unflatten" else "second"
        )
        counts[which] += 1

    draw()
    assert {*counts} == {"first", "second", "second, of a matrix"}
    assert min(counts.values()) > 3, counts


@given(product_fusions(exact=True))
@settings(max_examples=60, deadline=None)
def test_exact_fusions_have_only_exact_operations(fusion: Fusion) -> None:
    """Equality with the reference is demanded of them."""
    assert products(fusion)
    assert not {tv.op for tv in fusion.tensors} & INEXACT

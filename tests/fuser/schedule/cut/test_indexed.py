"""Matrices that an index names: which products multiply where they lie, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import judged
import pytest
import torch
from judged import complaints
from sample import covering

from fuser.expr import Var, variables
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.fusion.ir import tensor_args
from fuser.kernel import ir as kir
from fuser.lower.product import RASTER
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.runtime.explain import explain
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.cut.indexed import multiplied_in_place, taken_early
from fuser.schedule.matmul import shared_by
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import Choices
from fuzz.cases.case import Case, compiled, specs
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

NONE = frozenset[str]()
C0 = Var("c0")
"""Where a tile lies along the axis around it."""
BASE = MatmulParams((64, 16, 64), 1, "cooperative", 3, 1, persistent=False, columns=16)
PARAMS: dict[str, MatmulParams] = {
    "pipelined": replace(BASE, split="pipelined"),
    "persistent": replace(BASE, persistent=True),
    "transposed": replace(BASE, transpose=True),
    "ping_pong": replace(BASE, warpgroups=2, split="ping_pong", persistent=True),
    "clusters down": replace(BASE, cluster=(2, 1)),
    "clusters across": replace(BASE, cluster=(1, 2), transpose=True),
    "turns": replace(BASE, splits=2),
    "last": replace(BASE, splits=2, meet="last"),
    "scatter": replace(BASE, splits=2, meet="scatter", columns=8, residency="co-resident"),
}


@dataclass(frozen=True)
class Experts:
    """Blocks of rows times matrices along K, which are bf16, or of so many `bits` in i8.

    With a `group` each of so many neighbours along K has a number, which lie along N.  What is
    computed of the matrices is computed of those that are taken, where these are taken `first`.
    """

    blocks: int = 3
    rows: int = 72
    n: int = 40
    k: int = 128
    many: int = 5
    bits: int = 16
    group: int = 0
    first: bool = False
    index: str = "i32"

    def fusion(self) -> Fusion:
        """The product."""
        fd = FusionDefinition()
        x = fd.define_tensor([self.blocks, self.rows, self.k], "bf16")
        kind, last = ("bf16", self.k) if self.bits == 16 else ("i8", self.k * self.bits // 8)
        w, index = (
            fd.define_tensor([self.many, self.n, last], kind),
            fd.define_tensor([-1], self.index),
        )
        numbers = None
        if self.group:
            numbers = fd.define_tensor([self.many, self.k // self.group, self.n], "bf16")
        if self.first:
            w = fd.ops.index_select(w, 0, index)
            numbers = None if numbers is None else fd.ops.index_select(numbers, 0, index)
        made = fd.ops.cast(fd.ops.unpack(w) if self.bits == 4 else w, "bf16")
        if numbers is not None:
            each = fd.ops.repeat_interleave(fd.ops.permute(numbers, [0, 2, 1]), self.group, 2)
            made = fd.ops.cast(fd.ops.mul(made, each), "bf16")
        made = fd.ops.permute(made if self.bits < 16 else w, [0, 2, 1])
        product = fd.ops.matmul(x, made) if self.first else fd.ops.grouped_matmul(x, made, index)
        fd.add_output(product)
        return fd.fusion()

    def inputs(self, device: str = "cpu", *, outside: bool = False) -> list[torch.Tensor]:
        """Random tensors; some indices may name no matrix."""
        made = torch.Generator().manual_seed(8)
        x = torch.rand(self.blocks, self.rows, self.k, generator=made) * 2 - 1
        w = torch.rand(self.many, self.n, self.k, generator=made) * 2 - 1
        out = [x.bfloat16(), w.bfloat16()]
        if self.bits < 16:
            shape = (self.many, self.n, self.k * self.bits // 8)
            out[1] = torch.randint(-128, 128, shape, generator=made).to(torch.int8)
        index = torch.randint(0, self.many, (self.blocks,), generator=made)
        if outside:
            index[:2] = torch.tensor([-1, self.many])
        out.append(index.to(torch.int64 if self.index == "i64" else torch.int32))
        if self.group:
            shape = (self.many, self.k // self.group, self.n)
            out.append((torch.rand(shape, generator=made) + 0.5).bfloat16())
        return [one.to(device) for one in out]


MIXED = {
    "i8": Experts(bits=8),
    "i8, first": Experts(bits=8, first=True, index="i64"),
    "i4": Experts(bits=4),
    "i4, groups": Experts(bits=4, group=64),
    "i8, groups, first": Experts(bits=8, group=128, first=True, k=256),
}


Define = Callable[[FusionDefinition, TensorView, TensorView, TensorView], TensorView]


def told(define: Define, *, computed: bool = True, copied: frozenset[str] = NONE) -> int:
    """How many gathers products multiply where they lie, of x [3, 8, 16] and w [5, 16, 32]."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([3, 8, 16], "bf16"), fd.define_tensor([5, 16, 32], "bf16")
    fd.add_output(define(fd, x, w, fd.define_tensor([3], "i32")))
    return len(multiplied_in_place(fd.fusion(), copied, computed=computed))


def plain(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """A grouped product."""
    return fd.ops.grouped_matmul(x, w, index)


def moved(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """Axes are moved before the matrices are taken, and behind."""
    taken = fd.ops.index_select(fd.ops.permute(w, [2, 0, 1]), 1, index)
    return fd.ops.matmul(x, fd.ops.permute(taken, [1, 2, 0]))


def both(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """Rows are taken, too."""
    return fd.ops.grouped_matmul(fd.ops.index_select(x, 0, index), w, index)


def halved(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """An operation in between."""
    taken = fd.ops.index_select(w, 0, index)
    return fd.ops.matmul(x, fd.ops.cast(fd.ops.mul(taken, 0.5), "bf16"))


def added(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """Something else takes the matrices, too."""
    taken = fd.ops.index_select(w, 0, index)
    return fd.ops.add(fd.ops.matmul(x, taken), fd.ops.sum(taken, [1], keepdim=True))


def result(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """They are a result."""
    taken = fd.ops.index_select(w, 0, index)
    fd.add_output(taken)
    return fd.ops.matmul(x, taken)


def columns(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """What is taken are columns, not matrices."""
    one = fd.ops.select(w, 0, 0)
    return fd.ops.matmul(x, fd.ops.index_select(one, 1, index))


def elements(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """Each column has an index of its own."""
    wide = fd.ops.expand(fd.ops.broadcast(index, [False, True, True]), [3, 1, 32])
    return fd.ops.matmul(x, fd.ops.gather(w, 0, wide))


def of_one(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """One matrix, as if there were five."""
    same = fd.ops.expand(fd.ops.slice(w, 0, 0, 1), [5, 16, 32])
    return fd.ops.matmul(x, fd.ops.index_select(same, 0, index))


def alone(fd: FusionDefinition, x: TensorView, w: TensorView, index: TensorView) -> TensorView:
    """All matrices multiply the same rows: they lie beside each other."""
    rows = fd.ops.slice(x, 0, 0, 1)
    return fd.ops.matmul(rows, fd.ops.index_select(w, 0, index))


@pytest.mark.parametrize(
    ("define", "many"),
    [
        (plain, 1),
        (moved, 1),
        (both, 2),
        (halved, 1),
        (added, 0),
        (result, 0),
        (columns, 0),
        (elements, 0),
        (of_one, 0),
        (alone, 0),
    ],
)
def test_which_are_multiplied_in_place(define: Define, many: int) -> None:
    """Whole matrices, which only products take, one for each result around."""
    assert told(define) == many


def test_what_is_computed_or_copied_is_not() -> None:
    """Without registers for it; or by the name of what is copied."""
    assert told(halved, computed=False) == 0
    assert told(plain, copied=frozenset({"T4"})) == 0
    assert told(halved, copied=frozenset({"T6"})) == 0  # the operand


@pytest.mark.parametrize("name", MIXED)
def test_what_is_computed_of_those_that_are_taken_is_the_same(name: str) -> None:
    """Bit by bit."""
    fusion, given = MIXED[name].fusion(), MIXED[name].inputs()
    early = taken_early(fusion)
    assert all(tensor_args(tv)[0].op == "input" for tv in early.tensors if tv.op == "gather")
    (one,), (other,) = (evaluate(of, given) for of in (fusion, early))
    assert torch.equal(one.value, other.value)


def test_a_deep_chain_is_walked_once_per_node() -> None:
    """Every tensor is used twice: 2 ** 60 ways lead from the matrices to the product."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([3, 8, 16], "bf16"), fd.define_tensor([5, 16, 32], "bf16")
    index = fd.define_tensor([3], "i32")
    made = w
    for n in range(60):
        made = fd.ops.index_select(made, 0, index) if n == 30 else made
        made = fd.ops.mul(made, made)
    fd.add_output(fd.ops.matmul(x, fd.ops.cast(made, "bf16")))
    early = taken_early(fd.fusion())
    (gather,) = (tv for tv in early.tensors if tv.op == "gather")
    assert multiplied_in_place(early, NONE, computed=True) == {gather}


def test_what_cannot_be_taken_early_is_left() -> None:
    """A reduction, of which matrices are taken."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([3, 8, 16], "bf16"), fd.define_tensor([5, 2, 16, 32], "bf16")
    made = fd.ops.cast(fd.ops.sum(w, [1]), "bf16")
    fd.add_output(fd.ops.grouped_matmul(x, made, fd.define_tensor([3], "i32")))
    fusion = fd.fusion()
    assert taken_early(fusion).tensors == fusion.tensors


@pytest.mark.parametrize("schedule", PARAMS)
def test_one_kernel_multiplies_matrices_where_they_lie(schedule: str) -> None:
    """And every judge agrees on what it computes."""
    case = Case(Experts(k=136).fusion(), PARAMS[schedule], {"i0": 3}, "reals", 0)
    assert len(compiled(case).launches) == 1
    records = judged.records(case)
    assert {"prover", "simulator", "differential", "assembler", "ptx"} <= {
        r.oracle for r in records
    }
    assert not [r for r in records if r.status != "pass"]


@pytest.mark.parametrize(("name", "schedule"), covering(1, MIXED, PARAMS))
def test_one_kernel_computes_of_matrices_where_they_lie(name: str, schedule: str) -> None:
    """Bytes, of one number or two, and the numbers of groups are all told by an index."""
    params = replace(PARAMS[schedule], prologue="registers", transpose=True)
    case = Case(MIXED[name].fusion(), params, {"i0": 3}, "reals", 0)
    assert len(compiled(case).launches) == 1
    assert not complaints(case)


@pytest.mark.parametrize("name", MIXED)
def test_one_kernel_does_so_by_default(name: str) -> None:
    """Nothing is copied."""
    of = replace(MIXED[name], blocks=8, rows=16, n=256, k=512)
    case = Case(of.fusion(), BASE, {"i0": 8}, "reals", 0)
    known = classify(case.fusion, None, specs(case))
    assert len(build(case.fusion, None, known).launches) == 1


@pytest.mark.parametrize("first", [False, True])
def test_numbers_of_rows_are_taken_by_a_kernel_of_their_own(first: bool) -> None:
    """Threads load these, whom no index tells; the matrices stay where they are."""
    params = replace(BASE, prologue="registers", transpose=True)
    case = Case(Experts(bits=8, group=128, first=first).fusion(), params, {"i0": 3}, "reals", 0)
    *_, last = compiled(case).launches
    assert len(last.tiling.domain.indices) == 1
    assert not complaints(case)


@pytest.mark.parametrize("gap", [0, 8])
@pytest.mark.parametrize("many", [1, 5])
def test_one_block_may_have_any_of_the_matrices(many: int, gap: int) -> None:
    """A stride that is walked by no kernel is nevertheless one by which an index finds them."""
    fd = FusionDefinition()
    x = fd.define_tensor(["g", "m", 8], "bf16", contiguity=[not gap, True, True])
    w = fd.define_tensor(["t", 8, 40], "bf16")
    fd.add_output(fd.ops.matmul(fd.ops.index_select(x, 0, fd.define_tensor(["t"], "i32")), w))
    sizes = {"g": many, "m": 1, "t": 1}
    case = Case(fd.fusion(), BASE, sizes, "integers", 4, gap=gap, offset=16)
    (launch,) = compiled(case).launches
    assert launch.tiling.domain.indices
    assert not complaints(case)


@pytest.mark.parametrize("prologue", ["memory", "registers"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1), (1, 2, 0)])
def test_matrices_may_be_taken_of_what_is_permuted(
    order: tuple[int, int, int], prologue: Literal["memory", "registers"]
) -> None:
    """Then the index varies along another axis than they do in memory."""
    fd = FusionDefinition()
    x = fd.define_tensor([3, 72, 136], "bf16")
    extents = (5, 136, 40)
    lying = [extents[order.index(n)] for n in range(3)]
    w = fd.ops.permute(fd.define_tensor(lying, "bf16"), order)
    fd.add_output(fd.ops.grouped_matmul(x, w, fd.define_tensor([3], "i32")))
    case = Case(fd.fusion(), replace(BASE, prologue=prologue), {}, "reals", 0)
    (launch,) = compiled(case).launches
    ((_, index),) = launch.tiling.domain.indices
    assert index.coords == (0,)
    assert not complaints(case)


@pytest.mark.parametrize("way", ["computed", "every other", "by two products"])
def test_an_index_may_be_made_before(way: str) -> None:
    """It lies in memory then, or is a view of what does."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([3, 72, 136], "bf16"), fd.define_tensor(["g", 40, 136], "bf16")
    index = fd.define_tensor([6 if way == "every other" else 3], "i32")
    if way == "computed":
        index = fd.ops.maximum(fd.ops.sub(index, 1), 0)
    if way == "every other":
        index = fd.ops.slice(index, 0, 1, 6, 2)
    made = fd.ops.grouped_matmul(x, fd.ops.permute(w, [0, 2, 1]), index)
    if way == "by two products":
        other = fd.define_tensor(["g", 40, 136], "bf16")
        made = fd.ops.mul(made, fd.ops.grouped_matmul(x, fd.ops.permute(other, [0, 2, 1]), index))
    fd.add_output(made)
    case = Case(fd.fusion(), PARAMS["persistent"], {"g": 5}, "reals", 0)
    *before, last = compiled(case).launches
    assert len(before) == (way == "computed")
    assert len(last.tiling.domain.indices) == (2 if way == "by two products" else 1)
    assert not complaints(case)


STORED: dict[str, tuple[Experts, MatmulParams | AmpereParams]] = {
    "odd rows": (Experts(k=130), BASE),
    "no matrices": (Experts(many=0), BASE),
    "by sm_80's instructions": (
        Experts(),
        AmpereParams((32, 16, 32), 2, "mbarriers", 2, 0, persistent=True, columns=16),
    ),
    "one block": (Experts(blocks=1), BASE),
    "computed, before": (Experts(bits=8), BASE),
}


@pytest.mark.parametrize("name", STORED)
def test_what_tma_cannot_be_told_is_stored_first(name: str) -> None:
    """And is right."""
    of, params = STORED[name]
    case = Case(of.fusion(), params, {"i0": of.blocks}, "reals", 0)
    cut = segments(case.fusion, classify(case.fusion, params, specs(case)).choices)
    assert not any(one.domain.indices for one in cut if one.domain.products) or "before" in name
    assert len(cut) > 1
    assert not complaints(case)


def test_tiles_that_follow_each_other_read_one_matrix() -> None:
    """Blocks are rows of one result, as far as the order of tiles goes; batches are not."""
    for of, side in ((Experts(), "rows"), (Experts(bits=8), "rows")):
        (cut,) = segments(of.fusion(), classify_of(of))
        assert shared_by(cut.domain) == side
    for schedule in ("pipelined", "transposed"):
        case = Case(Experts(k=136).fusion(), PARAMS[schedule], {"i0": 3}, "reals", 0)
        (launch,) = compiled(case).launches
        (block,) = (s.value for s in launch.kernel.walk() if isinstance(s, kir.Let) and s.var == C0)
        # one behind the other in a group of tiles; batches are walked one by one, without any
        assert RASTER in variables(block)


def classify_of(of: Experts) -> Choices:
    """How a product is cut by default."""
    case = Case(of.fusion(), BASE, {"i0": of.blocks}, "reals", 0)
    return classify(case.fusion, None, specs(case)).choices


def test_explain_counts_matrices_once() -> None:
    """Of three blocks times five matrices three are read, of nine five."""
    for blocks, many in ((3, 3), (9, 5)):
        of = Experts(blocks=blocks)
        case = Case(of.fusion(), BASE, {"i0": blocks}, "reals", 0)
        (part,) = explain(case.fusion, *(one.shape for one in specs(case).values())).parts
        (matrices,) = (size for name, size in part.reads.items() if name not in ("T0", "T2"))
        assert matrices == many * of.n * of.k * 2
        assert part.reads["T2"] == 4 * blocks


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["bf16", *MIXED])
def test_the_device_agrees(name: str) -> None:
    """By default; also where an index names no matrix, of whose rows nothing is asked."""
    for of in (
        replace(MIXED.get(name, Experts()), blocks=b, rows=r) for b, r in ((7, 16), (3, 200))
    ):
        fusion, run = of.fusion(), Executable(of.fusion())
        given = of.inputs("cuda")
        (want,) = evaluate(fusion, [one.cpu() for one in given])
        verdict = compare([want], [out.cpu() for out in run(*given)], exact=False)
        assert verdict.status is Status.PASS, verdict
        outside = of.inputs("cuda", outside=True)
        (out,) = run(*outside)
        there = outside[2].cpu().clamp(0, of.many - 1) == outside[2].cpu()
        given[2] = torch.where(there.cuda(), outside[2], 0)
        (want,) = evaluate(fusion, [one.cpu() for one in given])
        known = replace(
            want,
            value=want.value[there],
            bound=want.bound[there],
            undecided=want.undecided[there],
        )
        assert compare([known], [out.cpu()[there]], exact=False).status is Status.PASS

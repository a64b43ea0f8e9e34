"""What is said of graphs and schedules is so, and what is drawn is near the targets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, seed, settings

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import ReductionParams
from fuzz.campaign.record import ENOUGH, Cell
from fuzz.cases.__main__ import draw
from fuzz.cases.case import Case, compiled, symbols
from fuzz.cases.features import (
    Coverage,
    cells,
    has_diamond,
    has_norm,
    legal,
    plan,
    scheduled,
)
from fuzz.cases.strategies import cases
from fuzz.kernels.matmul import MATMULS

WISHES = [
    ("reduced", "exp", "sum"), ("reduced", "where", "mean"), ("reduced", "eq", "prod"),
    ("pair", "reduction", "mma"), ("operation", "tan", "bf16"),
    *sorted(cell for cell in legal() if cell[0] == "computed"),
]  # fmt: skip
SHARED = ReductionParams((2, 64), 4, 2, None, "direct", "direct", splits=4, meet="tma")


def total(extent: int, params: ReductionParams = SHARED) -> Case:
    """Add up rows of so many elements."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.define_tensor(["i0", "i1"], "f32"), [1]))
    return Case(fd.fusion(), params, {"i0": 3, "i1": extent}, "integers", 0)


def test_ctas_share_a_tile_only_where_there_are_steps_for_several() -> None:
    """One step is for one CTA, however many are asked for; five are for four."""
    (alone,), (shared,) = plan(total(64)).kernels, plan(total(300)).kernels
    assert (alone.way, alone.sharing) == ("alone", 1)
    assert (shared.way, shared.sharing, shared.lengths) == ("tma", 4, ("tail", "tail"))


@pytest.mark.parametrize(
    ("name", "computed"),
    [
        ("computed_cooperative", "first"),
        ("computed_weights", "second"),
        ("computed_two_weights", "several"),
        ("cooperative_1_in_flight", ""),
    ],
)
def test_operands_in_registers_are_a_cell(name: str, computed: str) -> None:
    """By which of a product they are, or that a step has several."""
    made = MATMULS[name]
    fusion = made.fusion()
    extents = dict.fromkeys(symbols(fusion), 32)
    found = plan(Case(fusion, made.params, extents, "integers", 0))
    assert found.kernels[-1].computed == computed
    cell = ("computed", made.params.family, computed)
    assert (cell in scheduled(found)) == bool(computed)


@pytest.mark.parametrize(("depth", "told"), [(64, True), (63, False)])
def test_matrices_that_an_index_names_are_a_cell(depth: int, told: bool) -> None:
    """Where a kernel is told where they lie; not where they are copied first, as TMA cannot."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape, "bf16") for shape in (["t", "m", "k"], ["g", "n", "k"]))
    which = fd.define_tensor(["t"], "i32")
    fd.add_output(fd.ops.grouped_matmul(a, fd.ops.permute(b, [0, 2, 1]), which))
    params = MatmulParams((64, 32, 64), 1, "cooperative", 2, 1, persistent=False, columns=32)
    extents = {"t": 3, "m": 70, "k": depth, "g": 2, "n": 40}
    found = plan(Case(fd.fusion(), params, extents, "integers", 0))
    assert [kernel.indexed for kernel in found.kernels if kernel.kind == "product"] == [told]
    assert (("computed", "hopper-cooperative", "indexed") in scheduled(found)) == told
    assert ("computed", "hopper-cooperative", "indexed") in legal()


def test_diamonds_and_norms_are_told_from_chains() -> None:
    """Of a softmax's kind are those whose reduction comes back to what was reduced."""
    fd = FusionDefinition()
    x = fd.define_tensor(["i0", "i1"], "f32")
    fd.add_output(fd.ops.sum(fd.ops.neg(fd.ops.exp(x)), [1]))
    chain = fd.fusion()
    fd.add_output(fd.ops.softmax(x, [1]))
    both = fd.fusion()
    assert not has_diamond(chain)
    assert not has_norm(chain)
    assert has_diamond(both)
    assert has_norm(both)


def test_what_is_reduced_is_a_cell() -> None:
    """Through axes of extent 1, not through another operation, and not what merely moves."""
    fd = FusionDefinition()
    x = fd.define_tensor(["i0", "i1"], "f32")
    fd.add_output(fd.ops.sum(fd.ops.broadcast(fd.ops.exp(x), [False, True, False]), [2]))
    fd.add_output(fd.ops.max(fd.ops.neg(fd.ops.log(x)), [0]))
    fd.add_output(fd.ops.min(fd.ops.permute(fd.ops.sin(x), [1, 0]), [1]))
    case = replace(total(5), fusion=fd.fusion())
    found = {cell for cell in cells(case, plan(case)) if cell[0] == "reduced"}
    assert found == {("reduced", "exp", "sum"), ("reduced", "neg", "max")}
    assert ("reduced", "lt", "sum") in legal()
    assert not {("reduced", "lt", "mean"), ("reduced", "set", "sum")} & legal()


@pytest.mark.parametrize("wish", WISHES)
def test_a_cell_that_is_asked_for_is_drawn(wish: Cell) -> None:
    """One in two of those that are drawn is made for a wish."""
    drawn: list[Case] = []

    @seed(1)
    @settings(max_examples=12, database=None, deadline=None, phases=(Phase.generate,))
    @given(cases(wishes=(wish,)))
    def keep(case: Case) -> None:
        drawn.append(case)

    keep()
    assert any(wish in cells(case, plan(case)) for case in drawn)


def test_what_was_never_drawn_is_wished_for_first() -> None:
    """Alone while there is much of it; some times over where it is little, and others behind."""
    coverage = Coverage()
    asked = coverage.rarest(20, 3)
    assert len({*asked}) == 20
    coverage.counts.update(legal() - {asked[0]})
    again = coverage.rarest(20, 3)
    assert again[:4] == (asked[0],) * 4
    assert len({*again}) == 17


def test_shards_look_after_parts_of_the_table() -> None:
    """None in common, all together; and after the rest where a part has enough."""
    parts = [Coverage((n, 3)) for n in range(3)]
    asked = [{*part.rarest(len(legal()), 3)} for part in parts]
    assert sum(map(len, asked)) == len(legal())
    assert asked[0] | asked[1] | asked[2] == legal()
    for cell in asked[0]:
        parts[0].counts[cell] = ENOUGH
    assert {*parts[0].rarest(len(legal()), 3)} > asked[1]


def test_what_was_drawn_least_is_wished_for_first() -> None:
    """Whoever drew the others."""
    coverage = Coverage()
    rare = sorted(legal())[:20]
    for cell in legal():
        coverage.others[cell] = 2
    for cell in rare:
        coverage.counts[cell], coverage.others[cell] = 1, 0
    assert {*coverage.rarest(20, 3)} == {*rare}
    coverage.others.update(dict.fromkeys(legal(), ENOUGH - 2))
    assert coverage.wanting() == rare
    assert not coverage.missing()


def test_a_repeat_is_the_same_kernel_at_the_same_class_of_extents() -> None:
    """Other tails and other values are none; what is a part of a tile only is something else."""
    coverage = Coverage()
    assert not coverage.knows(total(300))
    assert coverage.knows(total(301 + 3))
    assert coverage.knows(replace(total(300), seed=7))
    assert not coverage.knows(total(64))
    assert coverage.repeats == 2
    assert cells(total(64), plan(total(64))) <= legal()


def test_what_nobody_judges_is_not_counted() -> None:
    """It is no repeat when it is drawn again; how long its kernels are is known."""
    coverage = Coverage()
    assert not coverage.knows(total(300))
    assert coverage.size == max(len(one.source) for one in compiled(total(300)).launches)
    assert {cell for cell, many in coverage.counts.items() if many} == coverage.latest
    coverage.forget()
    assert not any(coverage.counts.values())
    assert not coverage.knows(total(300))
    assert coverage.repeats == 0


def test_what_is_drawn_is_near_the_targets() -> None:
    """A small part of what `python -m fuzz.cases` prints; most of what is missing is rare."""
    found = draw(180, 7)
    assert found.share("diamond") >= 25
    assert found.share("norm") >= 20
    assert found.share("shares", "asks") >= 30
    assert not found.facts["repeat"]
    assert found.refusals.total() <= 1, found.refusals

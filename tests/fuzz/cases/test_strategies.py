"""The strategies draw valid things, all kinds of them, and shrink to what they promise."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, find, given, seed, settings
from hypothesis.strategies import DrawFn, SearchStrategy, composite, just
from sample import often

from fuser.arch import SM_90A
from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition, Ops, TensorView, to_python
from fuser.fusion.ops import OPS, Form
from fuser.runtime.binding import bind
from fuser.runtime.classify import classify
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams, ReductionParams
from fuzz.cases import strategies
from fuzz.cases.case import Case, compiled, specs
from fuzz.cases.draft import COMPOSED, INEXACT, Composed, Draft, compose, take_input
from fuzz.cases.features import legal, pairs
from fuzz.cases.fusions import fusions, paired_fusions, single_op_fusions
from fuzz.cases.norms import NORM_FAMILIES
from fuzz.cases.params import (
    FAMILIES,
    POINTWISE_FAMILIES,
    SCAN_FAMILIES,
    extents,
    layouts,
    params,
)
from fuzz.cases.schedules import MATMUL_FAMILIES
from fuzz.cases.strategies import (
    cases,
    default_cases,
    pointwise_cases,
    product_cases,
    row_cases,
)

QUIET = settings(database=None, phases=(Phase.generate, Phase.shrink), max_examples=300)
LEAST = """from fuser.fusion.definition import FusionDefinition

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0"], dtype="f32")
T1 = fd.ops.relu(T0)
fd.add_output(T1)
fusion = fd.fusion()
"""
PLAIN = PointwiseParams((1, 16), 1, 1, None, "direct", "direct")


def test_a_refused_case_is_drawn_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever judges it says so; it once ended its driver: TMA takes no maximum beside a sum."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["i0", "i1"], dtype="f32")
    rows = fd.ops.broadcast(fd.ops.sum(x, dims=[1]), is_broadcast_dim=[False, True])
    total = fd.ops.sum(x, dims=[0])
    total.request_serial_grid_reduction(method="tma")
    for out in (fd.ops.sub(x, rows), total, fd.ops.max(x, dims=[0])):
        fd.add_output(out)
    monkeypatch.setattr(strategies, "norm_fusions", lambda **_: just(fd.fusion()))
    refused = []

    @settings(QUIET, max_examples=60)
    @seed(3)
    @given(row_cases(families=("norm-bulk/direct",)))
    def keep(case: Case) -> None:
        try:
            classify(case.fusion, case.params, specs(case))
        except ScheduleError:
            refused.append(case)

    keep()
    assert refused


@pytest.mark.parametrize("strategy", [fusions(), single_op_fusions()])
def test_fusions_shrink_to_one_relu(strategy: SearchStrategy[Fusion]) -> None:
    """The least fusion is the one that the docstrings promise."""
    least = find(strategy, lambda _: True, settings=QUIET, random=Random(1))
    assert to_python(least) == LEAST


def test_params_shrink_to_the_plainest_schedule() -> None:
    """A failure that needs no ring must be shown without one."""
    fusion = find(fusions(), lambda _: True, settings=QUIET, random=Random(1))
    assert find(params(fusion), lambda _: True, settings=QUIET, random=Random(1)) == PLAIN


def test_extents_and_layouts_shrink_to_one_element_without_gaps() -> None:
    """The smallest tensors make the shortest traces."""
    fusion = find(fusions(), lambda _: True, settings=QUIET, random=Random(1))
    assert find(extents(fusion, PLAIN), lambda _: True, settings=QUIET, random=Random(1)) == {
        "i0": 1
    }
    assert find(layouts(), lambda _: True, settings=QUIET, random=Random(1)) == (0, 0)


def test_cases_shrink_to_one_relu_of_one_element() -> None:
    """All parts shrink together as each does alone."""
    least = find(cases(), lambda _: True, settings=QUIET, random=Random(1))
    assert to_python(least.fusion) == LEAST
    assert (least.params, least.extents) == (PLAIN, {"i0": 1})
    assert (least.kind, least.seed, least.gap, least.offset) == ("integers", 0, 0, 0)


def test_a_failure_keeps_only_what_it_needs() -> None:
    """Shrinking must drop everything but the operation that matters: one of no composition."""
    least = find(
        fusions(),
        lambda f: any(tv.op == "minimum" for tv in f.tensors),
        settings=QUIET,
        random=Random(5),
    )
    assert [tv.op for tv in least.tensors] == ["input", "minimum"]


@pytest.mark.parametrize(
    "families", [POINTWISE_FAMILIES, MATMUL_FAMILIES, NORM_FAMILIES, SCAN_FAMILIES]
)
def test_nearly_all_cases_are_valid(families: tuple[str, ...]) -> None:
    """A refused case judges nothing; below 95 % the strategy is the bug."""
    counts: Counter[str] = Counter()
    # mbarriers are one in thirty
    most = often(400, {SCAN_FAMILIES: 64, POINTWISE_FAMILIES: 400}.get(families, 128))

    @seed(1)
    @settings(database=None, phases=(Phase.generate,), max_examples=most, deadline=None)
    @given(cases(families=families))
    def draw(case: Case) -> None:
        try:
            program = compiled(case)
            bind(program, specs(case), sms=2)
        except (FusionError, ScheduleError) as error:
            counts[str(error)] += 1
        else:
            counts["valid"] += 1
            assert all(x.kernel.smem_bytes <= SM_90A.smem_bytes for x in program.launches)
        counts[case.params.family] += 1

    draw()
    assert counts["valid"] >= 0.95 * most, counts
    rare = "cp_async" if families == SCAN_FAMILIES else None  # has a test of its own
    assert all(counts[family] for family in families if not rare or rare not in family), counts


@pytest.mark.parametrize("family", SCAN_FAMILIES)
def test_each_family_of_scans_is_drawn_where_it_is_asked_for(family: str) -> None:
    """Engines that cannot move a tensor leave it to direct loads."""
    found: set[str] = set()

    @seed(1)
    @settings(database=None, phases=(Phase.generate,), max_examples=16, deadline=None)
    @given(cases(families=(family,)))
    def draw(case: Case) -> None:
        found.add(case.params.family)

    draw()
    assert family in found


def test_half_of_the_cases_have_products() -> None:
    """Neither kind may crowd out the other; and each can be drawn alone."""
    counts: Counter[bool] = Counter()

    @seed(3)
    @settings(database=None, phases=(Phase.generate,), max_examples=180, deadline=None)
    @given(cases(), pointwise_cases(), product_cases())
    def draw(either: Case, pointwise: Case, product: Case) -> None:
        def multiplies(case: Case) -> bool:
            return any(tv.op == "mma" for tv in case.fusion.tensors)

        counts[multiplies(either)] += 1
        assert not multiplies(pointwise)
        assert multiplies(product)
        assert {case.params.family for case in (either, pointwise, product)} <= set(FAMILIES)

    draw()
    assert min(counts[True], counts[False]) >= 30, counts


def test_many_inputs_and_many_products_are_drawn() -> None:
    """Of 20 tensors, or 17 products, none was, and several were refused by default."""
    inputs, products = Counter[bool](), Counter[bool]()

    @seed(7)
    @settings(database=None, phases=(Phase.generate,), max_examples=400, deadline=None)
    @given(cases())
    def draw(case: Case) -> None:
        inputs[len(case.fusion.inputs) > 10] += 1
        products[sum(tv.op == "mma" for tv in case.fusion.tensors) > 5] += 1

    draw()
    assert inputs[True] >= 4, inputs
    assert products[True] >= 2, products


@pytest.mark.parametrize("name", sorted(op for op in OPS if OPS[op].pointwise))
def test_every_operation_can_be_drawn_alone(name: str) -> None:
    """An operation that no strategy reaches is never tested."""
    drawn = find(single_op_fusions(op=name), lambda _: True, settings=QUIET, random=Random(1))
    assert name in {tv.op for tv in drawn.tensors}


PAIRS = sorted(cell for cell in legal() if cell[0] == "pair")


@pytest.mark.parametrize("cell", PAIRS, ids=" ".join)
def test_every_pair_of_forms_can_be_drawn(cell: tuple[str, str, str]) -> None:
    """Sixteen of them were in none of 2,000 draws: gathers and views of most things."""
    first, second = (None if n in ("input", "output") else Form(n) for n in cell[1:])
    drawn = find(
        paired_fusions([(first, second)], exact=True),
        lambda _: True, settings=QUIET, random=Random(1),
    )  # fmt: skip
    assert cell in pairs(drawn)


@composite
def composed(draw: DrawFn) -> TensorView:
    """Draw a composition of one input."""
    draft = Draft(FusionDefinition(), frozenset(), ["i0", "i1"], exact=False)
    return compose(draw, draft, take_input(draw, draft))


def test_every_composition_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each records operations that a user would not think of beside each other."""
    counts: Counter[str] = Counter()

    def counted(name: str, one: Composed) -> Composed:
        def of(ops: Ops, x: TensorView, axes: list[int]) -> TensorView:
            counts[name] += 1
            return one.of(ops, x, axes)

        return replace(one, of=of)

    for name, one in list(COMPOSED.items()):
        monkeypatch.setitem(COMPOSED, name, counted(name, one))

    @seed(2)
    @settings(database=None, phases=(Phase.generate,), max_examples=900, deadline=None)
    @given(composed())
    def draw(made: TensorView) -> None:
        assert made.rank == 2

    draw()
    assert set(counts) == set(COMPOSED), counts


def test_every_shape_operation_is_drawn() -> None:
    """Views are where indexing goes wrong."""
    counts: Counter[str] = Counter()

    @seed(2)
    @settings(database=None, phases=(Phase.generate,), max_examples=often(1500, 900), deadline=None)
    @given(fusions())
    def draw(fusion: Fusion) -> None:
        counts.update({tv.op for tv in fusion.tensors})

    draw()
    views = [
        op
        for op, spec in OPS.items()
        if spec.form in (Form.SHAPE, Form.VIEW, Form.GATHER, Form.FACTORY)
    ]
    rare = [op for op in views if counts[op] < 2]
    assert not rare, counts
    assert len(counts) >= 50, counts


@given(fusions(exact=True))
@settings(max_examples=60, deadline=None)
def test_exact_fusions_have_only_exact_operations(fusion: Fusion) -> None:
    """Equality with the reference is demanded of them."""
    assert not {tv.op for tv in fusion.tensors} & INEXACT


def test_heuristics_choose_the_schedules_of_default_cases() -> None:
    """Params are of the other kind; some results are asked to be shared, and some are."""
    drawn: list[Case] = []

    @seed(1)
    @settings(database=None, phases=(Phase.generate,), max_examples=90, deadline=None)
    @given(default_cases())
    def draw(case: Case) -> None:
        drawn.append(case)

    draw()
    shared = refused = 0
    for case in drawn:
        products = any(tv.op == "mma" for tv in case.fusion.tensors)
        assert isinstance(case.params, PointwiseParams if products else MatmulParams)
        try:
            made = classify(case.fusion, case.params, specs(case)).schedules
        except ScheduleError:
            refused += 1
            continue
        shared += any(not isinstance(p, PointwiseParams) and p.splits > 1 for p in made)
        shared += any(isinstance(p, ReductionParams) and p.splits > 1 for p in made)
    assert shared > 3
    assert refused <= 0.05 * len(drawn)
    assert any(tv.meet for case in drawn for tv in case.fusion.tensors)


def test_some_reductions_are_shared() -> None:
    """By up to 16 CTAs, never by persistent ones."""
    fd, found = FusionDefinition(), list[ReductionParams]()
    fd.add_output(fd.ops.sum(fd.define_tensor(shape=["i0", "i1"], dtype="f32"), dims=[1]))

    @seed(3)
    @settings(database=None, phases=(Phase.generate,), max_examples=300, deadline=None)
    @given(params(fd.fusion()))
    def draw(drawn: PointwiseParams) -> None:
        if isinstance(drawn, ReductionParams):
            found.append(drawn)

    draw()
    assert len({one.splits for one in found}) >= 3
    assert {one.load for one in found} == {"direct", "tma", "cp_async"}
    assert {one.meet for one in found} == {"vectorized", "tma", "last"}

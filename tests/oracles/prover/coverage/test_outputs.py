"""Coverage: every output element once, nothing out of bounds, every access aligned."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest

from fuser.cookbook.recipes import persistent
from fuser.dtype import DType
from fuser.expr import Expr, Kind, Var, ceildiv, eq, fold, minimum
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import Product, digit, poly, product
from oracles.prover.coverage.outputs import covered
from oracles.prover.prove import prove
from oracles.prover.solver import Question
from oracles.verdict import Status, Verdict

A, B, C, P, Q = Var("A"), Var("B"), Var("C"), Var("p"), Var("q")
TILE = Var("tile")
Place = tuple[Expr, ...]


def div(a: Expr, b: Expr) -> Expr:
    """A // b."""
    return fold(Kind.FLOORDIV, a, b)


def mod(a: Expr, b: Expr) -> Expr:
    """A % b."""
    return fold(Kind.MOD, a, b)


def kinds(verdict: Verdict) -> set[str]:
    """Kinds of the errors."""
    return {f.kind for f in verdict.findings if f.severity == "error"}


def moved(
    kernel: kir.Kernel, *, origin: Place | None = None, limit: Place | None = None
) -> kir.Kernel:
    """Return the kernel with the box of its store to global memory changed."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Store(kir.Box() as box, src, width):
                new = replace(
                    box,
                    origin=box.origin if origin is None else origin,
                    limit=box.limit if limit is None else limit,
                )
                return [kir.Store(new, src, width)]
            case _:
                return None

    return kernel.rewrite(rule)


NUMBER: Expr = kir.BLOCK + ks.K * kir.GRID
WIDE = ceildiv(ks.C, ks.COLS)
DENSE: Expr = kir.BLOCK + ks.K
ROW, COL = div(NUMBER, WIDE), mod(NUMBER, WIDE)


@pytest.mark.parametrize(
    ("origin", "limit"),
    [
        ((ROW * ks.ROWS + ks.ROWS, COL * ks.COLS), None),
        ((ROW * ks.ROWS * 2, COL * ks.COLS), None),
        ((ROW * ks.ROWS, ROW * ks.COLS), None),
        ((COL * ks.ROWS, ROW * ks.COLS), None),
        ((div(DENSE, WIDE) * ks.ROWS, mod(DENSE, WIDE) * ks.COLS), None),
        ((div(NUMBER + 1, WIDE) * ks.ROWS, mod(NUMBER + 1, WIDE) * ks.COLS), None),
        (None, (ks.R - 1, ks.C)),
        (None, (ks.R + 1, ks.C)),
        (None, (ks.C, ks.R)),
        ((0, 0), None),
    ],
)
def test_boxes_that_are_no_partition_are_refuted(origin: Place | None, limit: Place | None) -> None:
    """A tile off by one, a stride forgotten, a limit that is not the extent."""
    verdict = prove(moved(ks.direct(), origin=origin, limit=limit))
    assert verdict.status is Status.FAIL, verdict
    assert kinds(verdict) <= {"coverage", "bounds"}
    assert all("trips=" in f.witness or "every launch" in f.witness for f in verdict.findings)


def test_a_column_major_walk_is_a_partition_too() -> None:
    """Which digit is which axis does not matter, as long as the weights chain."""
    tall = ceildiv(ks.R, ks.ROWS)
    origin = (mod(NUMBER, tall) * ks.ROWS, div(NUMBER, tall) * ks.COLS)
    assert prove(moved(ks.direct(), origin=origin)).status is Status.PASS


def deep(order: tuple[int, int, int] = (0, 1, 2), *, trips: Expr | None = None) -> kir.Kernel:
    """Copy a 3-D tensor, boxes of one row's depth; `order` says which axis is which digit."""
    src = kir.Tensor("T0", DType.F32, (A, B, C), (P, Q, 1), 4)
    dst = kir.Tensor("T1", DType.F32, (A, B, C), (P, Q, 1), 4)
    sizes = (A, ceildiv(B, ks.ROWS), ceildiv(C, ks.COLS))
    rest: Expr = TILE
    digits: list[Expr] = [0, 0, 0]
    for axis in (2, 1):
        digits[axis] = mod(rest, sizes[axis])
        rest = div(rest, sizes[axis])
    digits[0] = rest
    digits = [digits[i] for i in order]
    shape = (1, ks.ROWS, ks.COLS)
    origin = tuple(d * n for d, n in zip(digits, shape, strict=True))
    layout = kir.Layout(shape, 4, 128)
    x = kir.Fragment("x", DType.F32, layout)
    number = kir.BLOCK + ks.K * kir.GRID
    total = sizes[0] * sizes[1] * sizes[2]
    stop = ceildiv(total - kir.BLOCK, kir.GRID) if trips is None else trips
    body: tuple[kir.Stmt, ...] = (
        kir.Let(TILE, number),
        kir.Load(x, kir.Box(src, origin, shape, (A, B, C)), 4),
        kir.Store(kir.Box(dst, origin, shape, (A, B, C)), x, 4),
    )
    return kir.Kernel(
        name="deep",
        params=(A, B, C, P, Q),
        tensors=(src, dst),
        scalars=(),
        buffers=(),
        barriers=(),
        threads=128,
        body=(kir.Let(ks.TRIPS, stop), kir.ForLoop(ks.K, ks.TRIPS, body)),
        outputs=("T1",),
    )


def test_three_axes_are_covered() -> None:
    """Nested digits of a tile number, for all extents and every grid."""
    verdict = prove(deep())
    assert verdict.status is Status.PASS, verdict


def each_row(extents: Place, more: int = 1, *, trips: Expr | None = None) -> kir.Kernel:
    """Copy rows of a tensor one by one; a load's box ends so many rows behind its first."""
    strides = tuple(Var(f"s{axis}") for axis in range(len(extents) - 1))
    src, dst = (
        kir.Tensor(name, DType.F32, extents, (*strides, 1), 4, kept=False) for name in ("T0", "T1")
    )
    total: Expr = 1
    digits: list[Expr] = []
    rest: Expr = TILE
    for extent in extents[-2:0:-1]:
        digits.insert(0, mod(rest, extent))
        rest, total = div(rest, extent), total * extent
    digits.insert(0, rest)
    total = total * extents[0]
    shape = (*(1 for _ in digits), 512)
    ends = (*(digit + more for digit in digits), extents[-1])
    x = kir.Fragment("x", DType.F32, kir.Layout(shape, 4, 128))
    stop = ceildiv(total - kir.BLOCK, kir.GRID) if trips is None else trips
    body: tuple[kir.Stmt, ...] = (
        kir.Let(TILE, kir.BLOCK + ks.K * kir.GRID),
        kir.Load(x, kir.Box(src, (*digits, 0), shape, ends), 4),
        kir.Store(kir.Box(dst, (*digits, 0), shape, extents), x, 4),
    )
    return kir.Kernel(
        name="each_row",
        params=(*(e for e in extents if isinstance(e, Var)), *strides),
        tensors=(src, dst),
        scalars=(),
        buffers=(),
        barriers=(),
        threads=128,
        body=(kir.Let(ks.TRIPS, stop), kir.ForLoop(ks.K, ks.TRIPS, body)),
        outputs=("T1",),
        requires=(extents[-1] <= 512,),
    )


@pytest.mark.parametrize("axes", [(A, B), (A, B, C), (A, B, C, P), (A, 3, C, P)], ids=len)
def test_a_box_ends_behind_the_row_that_it_is_of(axes: Place) -> None:
    """Numbers of rows are quotients and remainders of one that is below the number of all rows."""
    assert prove(each_row(axes)).status is Status.PASS
    assert prove(each_row(axes, 2)).status is not Status.PASS
    every = ceildiv(A * B * C, kir.GRID)
    assert prove(each_row(axes, trips=every)).status is not Status.PASS


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
def test_swapped_digits_are_refuted(order: tuple[int, int, int]) -> None:
    """The sizes of the digits belong to their axes."""
    assert kinds(prove(deep(order))) <= {"coverage", "bounds"}
    assert prove(deep(order)).status is Status.FAIL


@pytest.mark.parametrize("trips", [ceildiv(A * B - kir.BLOCK, kir.GRID), A * B * C, Var("A")])
def test_a_trip_count_of_other_tiles_is_not_proved(trips: Expr) -> None:
    """The loop must run once per tile of the output, no more and no less."""
    assert prove(deep(trips=trips)).status is not Status.PASS


@pytest.mark.parametrize("guard", [fold(Kind.LT, ks.K + 1, ks.TRIPS), fold(Kind.LT, 1 - ks.K, 1)])
def test_a_store_that_skips_a_tile_is_refuted(guard: Expr) -> None:
    """The first and the last iteration are where guards go wrong."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [kir.IfThenElse(guard, (stmt,))] if isinstance(stmt, kir.Store) else None

    verdict = prove(ks.direct().rewrite(rule))
    assert verdict.status is Status.FAIL
    assert kinds(verdict) == {"coverage"}


def test_a_tile_stored_twice_is_refuted() -> None:
    """Exactly once: two stores of one box are a write too many."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Store(dst, src, width):
                return [stmt, kir.Store(dst, src, width)]
            case _:
                return None

    assert kinds(prove(ks.direct().rewrite(rule))) == {"coverage"}


def test_an_input_limit_may_be_smaller_but_not_larger() -> None:
    """What a tile may read is the tensor; z3 settles what is no equality."""

    def rule(limit: tuple[Expr, ...]) -> kir.Kernel:
        def swap(stmt: kir.Stmt) -> list[kir.Stmt] | None:
            match stmt:
                case kir.Load(dst, kir.Box() as box, _):
                    return [kir.Load(dst, replace(box, limit=limit), 1)]
                case _:
                    return None

        return ks.direct().rewrite(swap)

    assert prove(rule((minimum(ks.R, 7), ks.C))).status is Status.PASS
    assert kinds(prove(rule((ks.R + 4, ks.C)))) == {"bounds"}


def test_width_needs_alignment() -> None:
    """A vector access needs its address, its origin and its row to be multiples of it."""
    loose = replace(ks.T1, aligned=2)

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Store(kir.Box() as box, src, width):
                return [kir.Store(replace(box, tensor=loose), src, width)]
            case _:
                return None

    kernel = replace(ks.direct().rewrite(rule), tensors=(ks.T0, loose))
    assert kinds(prove(kernel)) == {"bounds"}


def test_a_layout_dealt_to_absent_threads_leaves_holes() -> None:
    """Elements held by threads that do not execute the store are never written."""
    assert kinds(prove(replace(ks.direct(), threads=64))) == {"coverage"}
    body = tuple(
        kir.ForLoop(s.index, s.stop, (kir.Elect(kir.Per.WARP, s.body),))
        if isinstance(s, kir.ForLoop)
        else s
        for s in ks.direct().body
    )
    assert kinds(prove(replace(ks.direct(), body=body))) == {"coverage"}


def test_a_fragment_is_written_before_it_is_read() -> None:
    """Registers have no sync, but they have an order."""
    loop = kir.ForLoop(ks.K, ks.TRIPS, (ks.add(), kir.Store(ks.box(ks.T1), ks.Y, 4)))
    assert "RAW" in kinds(prove(ks.kernel("unset", [loop])))


def test_digits_are_read_through_any_nesting() -> None:
    """T // (n*m), (t // m) % n and (t % (n*m)) // m are digits of one system."""
    t, n, m = Var("t"), Var("n"), Var("m")
    middle = digit(poly(mod(t // m, n)))
    assert middle == digit(poly(div(t % (n * m), m)))
    assert middle is not None
    assert (middle.weight, middle.size) == (product(poly(m)), product(poly(n)))
    assert digit(poly(div(t // m, n))) == digit(poly(t // (m * n)))
    assert digit(poly(t)) is not None
    assert product(poly(n * 6 * m)) == product(poly(m * n * 6))
    assert Product(6).over(Product(4)) is None


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (fold(Kind.LE, minimum(A, B), A), True),
        (A <= A + B, True),
        (A <= B, False),
        (fold(Kind.LE, div(A, 4) * 4, A), True),
        (fold(Kind.LE, A % 4, 2), False),
        (fold(Kind.LE, A % 4, 3), True),
        (fold(Kind.LE, A * B, A), False),
    ],
)
def test_z3_answers_only_what_follows(condition: Expr, *, holds: bool) -> None:
    """A weak model may leave a truth open; it must never prove a falsehood."""
    assert Question(100_000).follows(condition) is holds


# --- who holds which element: the threads that execute a store are those its layout deals to ------


RLIMIT = 500_000


def kernel(body: tuple[kir.Stmt, ...], tensor: kir.Tensor, threads: int) -> kir.Kernel:
    """A kernel of one CTA that writes one tensor."""
    one = (eq(kir.GRID, 1),)
    return kir.Kernel("k", (), (tensor,), (), (), (), threads, body, ("Y",), requires=one)


@pytest.mark.parametrize(
    ("threads", "deal", "per", "says"),
    [
        (32, kir.Deal.ROUND, None, ""),
        (64, kir.Deal.ROUND, None, "dealt to 64 threads, 32 execute this"),
        (16, kir.Deal.ROUND, None, "32 threads execute this"),
        (1, kir.Deal.ROUND, kir.Per.ROLE, ""),
        (1, kir.Deal.ROUND, None, "32 threads execute this"),
        (32, kir.Deal.ROUND, kir.Per.ROLE, "dealt to 32 threads, 1 execute this"),
        (64, kir.Deal.EACH_WARP, None, "each of 2 warps holds all"),
    ],
)
def test_each_element_has_one_thread(
    threads: int, deal: kir.Deal, per: kir.Per | None, says: str
) -> None:
    """The layout deals to the threads that execute the store: no fewer, no more."""
    layout = kir.Layout((8, 64), 2, threads, deal)
    value = kir.Fragment("w", DType.F32, layout)
    y = kir.Tensor("Y", DType.F32, (8, 64), (64, 1), 4)
    write: tuple[kir.Stmt, ...] = (
        kir.Compute(value, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.Store(kir.Box(y, (0, 0), (8, 64), (8, 64)), value, 2),
    )
    body = write if per is None else (kir.Elect(per, write),)
    many = 64 if deal is kir.Deal.EACH_WARP else 32
    answer = covered(kernel(body, y, many), rlimit=RLIMIT)
    found = [f.witness for f in answer.findings if f.where.endswith("store(w, width=2)")]
    assert (says in found[0]) if says else not found


def test_a_bulk_store_by_many_threads_is_a_finding() -> None:
    """Each thread would store the box."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        elects = isinstance(stmt, kir.Elect) and isinstance(stmt.body[0], kir.TmaStore)
        return list(stmt.body) if isinstance(stmt, kir.Elect) and elects else None

    found = covered(persistent().rewrite(rule), rlimit=RLIMIT).findings
    assert any("128 threads each issue this copy" in f.witness for f in found)


WIDE_ACC = kir.Fragment("acc", DType.F32, kir.Layout((64, 32), 2, 128, kir.Deal.STRIPS))


def part(columns: int, rows: int = 64, deal: kir.Deal = kir.Deal.STRIPS) -> kir.Fragment:
    """Return a fragment that columns of `WIDE` may go to."""
    return kir.Fragment("part", DType.F32, kir.Layout((rows, columns), 2, 128, deal))


@pytest.mark.parametrize(
    ("dst", "column", "says"),
    [
        (part(8), 24, ""),
        (part(32), 0, ""),
        (part(8), 25, "values would move"),
        (part(8), 4, "values would move"),
        (part(16), 24, "columns 24..40 of 32"),
        (part(8), -8, "columns -8..0 of 32"),
        (part(8, rows=128), 0, "values would move"),
        (part(8, deal=kir.Deal.ROUND), 0, "registers of Layout(shape=(64, 32)"),
    ],
)
def test_a_slice_takes_what_each_lane_holds(dst: kir.Fragment, column: int, says: str) -> None:
    """Columns in steps of 8, of the same rows, inside."""
    y = kir.Tensor("Y", DType.F32, (64, 32), (32, 1), 4)
    body: tuple[kir.Stmt, ...] = (
        kir.Compute(WIDE_ACC, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.Slice(dst, WIDE_ACC, column),
        kir.Store(kir.Box(y, (0, 0), (64, 32), (64, 32)), WIDE_ACC, 2),
    )
    found = [f.witness for f in covered(kernel(body, y, 128), rlimit=RLIMIT).findings]
    assert any(says in one for one in found) if says else not found


@pytest.mark.parametrize(
    ("shape", "vector", "threads", "fits"),
    [
        ((64, 16), 1, 128, True),
        ((64, 16), 2, 128, False),
        ((64, 32), 1, 128, False),
        ((128, 16), 1, 128, False),
        ((64, 16), 1, 64, False),
    ],
)
def test_bytes_are_unpacked_where_a_lane_has_them(
    shape: tuple[int, int], vector: int, threads: int, fits: bool
) -> None:
    """Two numbers of each, in rows of as many threads."""
    bytes_ = kir.Fragment("bytes", DType.I8, kir.Layout(shape, vector, threads, kir.Deal.STRIPS))
    numbers = replace(WIDE_ACC, dtype=DType.I32)
    y = kir.Tensor("Y", DType.I32, (64, 32), (32, 1), 4)
    body: tuple[kir.Stmt, ...] = (
        kir.Compute(bytes_, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.Unpack(numbers, bytes_),
        kir.Store(kir.Box(y, (0, 0), (64, 32), (64, 32)), numbers, 2),
    )
    found = [f.witness for f in covered(kernel(body, y, 128), rlimit=RLIMIT).findings]
    assert any("are not those of" in one for one in found) != fits


def test_a_slice_of_nothing_is_a_finding() -> None:
    """Its source has to have a value."""
    y = kir.Tensor("Y", DType.F32, (64, 32), (32, 1), 4)
    body = (
        kir.Slice(part(32), WIDE_ACC, 0),
        kir.Store(kir.Box(y, (0, 0), (64, 32), (64, 32)), part(32), 2),
    )
    findings = covered(kernel(body, y, 128), rlimit=RLIMIT).findings
    assert ["acc has no value yet" in f.witness for f in findings] == [True]


@pytest.mark.parametrize(
    ("a", "b", "turned", "fits"),
    [
        ((64, 16), (32, 16), (False, False), True),
        ((16, 64), (32, 16), (True, False), True),
        ((64, 16), (16, 32), (False, True), True),
        ((1, 16, 64), (1, 32, 16), (True, False), True),
        ((16, 64), (32, 16), (False, False), False),
        ((64, 16), (32, 16), (True, False), False),
        ((64, 16), (32, 32), (False, False), False),
        ((2, 64, 16), (32, 16), (False, False), False),
    ],
)
def test_operands_make_their_result(
    a: tuple[int, ...], b: tuple[int, ...], turned: tuple[bool, bool], *, fits: bool
) -> None:
    """(M, K) and (N, K), each the other way around where it says so; leading ones do not count."""
    first = kir.Buffer("SA", DType.BF16, a, 1, 0)
    second = kir.Buffer("SB", DType.BF16, b, 1, first.end)
    y = kir.Tensor("Y", DType.F32, (64, 32), (32, 1), 4)
    a_turned, b_turned = turned
    body = (
        kir.Wgmma(WIDE_ACC, kir.Slot(first, 0), kir.Slot(second, 0), 0, b_turned, a_turned),
        kir.Store(kir.Box(y, (0, 0), (64, 32), (64, 32)), WIDE_ACC, 2),
    )
    findings = covered(kernel(body, y, 128), rlimit=RLIMIT).findings
    assert [f.kind for f in findings] == ([] if fits else ["bounds"])


@pytest.mark.parametrize(("swizzle", "offset", "fits"), [(0, 128, True), (32, 128, False)])
def test_a_swizzled_slot_starts_where_its_pattern_does(
    swizzle: int, offset: int, *, fits: bool
) -> None:
    """The engine swizzles by address: eight rows are one turn."""
    buffer = kir.Buffer("S", DType.F32, (8, 8), 1, offset, swizzle)
    y = kir.Tensor("Y", DType.F32, (8, 8), (8, 1), 4)
    copy = kir.TmaStore(kir.Box(y, (0, 0), (8, 8), y.extents), kir.Slot(buffer, 0))
    findings = covered(kernel((kir.Elect(kir.Per.ROLE, (copy,)),), y, 32), rlimit=RLIMIT).findings
    assert [f.kind for f in findings] == ([] if fits else ["bounds"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        ({"offset": 2560}, "SC begins 256 bytes behind the slot before it"),
        ({"offset": 2176, "pitch": 0}, "SC and SB differ in kind"),
        ({"dtype": DType.F16}, "SC and SB differ in kind"),
        ({"shape": (16, 16)}, "operands of (64, 16) and (24, 16)"),
        ({"shape": (8, 32)}, "operands of (64, 16) and ()"),
    ],
)
def test_columns_of_several_buffers_lie_behind_each_other(
    change: dict[str, object], says: str
) -> None:
    """Slots of one number are one operand."""
    first = kir.Buffer("SA", DType.BF16, (64, 16), 2, 4096, 32)
    second = kir.Buffer("SB", DType.BF16, (8, 16), 2, 2048, 32, 512)
    third = replace(second, name="SC", offset=2304)
    third = replace(third, **change)  # type: ignore[arg-type]
    acc = part(16)
    y = kir.Tensor("Y", DType.F32, (64, 16), (16, 1), 4)
    body = (
        kir.Wgmma(acc, kir.Slot(first, 0), kir.Slot(second, 0), 0, beside=(third,)),
        kir.Store(kir.Box(y, (0, 0), (64, 16), (64, 16)), acc, 2),
    )
    findings = covered(kernel(body, y, 128), rlimit=RLIMIT).findings
    assert (says in findings[0].witness) if says else not findings


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (4096, 2048, ""),
        (4112, 2048, "a slot starts at byte 4112, no multiple of 256"),
        (4096, 2064, "a slot starts at byte 2064, no multiple of 256"),
    ],
)
def test_an_operand_of_a_product_starts_where_its_pattern_does(
    first: int, second: int, says: str
) -> None:
    """Whoever fills it: cp.async has no rule of its own, and hid this from the prover once."""
    left = kir.Buffer("SA", DType.BF16, (64, 16), 1, first, 32)
    right = kir.Buffer("SB", DType.BF16, (8, 16), 1, second, 32)
    acc = part(8)
    y = kir.Tensor("Y", DType.F32, (64, 8), (8, 1), 4)
    body = (
        kir.Wgmma(acc, kir.Slot(left, 0), kir.Slot(right, 0), 0),
        kir.Store(kir.Box(y, (0, 0), (64, 8), (64, 8)), acc, 2),
    )
    findings = covered(kernel(body, y, 128), rlimit=RLIMIT).findings
    assert (says in findings[0].witness) if says else not findings


def test_columns_of_several_buffers_are_one_panel_wide() -> None:
    """Rows of two panels lie behind the rows of the other buffer."""
    first = kir.Buffer("SA", DType.BF16, (64, 32), 1, 0, 64)
    second = kir.Buffer("SB", DType.BF16, (8, 32), 1, first.end, 32)
    third = replace(second, name="SC", offset=second.end)
    y = kir.Tensor("Y", DType.F32, (64, 16), (16, 1), 4)
    body = (
        kir.Wgmma(part(16), kir.Slot(first, 0), kir.Slot(second, 0), 0, beside=(third,)),
        kir.Store(kir.Box(y, (0, 0), (64, 16), (64, 16)), part(16), 2),
    )
    findings = covered(kernel(body, y, 128), rlimit=RLIMIT).findings
    assert any(f.witness.endswith("rows of 64 bytes, a panel is narrower") for f in findings)


@pytest.mark.parametrize("filled", [0, ks.K % 2])
@pytest.mark.parametrize("read", [0, 1, ks.K % 2])
@pytest.mark.parametrize("by_view", [True, False])
def test_a_slot_that_is_filled_and_never_read_is_worth_a_warning(
    filled: Expr, read: Expr, by_view: bool
) -> None:
    """Whatever the name of the buffer by which it is read; a warning does not refute."""
    tile = kir.Fragment("x", DType.F32, kir.Layout((4, 32), 4, 32))
    x, y = (kir.Tensor(name, DType.F32, (4, 32), (32, 1), 4) for name in "XY")
    whole = kir.Buffer("S", DType.F32, (4, 32), 2, 0)
    view = kir.Buffer("V", DType.F32, (4, 32), 2, 0) if by_view else whole
    box = kir.Box(x, (0, 0), (4, 32), (4, 32))
    body = (
        kir.CpAsync(kir.Slot(whole, filled), box, tile.layout, 4),
        kir.Load(tile, kir.Slot(view, read), 4),
        kir.Store(kir.Box(y, (0, 0), (4, 32), (4, 32)), tile, 4),
    )
    loop = kir.IfThenElse(kir.BLOCK < 1, (kir.ForLoop(ks.K, 1, body),))
    buffers = tuple(dict.fromkeys((whole, view)))
    grid = (eq(kir.GRID, 1),)
    kernel = kir.Kernel("k", (), (x, y), (), buffers, (), 32, (loop,), ("Y",), requires=grid)
    filled_slots, read_slots = ({at} if isinstance(at, int) else {0, 1} for at in (filled, read))
    unread = filled_slots - read_slots
    found = covered(kernel, rlimit=1_000_000).findings
    assert [(f.kind, f.severity) for f in found] == [("unread", "warning")] * bool(unread)

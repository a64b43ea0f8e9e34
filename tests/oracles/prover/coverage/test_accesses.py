"""Who holds which element: the threads that execute a store are those its layout deals to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.cookbook.recipes import persistent
from fuser.dtype import DType
from fuser.expr import eq
from fuser.kernel import ir as kir
from oracles.prover.coverage.outputs import covered

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


WIDE = kir.Fragment("acc", DType.F32, kir.Layout((64, 32), 2, 128, kir.Deal.STRIPS))


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
        kir.Compute(WIDE, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.Slice(dst, WIDE, column),
        kir.Store(kir.Box(y, (0, 0), (64, 32), (64, 32)), WIDE, 2),
    )
    found = [f.witness for f in covered(kernel(body, y, 128), rlimit=RLIMIT).findings]
    assert any(says in one for one in found) if says else not found


def test_a_slice_of_nothing_is_a_finding() -> None:
    """Its source has to have a value."""
    y = kir.Tensor("Y", DType.F32, (64, 32), (32, 1), 4)
    body = (
        kir.Slice(part(32), WIDE, 0),
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
        kir.Wgmma(WIDE, kir.Slot(first, 0), kir.Slot(second, 0), 0, b_turned, a_turned),
        kir.Store(kir.Box(y, (0, 0), (64, 32), (64, 32)), WIDE, 2),
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

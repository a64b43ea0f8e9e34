"""Who holds which element: the threads that execute a store are those its layout deals to."""

from __future__ import annotations

import pytest

from fuser import kernel_ir as kir
from fuser.cookbook import persistent
from fuser.dtype import DType
from fuser.expr import eq
from oracles.coverage import covered

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

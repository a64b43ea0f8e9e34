"""One cause has one name, under whatever schedule and beside whatever else it shows."""

from __future__ import annotations

import pytest
from kernels import specialized as ring
from records import record

from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
from fuzz.campaign.mutants import representative
from fuzz.campaign.record import signature
from fuzz.failures.identity import cause, cause_in_ptx, identified, scheduler, skeleton


def lines(kernel: kir.Kernel, *kinds: type) -> str:
    """Lines of the first statements of these kinds."""
    return " ".join(
        str(next(n for n, stmt in numbered(kernel) if isinstance(stmt, kind))) for kind in kinds
    )


def test_a_barrier_that_is_used_wrongly_is_the_cause() -> None:
    """Whether its arrivals or its parity are seen first, and whichever number it has."""
    kernel = ring(2)
    wait = record("a", kind="parity", lines=lines(kernel, kir.MBarrierWaitParity))
    barrier = cause(wait, kernel)
    assert barrier in ("full", "empty")
    names = {
        signature(record("a", status="fail", kind=kind, cause=barrier, family=family))
        for kind in ("parity", "arrivals", "bytes")
        for family in ("hopper-pipelined", "ampere-groups")
    }
    assert names == {f"prover protocol {barrier}"}


def test_statements_that_nothing_orders_are_the_cause() -> None:
    """The earlier first; without any line it is the scheduler."""
    kernel = ring(2)
    assert cause(record("a", lines=lines(kernel, kir.Load, kir.TmaLoad)), kernel) == "Load TmaLoad"
    assert cause(record("a", lines=""), kernel) == "pointwise"


def test_instructions_of_ptx_are_the_cause_without_their_types() -> None:
    """One fault shows at loads of any width."""
    text = "  st.shared.v2.f32 [%r1], {%f1, %f2};\n@!%p1 cp.async.bulk.wait_group 0;\n"
    seen = record("k own launch", oracle="ptx", lines="1 2")
    assert cause_in_ptx(seen, text) == "st.shared cp.async"
    other = text.replace("v2.f32", "f32")
    assert cause_in_ptx(seen, other) == cause_in_ptx(seen, text)
    assert cause_in_ptx(record("k", oracle="ptx", lines=""), text) == "pointwise"


@pytest.mark.parametrize(
    ("subject", "family", "says"),
    [
        ("reduction1 trips=3", "direct/direct", "reduction"),
        ("matmul0", "ampere-groups", "ampere"),
        ("matmul0", "direct/tma", "hopper"),
        ("own launch", "norm-cluster/direct", "norm"),
        ("", "tma-pipelined/tma", "pointwise"),
    ],
)
def test_a_failure_is_of_a_scheduler(subject: str, family: str, says: str) -> None:
    """Of that of its kernel, if it is of one."""
    assert scheduler(record("a", subject=subject, family=family)) == says


def test_an_identity_is_the_same_for_the_same_failure_only() -> None:
    """Numbers of a case do not matter; operators, types and syncs do."""
    case = representative("direct/direct")
    one = record("a", status="fail", kind="RAW", skeleton=skeleton(ring(2)))
    other = record("b", status="fail", kind="RAW", skeleton=skeleton(ring(2)), seconds=9.0)
    assert identified(one, case) == identified(other, case)
    assert len(identified(one, case).id) == 8
    unlike = record("a", status="fail", kind="RAW", skeleton="")
    assert identified(one, case).id != identified(unlike, case).id


def test_a_skeleton_has_every_kind_of_sync_of_a_role_once() -> None:
    """In order; without the numbers of a kernel."""
    said = skeleton(ring(2))
    assert said.startswith("all: MBarrierInit FenceMBarrierInit BlockSync | load: ")
    assert said == skeleton(ring(3))

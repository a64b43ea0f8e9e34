"""Rings are found by what statements fill and wait for."""

from dataclasses import replace

from product_kernels import CLUSTER, COOPERATIVE, PIPELINED, kernel

from fuser.kernel import ir as kir
from fuser.passes.rings import rings


def renamed(made: kir.Kernel) -> kir.Kernel:
    """The kernel with other names for its barriers."""
    new = {b: replace(b, name=f"b{n}") for n, b in enumerate(made.barriers)}

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        barrier = getattr(stmt, "barrier", None)
        if not isinstance(barrier, kir.MBarrier):
            return None
        return [replace(stmt, barrier=new[barrier])]  # type: ignore[arg-type]  # it has one

    return replace(made.rewrite(rule), barriers=tuple(new.values()))


def test_a_ring_is_filled_and_handed_back_on_its_barriers() -> None:
    """A load role fills the slots of both operands together, once they are free."""
    (ring,) = rings(kernel(COOPERATIVE))
    assert ring.buffers == {"S_T0", "S_T1"}
    assert (ring.full.name, ring.freed.name, ring.spread) == ("full", "empty", False)


def test_rings_are_found_whatever_barriers_are_called() -> None:
    """In a cluster, too, where CTA 0 waits for others before it loads for all."""
    made = kernel(CLUSTER)
    (ring,), (other,) = rings(made), rings(renamed(made))
    assert ring.spread
    assert (other.buffers, other.spread) == (ring.buffers, True)
    at = [made.barriers.index(b) for b in (ring.full, ring.freed)]
    barriers = renamed(made).barriers
    assert [barriers.index(b) for b in (other.full, other.freed)] == at


def test_threads_that_fill_and_read_hand_nothing_back() -> None:
    """They join, and that is that."""
    (ring,) = rings(kernel(PIPELINED))
    assert ring.empty is None

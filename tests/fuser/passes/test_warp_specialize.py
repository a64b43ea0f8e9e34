"""Roles: who loads, who computes."""

from dataclasses import replace

from fusions import PIPELINED, SPECIALIZED, compiled
from product_kernels import COOPERATIVE, PING_PONG, kernel, kinds, loops, roles

from fuser.kernel import ir as kir
from fuser.passes.effects import moved
from oracles.prover.prove import prove
from oracles.verdict import Status


def test_the_load_role_is_one_thread_of_one_more_warp() -> None:
    """It issues the copies and nothing else."""
    kernel = compiled(SPECIALIZED).launches[0].kernel
    load, compute = (s for s in kernel.body if isinstance(s, kir.Role))
    assert kernel.threads == 32 * (SPECIALIZED.warps + 1)
    assert (load.first_warp, load.warps) == (SPECIALIZED.warps, 1)
    assert (compute.first_warp, compute.warps) == (0, SPECIALIZED.warps)
    (elected,) = load.body
    assert isinstance(elected, kir.Elect)
    assert elected.per is kir.Per.ROLE
    loads = [s for s in kir.walk(compute.body) if isinstance(s, kir.TmaLoad)]
    assert not loads


def test_both_roles_walk_the_same_iterations() -> None:
    """Different trip counts would hang one of them."""
    kernel = compiled(SPECIALIZED).launches[0].kernel
    stops = {s.stop for s in kernel.walk() if isinstance(s, kir.ForLoop)}
    assert len(stops) == 1


def test_other_schedules_have_no_roles() -> None:
    """The pass leaves them alone."""
    kernel = compiled(PIPELINED).launches[0].kernel
    assert not [s for s in kernel.body if isinstance(s, kir.Role)]


# --- ping-pong: why two roles that share a ring must wait for each other --------------------------


def test_each_role_enters_after_the_other() -> None:
    """A wait before its steps along K, an arrival for the other behind them."""
    made = kernel(PING_PONG)
    for me in range(2):
        (tiles, *_) = loops(roles(made)[f"compute{me}"].body)
        (turn,) = tiles.body
        assert isinstance(turn, kir.IfThenElse)
        names = kinds(turn.then)
        at = names.index("ForLoop")
        enter, leave = turn.then[at - 1], turn.then[at + 2]
        assert isinstance(enter, kir.MBarrierWaitParity)
        assert (enter.barrier.name, enter.slot) == ("order", me)
        assert names[at + 1] == "WarpSync"
        assert isinstance(leave, kir.Elect)
        (arrive,) = leave.body
        assert isinstance(arrive, kir.MBarrierArrive)
        assert (arrive.barrier.name, arrive.slot) == ("order", 1 - me)


def test_without_the_order_a_role_mistakes_a_phase() -> None:
    """The prover found this before there was such a pass."""
    made = kernel(PING_PONG)

    def unordered(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        waits = isinstance(stmt, kir.MBarrierWaitParity) and stmt.barrier.name == "order"
        return [] if waits else None

    verdict = prove(made.rewrite(unordered))
    assert verdict.status is Status.FAIL


def test_other_kernels_have_no_order() -> None:
    """The pass leaves them alone."""
    assert "order" not in {b.name for b in kernel(COOPERATIVE).barriers}


def test_what_roles_in_turn_write_is_each_ones_own() -> None:
    """Results on their way to memory: of one slot for both, each would write over the other's."""
    made = kernel(PING_PONG, n=33)
    one, other = (b for b in made.buffers if b.name.endswith(("_0", "_1")))
    assert one.name[:-2] == other.name[:-2]
    assert prove(made).status is Status.PASS

    def shared(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if kir.bodies(stmt):
            return None
        return [moved(stmt, lambda at: replace(at, buffer=one) if at.buffer == other else at)]

    wrong = prove(replace(made, body=kir.rewrite(made.body, shared)))
    assert wrong.status is Status.FAIL
    assert {finding.kind for finding in wrong.findings} & {"WAW", "WAR"}

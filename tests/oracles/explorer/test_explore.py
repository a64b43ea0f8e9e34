"""The explorer: every interleaving of small kernels, and what it says of the cookbook."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuser.cookbook.recipes import RECIPES
from fuser.cookbook.ring import ELECT, PER_WARP, emptied, filled, k, ring, start, trips
from fuser.dtype import DType
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from fuzz.mutation.operators import drop_each_sync
from oracles.explorer.explore import Launch, Rule, explore
from oracles.verdict import KINDS, Status, Verdict

n = Var("n")
X = kir.Tensor("X", DType.F32, (n,), (1,), 4)
Y = kir.Tensor("Y", DType.F32, (n,), (1,), 4)
FRAGMENT = kir.Fragment("x", DType.F32, kir.Layout((32,), 1, 32))
BULK = kir.AsyncKind.BULK


def box(tensor: kir.Tensor, at: Expr) -> kir.Box:
    """Return the 32 elements of step `at`."""
    return kir.Box(tensor, (at * 32,), (32,), (n,))


def tiny(stages: int, consumers: int = 1, *, each: bool = False) -> kir.Kernel:
    """Return a ring of 128 bytes a slot: one thread loads, `consumers` warps read."""
    s = kir.Buffer("S", DType.F32, (32,), stages, 0)
    full, empty = ring("full", 1, stages), ring("empty", (32 if each else 1) * consumers, stages)
    slot = k % stages
    load = (
        emptied(empty, k, stages),
        kir.MBarrierArriveExpectTx(full, slot, 128),
        kir.TmaLoad(kir.Slot(s, slot), box(X, k), full, slot),
    )
    arrive = kir.MBarrierArrive(empty, slot)
    free = (arrive,) if each else (kir.WarpSync(), kir.Elect(PER_WARP, (arrive,)))

    def consume(number: int) -> tuple[kir.Stmt, ...]:
        store = (kir.Store(box(Y, k), FRAGMENT, 1),) if number == 0 else ()
        return (filled(full, k, stages), kir.Load(FRAGMENT, kir.Slot(s, slot), 1), *free, *store)

    roles = [
        kir.Role(f"use{i}", i, 1, (kir.ForLoop(k, trips, consume(i)),)) for i in range(consumers)
    ]
    roles.append(
        kir.Role("load", consumers, 1, (kir.Elect(ELECT, (kir.ForLoop(k, trips, load),)),))
    )
    threads = 32 * consumers + 32
    body = (kir.Let(trips, n // 32), *start(full, empty, threads=threads), *roles)
    return kir.Kernel("tiny", (n,), (X, Y), (), (s,), (full, empty), threads, body, ("Y",))


def plain(body: tuple[kir.Stmt, ...], *, threads: int = 64, buffers: int = 1) -> kir.Kernel:
    """Return a kernel of one CTA over X, Y and buffers of 64 floats."""
    shared = tuple(kir.Buffer(f"S{i}", DType.F32, (64,), 1, 256 * i) for i in range(buffers))
    return kir.Kernel("plain", (n,), (X, Y), (), shared, (), threads, body, ("Y",))


def cleared(fragment: kir.Fragment) -> kir.Stmt:
    """Give a fragment a value."""
    return kir.Compute(fragment, "cast", (kir.Literal(0.0, fragment.dtype),))


def at(trips_: int) -> Launch:
    """Return a launch of one CTA with so many trips."""
    return Launch(1, {"n": 32 * trips_})


def kind(verdict: Verdict) -> str:
    """Return the kind of the error of a verdict; its status if there is none."""
    errors = [f.kind for f in verdict.findings if f.severity == "error"]
    assert all(found in KINDS for found in errors)
    return errors[0] if errors else verdict.status.value


def launches(name: str) -> list[Launch]:
    """Return launches of a recipe over trip counts from none to past its ring."""
    steps = range(7)
    match name:
        case "tma_ring" | "specialized_ring" | "store_ring":
            return [Launch(2, {"R": 4 * i, "C": 64}) for i in range(11)]
        case "split_k" | "split_k_tma":
            return [Launch(2, {"M": 64, "N": 8, "K": 16 * i, "splits": 2}) for i in range(8)]
        case "cluster_multicast":
            return [Launch(2, {"M": 128, "N": 8, "K": 16 * i}) for i in range(6)]
        case "persistent" | "ping_pong":
            return [Launch(1, {"M": 192, "N": 8, "K": 16 * i}) for i in steps]
        case _:
            return [Launch(1, {"M": 64, "N": 8, "K": 16 * i}) for i in steps]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_passes_for_every_trip_count(name: str) -> None:
    """Right kernels are praised: trips 0, 1, below, at and past the stages."""
    for launch in launches(name):
        verdict = explore(RECIPES[name](), launch)
        assert verdict.status is Status.PASS, f"{launch}: {verdict}"
        assert verdict.checked > 0


@pytest.mark.parametrize("name", RECIPES)
def test_dropping_a_sync_of_a_recipe_is_noticed(name: str) -> None:
    """All but two that can go, by an error, or a warning that something is still being read.

    A block sync makes inits visible in one CTA, without their fence; and the thread that releases
    the turn in `split_k_tma` did itself all that it releases, so nobody needs to be collected.
    """
    survivors = []
    for mutant in drop_each_sync(RECIPES[name]()):
        ends = launches(name)[-1], launches(name)[0]
        found = {kind(explore(mutant.kernel, end, states=3000)) for end in ends}
        warned = explore(mutant.kernel, ends[0], states=3000).findings
        if found <= {"pass", "unknown"} and all(f.kind not in ("WAR", "proxy") for f in warned):
            survivors.append(mutant.change)
    survivors = [change for change in survivors if "fence_mbarrier_init" not in change]
    assert len(survivors) == (name == "split_k_tma"), survivors


@pytest.mark.parametrize(
    ("stages", "consumers", "trips_", "states"),
    [(1, 1, 0, 16), (1, 1, 4, 44), (2, 1, 6, 138), (3, 1, 8, 382), (1, 2, 4, 172)],
)
def test_tiny_rings_have_so_many_states(
    stages: int, consumers: int, trips_: int, states: int
) -> None:
    """Every interleaving, without the one that stands for all: more slots, more freedom."""
    verdict = explore(tiny(stages, consumers), at(trips_), reduce=False)
    assert (verdict.status, verdict.reason) == (Status.PASS, f"{states} states")


@pytest.mark.parametrize(("stages", "consumers", "each"), [(1, 1, False), (2, 1, True)])
def test_one_way_says_what_all_ways_say(stages: int, consumers: int, each: bool) -> None:
    """The reduction is an argument; here it is held against the full search, right and wrong."""
    kernel = tiny(stages, consumers, each=each)
    for wrong in (kernel, *(mutant.kernel for mutant in drop_each_sync(kernel))):
        for trips_ in (1, stages + 1, 2 * stages + 1):
            short = explore(wrong, at(trips_))
            full = explore(wrong, at(trips_), reduce=False, states=20_000)
            assert short.status is full.status, f"{short}\n{full}"


def changed(kernel: kir.Kernel, old: type, **new: Any) -> kir.Kernel:
    """Change fields of every statement of a class."""
    return kernel.rewrite(lambda s: [replace(s, **new)] if isinstance(s, old) else None)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (kir.MBarrierArriveExpectTx, {"nbytes": 64}, "bytes"),
        (kir.MBarrierArriveExpectTx, {"nbytes": 256}, "bytes"),
        (kir.MBarrierArrive, {"slot": 0}, "deadlock"),
    ],
)
def test_wrong_counts_are_called_by_their_kind(
    old: type, new: dict[str, object], found: str
) -> None:
    """Too few bytes, too many, and arrivals on one slot only."""
    assert kind(explore(changed(tiny(2), old, **new), at(5))) == found


def test_more_arrivals_than_the_barrier_counts_are_an_error() -> None:
    """All lanes arrive where one was counted."""
    kernel = tiny(2, each=True)
    full, empty = kernel.barriers
    few = replace(kernel, barriers=(full, replace(empty, arrivals=1)))
    assert kind(explore(few, at(3))) in ("arrivals", "WAR")


def test_a_parity_off_by_a_phase_is_found() -> None:
    """A consumer that takes the other parity passes at once, and reads what is not there."""
    kernel = tiny(1).rewrite(
        lambda s: (
            [replace(s, parity=(k + 1) % 2)]
            if isinstance(s, kir.MBarrierWaitParity) and s.barrier.name == "full"
            else None
        )
    )
    assert kind(explore(kernel, at(3))) == "RAW"


def test_a_lane_that_may_be_lapped_sees_another_phase() -> None:
    """Lane 0 of a warp goes round while the others have not yet passed their first wait."""
    one, other = ring("one", 1, 1), ring("other", 1, 1)

    def role(mine: kir.MBarrier, its: kir.MBarrier, first: int) -> tuple[kir.Stmt, ...]:
        wait = kir.MBarrierWaitParity(mine, 0, (k + first) % 2)
        return (kir.ForLoop(k, trips, (wait, kir.Elect(PER_WARP, (kir.MBarrierArrive(its, 0),)))),)

    body = (
        kir.Let(trips, n // 32),
        *start(one, other, threads=64),
        kir.Role("a", 0, 1, role(one, other, 1)),
        kir.Role("b", 1, 1, role(other, one, 0)),
    )
    kernel = replace(plain(body), barriers=(one, other), outputs=())
    assert kind(explore(kernel, at(1))) == "deadlock"
    assert kind(explore(kernel, at(4))) in ("parity", "deadlock")
    synced = kernel.rewrite(
        lambda s: [s, kir.WarpSync()] if isinstance(s, kir.MBarrierWaitParity) else None
    )
    assert kind(explore(synced, at(4))) == "pass"


def exchange(*between: kir.Stmt, back: kir.Layout, threads: int = 64) -> kir.Kernel:
    """Return a kernel that stores to shared memory and loads back under another layout."""
    there = kir.Fragment("x", DType.F32, kir.Layout((64,), 1, 64))
    kernel = plain((), threads=threads)
    slot = kir.Slot(kernel.buffers[0], 0)
    body = (
        cleared(there),
        kir.Store(slot, there, 1),
        *between,
        kir.Load(kir.Fragment("y", DType.F32, back), slot, 1),
    )
    return replace(kernel, body=body, outputs=())


def test_a_private_round_trip_needs_no_barrier() -> None:
    """The same layout brings each element to the thread that wrote it, another one does not."""
    same, pairs = kir.Layout((64,), 1, 64), kir.Layout((64,), 2, 64)
    assert kind(explore(exchange(back=same), at(1))) == "pass"
    assert kind(explore(exchange(back=pairs), at(1))) == "RAW"
    assert kind(explore(exchange(kir.BlockSync(0, 64), back=pairs), at(1))) == "pass"
    assert kind(explore(exchange(kir.WarpSync(), back=pairs), at(1))) == "RAW"


def leave(*before: kir.Stmt, after: tuple[kir.Stmt, ...] = ()) -> kir.Kernel:
    """Return a kernel whose threads fill a slot, and one of them stores it by TMA."""
    kernel = plain((), threads=32)
    slot = kir.Slot(kernel.buffers[0], 0)
    wide = kir.Fragment("x", DType.F32, kir.Layout((64,), 1, 32))
    out = kir.Box(Y, (0,), (64,), (n,))
    issue = (kir.TmaStore(out, slot), kir.AsyncCommit(BULK), *after)
    put = cleared(wide), kir.Store(slot, wide, 1)
    return replace(kernel, body=(*put, *before, kir.Elect(ELECT, issue)))


def test_a_proxy_fence_has_its_place_and_its_space() -> None:
    """By every writer, before the barrier, for shared memory; a reader's own is too late."""
    shared, everywhere = (kir.FenceAsyncProxy(s) for s in (kir.Space.SHARED, kir.Space.ALL))
    elsewhere = kir.FenceAsyncProxy(kir.Space.GLOBAL)
    sync, drained = kir.BlockSync(0, 32), (kir.AsyncAwait(BULK, 0, read_only=True),)
    for fence, found in ((shared, "pass"), (everywhere, "pass"), (elsewhere, "proxy")):
        assert kind(explore(leave(fence, sync, after=drained), at(2))) == found
    assert kind(explore(leave(sync, after=drained), at(2))) == "proxy"
    by_one = kir.Elect(ELECT, (shared,))
    assert kind(explore(leave(by_one, sync, after=drained), at(2))) == "proxy"
    assert kind(explore(leave(shared, after=drained), at(2))) == "RAW"


def test_a_cta_does_not_end_under_a_store_in_flight() -> None:
    """The reads of a TMA store outlive its threads unless one waits for them."""
    fence, sync = kir.FenceAsyncProxy(kir.Space.SHARED), kir.BlockSync(0, 32)
    assert kind(explore(leave(fence, sync), at(2))) == "exit"


def test_a_named_barrier_is_counted_in_threads() -> None:
    """Two warps at a barrier for one, in one turn or in two; a lane alone at a barrier."""
    assert kind(explore(plain((kir.BlockSync(1, 64),)), at(0))) == "pass"
    alone = kir.Role("a", 0, 1, (kir.BlockSync(1, 64),))
    assert kind(explore(plain((alone,)), at(0))) == "deadlock"
    inside = kir.Elect(ELECT, (kir.BlockSync(1, 64),))
    assert kind(explore(plain((inside,)), at(0))) == "collective"


def test_registers_come_from_those_who_gave_some_back() -> None:
    """What is asked for must have been given back by another warpgroup."""
    give = kir.Role("give", 0, 4, (kir.SetMaxNReg(40, increase=False),))
    take = kir.Role("take", 4, 4, (kir.SetMaxNReg(208, increase=True),))
    kernel = replace(plain((give, take), threads=256), registers=128)
    assert kind(explore(kernel, at(0))) == "pass"
    assert kind(explore(replace(kernel, body=(take,)), at(0))) == "registers"


def test_ctas_that_never_meet_write_apart() -> None:
    """Two CTAs that write the same tile have no order."""
    zero = cleared(FRAGMENT)
    body = (kir.Role("a", 0, 1, (zero, kir.Store(box(Y, 0), FRAGMENT, 1))),)
    assert kind(explore(plain(body), Launch(1, {"n": 32}))) == "pass"
    assert kind(explore(plain(body), Launch(2, {"n": 32}))) == "WAW"
    add = (kir.Role("a", 0, 1, (zero, kir.AtomicAdd(box(Y, 0), FRAGMENT))),)
    assert kind(explore(plain(add), Launch(2, {"n": 32}))) == "determinism"
    loose = replace(plain(add), determinism="unordered")
    assert kind(explore(loose, Launch(2, {"n": 32}))) == "pass"


def test_a_dirty_semaphore_is_an_error_even_in_a_program() -> None:
    """The next launch expects zeros."""
    turns = kir.Semaphore("turns", 1)

    def kernel(last: int) -> kir.Kernel:
        wait = kir.BlockSerializeWait(turns, 0, 0)
        body = (wait, kir.Elect(ELECT, (kir.BlockSerializeRelease(turns, 0, last),)))
        return replace(plain(body), semaphores=(turns,), residency="ticket")

    assert kind(explore(kernel(0), at(0))) == "pass"
    program = LaunchSequence("twice", (kernel(0), kernel(1)))
    assert kind(explore(program, (at(0), at(0)))) == "semaphore"


def test_split_k_needs_a_ticket() -> None:
    """A CTA may wait for one with a smaller number only where that has started."""
    kernel, launch = RECIPES["split_k"](), launches("split_k")[2]
    assert kind(explore(replace(kernel, residency="any"), launch)) == "residency"


def test_a_missing_fence_after_reads_is_an_error_under_the_strict_policy() -> None:
    """A refill by TMA of what threads have read: a warning by default."""
    verdict = explore(tiny(1), at(3))
    assert {f.kind for f in verdict.findings} == {"proxy"}
    assert kind(explore(tiny(1), at(3), policy="strict")) == "proxy"


def test_too_many_states_are_unknown_and_not_a_pass() -> None:
    """A search that was cut off praises nothing."""
    verdict = explore(tiny(3, 2), at(8), reduce=False, states=100)
    assert verdict.status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (Rule.COMPLETE_TX, "RAW"),
        (Rule.MBARRIER_RELEASE, "WAW"),
        (Rule.BLOCK_SYNC, "init"),
        (Rule.WARP_SYNC, "WAR"),
    ],
)
def test_an_order_that_is_taken_away_is_missed(rule: Rule, found: str) -> None:
    """Each axiom is consulted where it acts."""
    assert kind(explore(tiny(2), at(5))) == "pass"
    assert kind(explore(tiny(2), at(5), without=frozenset({rule}))) == found

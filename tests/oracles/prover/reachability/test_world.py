"""What is read off a kernel once: which counts are shared, where variables are read last."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from litmus.parts import GLOBAL, TILE, W1, Y1, box, fragment, k, kernel, load, n, store, tensor
from litmus.turnstiles import added

from fuser.cookbook import recipes
from fuser.cookbook.ring import p, step, trips
from fuser.cookbook.sum import sum_kernel
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from fuzz.mutation.operators import drop_each_sync
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.ctas import readings
from oracles.prover.reachability.fixpoint import Closed, judge
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.world import Region, Share, World
from oracles.prover.sites import shared_tensors

KERNEL = compiled(linear(), hopper("ping_pong", 3, 1, direct=True, cluster=(2, 1)))


def _opened(kernel: kir.Kernel) -> fixpoint.Exploration:
    return fixpoint.opened(kernel, next(iter(readings(kernel))), policy="default")


def test_states_of_ping_pong_are_few_at_every_depth() -> None:
    """Lengths of earlier tiles multiplied the states: 3049 at three stages, no end at five."""
    found = {s: fixpoint.judge(recipes.ping_pong(stages=s)) for s in (2, 5, 8)}
    assert all(not closed.reason and not closed.violations for closed in found.values())
    assert found[8].states < 200
    assert found[8].states < 4 * found[2].states


def test_who_freed_a_slot_the_time_before_last_tells_no_states_apart() -> None:
    """Its loader has waited since: two groups by turns multiplied the states, 86 and 135."""
    deep = compiled(linear(), hopper("ping_pong", 5, 1, direct=True, cluster=(2, 1)))
    assert fixpoint.judge(KERNEL).states < 60
    assert fixpoint.judge(deep).states < 90


def test_only_counts_with_several_uses_are_decided_at_once() -> None:
    """The tiles of `ping_pong` are counted by one loop of a role, the steps anew in each tile."""
    world = _opened(recipes.ping_pong(stages=3)).world
    found = world.code.atoms.found.items()
    assert [str(atom) for atom, number in found if number in world.few] == ["((K + 15) // 16)"]
    assert not _opened(recipes.specialized_ring(3)).world.few


def test_no_verdict_depends_on_counts_decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a small count goes wrong, a count for each use does too, and the other way round."""
    kernels = [m.kernel for m in drop_each_sync(recipes.persistent(2))]
    shared = [bool(fixpoint.judge(kernel).violations) for kernel in kernels]
    monkeypatch.setattr(World, "few", {})
    assert shared == [bool(fixpoint.judge(kernel).violations) for kernel in kernels]
    assert any(shared)


def test_threads_with_nothing_left_to_do_are_done() -> None:
    """Lanes that only count along keep nobody waiting and tell no states apart."""
    body = (kir.Let(p, 0), kir.ForLoop(k, trips, (step(p),)))
    idle = _opened(sum_kernel("idle", body, (), (), 128))
    assert idle.explore() == (0, "")


def test_what_a_kernel_requires_bounds_what_is_made_of_it() -> None:
    """A guard that every launch passes was taken to fail: a refutation that no launch shows."""
    m = Var("M")
    kernel = recipes.persistent()
    kernel = replace(kernel, params=(*kernel.params, m), requires=(*kernel.requires, m >= 1))
    code = _opened(kernel).world.code
    for expr, low in (
        (m, 1),
        (ceildiv(m, 64), 1),
        ((m + 8) // 3, 3),
        (m * m, 1),
        (m * Var("N"), None),
        (m - 5, None),
    ):
        number = code.atoms.number(expr)
        assert World(code, "default").least.get(number) == low


def test_barriers_of_cta_0_alone_are_unused_in_the_others() -> None:
    """Every CTA initialises `shared`; only CTA 0 waits there, and the other arrives there."""
    used = _opened(KERNEL).world.users.keys()
    assert {(0, "shared"), (0, "full"), (1, "full"), (1, "empty")} <= used
    assert (1, "shared") not in used


def test_a_position_is_read_until_its_loops_are_over() -> None:
    """By threads that run them; by no others at all, though they set it to 0."""
    world = _opened(KERNEL).world
    for program, reads in zip(world.code.programs, world.last_reads, strict=True):
        assert ("p" in reads) == any(type(i).__name__ == "Enter" for i in program)
        assert reads.get("p", -1) < len(program)


def test_states_of_a_cluster_do_not_multiply_with_its_slots() -> None:
    """Idle threads, unused barriers and single arrivals do not keep rings from turning."""
    states = []
    for stages in (2, 3, 4):
        made = compiled(linear(), hopper("ping_pong", stages, 0, direct=True, cluster=(2, 1)))
        begun = time.perf_counter()
        closed = fixpoint.judge(made)
        assert not closed.violations
        assert time.perf_counter() - begun < 20
        states.append(closed.states)
    assert states[2] < 2 * states[0], states


# --- global memory in the prover's states ---------------------------------------------------------


XS, WS, YS = (tensor(name, n) for name in ("X", "W", "Y"))
JOIN = kir.BlockSync(0, 64)
WIDE, OTHER = fragment("x", 64), fragment("x", 64, 1)
"""A tile in two layouts: what one holds in a thread, the other holds in another."""


def kinds(closed: Closed) -> set[str]:
    """Kinds of the errors."""
    return {v.kind for v in closed.violations}


def scratch(
    *body: kir.Stmt, grid: Expr = 1, tensors: tuple[kir.Tensor, ...] = (XS, WS, YS)
) -> kir.Kernel:
    """Return a kernel of two warps with a workspace."""
    made = kernel(body, threads=64, tensors=tensors, workspaces=("W",))
    return replace(made, requires=(eq(kir.GRID, grid),) if grid != 0 else ())


def test_threads_of_a_cta_meet_in_one_box() -> None:
    """Under another layout the tile comes from other threads."""
    body = (load(WIDE, box(XS, 0)), store(box(WS, 0), WIDE))
    after = (load(OTHER, box(WS, 0)), store(box(YS, 0), OTHER))
    assert kinds(judge(scratch(*body, *after))) == {"RAW"}
    assert not judge(scratch(*body, JOIN, *after)).violations


def test_boxes_apart_need_no_order() -> None:
    """A second tile of a workspace is other memory than the first."""
    body = (
        load(WIDE, box(XS, 0)),
        store(box(WS, 0), WIDE),
        JOIN,
        load(OTHER, box(WS, 0)),
        store(box(WS, 1), OTHER),
        store(box(YS, 0), OTHER),
    )
    closed = judge(scratch(*body))
    assert not closed.violations
    assert not closed.reason


def test_boxes_that_may_overlap_are_neither_right_nor_wrong() -> None:
    """Tile 0 and tile `n - 1` are one where n is 1, which nothing here decides."""
    body = (load(WIDE, box(XS, 0)), store(box(WS, 0), WIDE), store(box(WS, n - 1), OTHER))
    closed = judge(scratch(*body, store(box(YS, 0), WIDE)))
    assert not closed.violations
    assert "which elements" in closed.reason


def test_a_workspace_holds_nothing_at_the_start() -> None:
    """What nobody has written is not there to be read, nor to be added to."""
    closed = judge(scratch(load(WIDE, box(WS, 0)), store(box(WS, 0), WIDE)))
    assert {v.rule for v in closed.violations} == {Rule.WRITTEN}
    adds = scratch(load(WIDE, box(XS, 0)), kir.AtomicAdd(box(WS, 0), WIDE))
    assert {v.rule for v in judge(adds).violations} == {Rule.WRITTEN}


def test_a_tile_for_each_round_is_other_memory_in_each() -> None:
    """Rounds of a loop write below each other; within one, other threads need a barrier."""
    tile = fragment("x", 64)

    def looped(*between: kir.Stmt) -> kir.Kernel:
        body = (
            load(tile, box(XS, k)),
            store(box(WS, k), tile),
            *between,
            load(OTHER, box(WS, k)),
            store(box(YS, k), OTHER),
        )
        return scratch(kir.ForLoop(k, n, body))

    closed = judge(looped(JOIN))
    assert not closed.violations
    assert not closed.reason
    assert kinds(judge(looped())) == {"RAW"}


def test_bulk_stores_in_flight_do_not_meet_in_other_rounds() -> None:
    """Two groups may be in flight to two tiles of a workspace that is read at the end."""
    buffer = kir.Buffer("S", WS.dtype, TILE, 1, 0)
    lone = kir.Elect(kir.Per.ROLE, (kir.TmaStore(box(WS, k), kir.Slot(buffer, 0)),))
    out = kir.Elect(
        kir.Per.ROLE,
        (
            kir.AsyncCommit(kir.AsyncKind.BULK),
            kir.AsyncAwait(kir.AsyncKind.BULK, 0),
        ),
    )
    body = (
        load(WIDE, box(XS, 0)),
        store(kir.Slot(buffer, 0), WIDE),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        JOIN,
        kir.ForLoop(k, 3, (lone,)),
        out,
        kir.BlockSync(1, 64),
        load(OTHER, box(WS, 1)),
        store(box(YS, 0), OTHER),
    )
    made = replace(scratch(*body), buffers=(buffer,))
    assert not judge(made).violations
    undrained = tuple(s for s in body if s != out)
    assert kinds(judge(replace(made, body=undrained))) >= {"RAW"}


def test_ctas_that_nothing_orders_do_not_meet() -> None:
    """All CTAs at one tile of the workspace race; a tile for each is their own."""
    tile = fragment("x", 64)

    def at(number: Expr) -> kir.Kernel:
        body = (
            load(tile, box(XS, kir.BLOCK)),
            store(box(WS, number), tile),
            JOIN,
            load(OTHER, box(WS, number)),
            store(box(YS, kir.BLOCK), OTHER),
        )
        return scratch(*body, grid=n)

    right = judge(at(kir.BLOCK))
    assert not right.violations
    assert not right.reason
    assert kinds(judge(at(0))) & {"WAW", "RAW"}
    assert kinds(judge(at(kir.BLOCK // 2))) & {"WAW", "RAW"}


def test_what_is_not_shown_to_be_apart_stays_open() -> None:
    """Small launches show no clash of CTAs 40 apart, and nothing proves that there is none."""
    tile = fragment("x", 64)
    body = (
        load(tile, box(XS, kir.BLOCK)),
        store(box(WS, kir.BLOCK % 40), tile),
        JOIN,
        load(OTHER, box(WS, kir.BLOCK % 40)),
        store(box(YS, kir.BLOCK), OTHER),
    )
    closed = judge(scratch(*body, grid=n))
    assert not closed.violations
    assert "other CTAs" in closed.reason


@pytest.mark.parametrize(
    ("determinism", "found"), [("bitwise", {"determinism"}), ("unordered", set())]
)
def test_additions_of_one_sort_are_no_race(determinism: str, found: set[str]) -> None:
    """They commute but for the last bits, which only some kernels promise."""
    assert kinds(judge(added(determinism=determinism))) == found


def test_additions_by_thread_and_by_engine_race() -> None:
    """Engines' reductions are not atomic towards `red` of threads."""
    buffer = kir.Buffer("S", W1.dtype, TILE, 1, 0)
    tile = fragment("x")
    engine = kir.Elect(kir.Per.ROLE, (kir.TmaReduce(box(W1), kir.Slot(buffer, 0)),))
    body = (
        load(tile, box(tensor("X"))),
        store(box(W1), tile),
        store(kir.Slot(buffer, 0), tile),
        kir.FenceAsyncProxy(kir.Space.ALL),
        kir.WarpSync(),
        engine,
        kir.AtomicAdd(box(W1), tile),
        store(box(Y1), tile),
    )
    made = kernel(
        body, buffers=(buffer,), tensors=(tensor("X"), W1, Y1), workspaces=("W",), params=()
    )
    assert "WAW" in kinds(judge(replace(made, determinism="unordered")))


def test_cp_async_reads_what_threads_wrote() -> None:
    """A copy of a tile that other threads have stored needs a barrier before it."""
    buffer = kir.Buffer("S", WS.dtype, TILE, 1, 0)
    copy = kir.CpAsync(kir.Slot(buffer, 0), box(WS, 0), OTHER.layout, 1)
    done = kir.AsyncCommit(kir.AsyncKind.CP_ASYNC), kir.AsyncAwait(kir.AsyncKind.CP_ASYNC, 0)
    body = (load(WIDE, box(XS, 0)), store(box(WS, 0), WIDE), JOIN, copy, *done)
    made = replace(scratch(*body), buffers=(buffer,))
    assert not judge(made).violations
    assert "RAW" in kinds(judge(replace(made, body=(*body[:2], *body[3:]))))


def test_a_load_by_an_engine_of_what_threads_stored_needs_a_global_fence() -> None:
    """A fence of shared memory says nothing of global memory."""
    buffer, bar = kir.Buffer("S", W1.dtype, TILE, 1, 0), kir.MBarrier("full", 1, 1)
    tile = fragment("x")

    def made(space: kir.Space) -> kir.Kernel:
        body = (
            kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(bar), kir.FenceMBarrierInit())),
            load(tile, box(tensor("X"))),
            store(box(W1), tile),
            kir.FenceAsyncProxy(space),
            kir.BlockSync(0, 32),
            kir.Elect(
                kir.Per.ROLE,
                (
                    kir.MBarrierArriveExpectTx(bar, 0, 512),
                    kir.TmaLoad(kir.Slot(buffer, 0), box(W1), bar, 0),
                ),
            ),
            kir.MBarrierWaitParity(bar, 0, 0),
            load(tile, kir.Slot(buffer, 0)),
            store(box(Y1), tile),
        )
        return kernel(
            body, buffers=(buffer,), barriers=(bar,), tensors=(tensor("X"), W1, Y1),
            workspaces=("W",), params=(),
        )  # fmt: skip

    assert not judge(made(GLOBAL)).violations
    assert kinds(judge(made(kir.Space.SHARED))) == {"proxy"}


def _region(*origin: tuple[int, Expr], rolls: bool = False) -> Region:
    forms = tuple((c, frozenset({(e, 1)} if e != 0 else ())) for c, e in origin)
    on = tuple(parts if rolls else frozenset() for _, parts in forms)
    return Region("W", forms, (4,) * len(forms), on, 7 if rolls else -1)


@pytest.mark.parametrize(
    ("one", "two", "how"),
    [
        (_region((0, 0)), _region((0, 0)), Share.SAME),
        (_region((0, 0)), _region((4, 0)), None),
        (_region((0, 0)), _region((2, 0)), Share.SOME),
        (_region((0, n)), _region((4, n)), None),
        (_region((0, n)), _region((2, n)), Share.MAYBE),
        (_region((0, n)), _region((0, Var("m"))), Share.MAYBE),
        (_region((0, n), (0, 0)), _region((0, Var("m")), (8, 0)), None),
        (_region((0, k), rolls=True), _region((4, k), rolls=True), Share.MAYBE),
    ],
)
def test_what_two_boxes_share(one: Region, two: Region, how: Share | None) -> None:
    """Apart on one axis is apart; a difference that is not known may be anything."""
    assert one.share(two) is how
    assert two.share(one) is how


def test_a_region_strides_where_its_steps_are_as_long_as_itself() -> None:
    """Shorter steps overlap in neighbouring rounds."""

    def region(step: Expr, low: int, size: int) -> Region:
        parts = frozenset({(step, 4)})
        return Region("W", ((low, parts | {(n, 3)}),), (size,), (parts,), 1)

    one, known = region(k, 0, 4), frozenset({Var("m")})
    assert one.strides(one, known)
    assert not region(k, 0, 5).strides(region(k, 0, 5), known)
    assert region(k, 0, 2).strides(region(k, 2, 2), known)
    assert not region(k, 0, 2).strides(region(k, 3, 2), known)
    assert region(k * Var("m"), 0, 4).strides(region(k * Var("m"), 0, 4), known)
    assert not region(k * Var("m"), 0, 4).strides(region(k * Var("m"), 0, 4), frozenset())


def test_regions_that_roll_alike_are_compared_where_they_are() -> None:
    """At one place as if they stood; otherwise nothing is known of them but their steps."""
    one, other = _region((0, k), rolls=True), _region((4, k), rolls=True)
    assert one.share(one, still=True) is Share.SAME
    assert one.share(other, still=True) is None
    assert one.share(_region((2, k), rolls=True), still=True) is Share.MAYBE


def test_outputs_that_are_only_written_are_left_to_coverage() -> None:
    """That each element is written once is proved for all extents, not state by state."""
    plain = scratch(load(WIDE, box(XS, 0)), store(box(YS, 0), WIDE))
    assert shared_tensors(plain) == frozenset()
    assert shared_tensors(scratch(store(box(WS, 0), WIDE))) == frozenset({"W"})


def test_a_slot_by_the_number_of_a_cta_is_not_answered() -> None:
    """Nothing is known of `BLOCK` where no turns tell CTAs apart."""
    buffer = kir.Buffer("S", WS.dtype, TILE, 2, 0)
    body = (load(WIDE, box(XS, 0)), store(kir.Slot(buffer, kir.BLOCK % 2), WIDE))
    with pytest.raises(UnsupportedError, match="blockIdx"):
        judge(replace(scratch(*body), buffers=(buffer,)))

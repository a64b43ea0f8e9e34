"""Where CTAs and warps meet: turns of a semaphore, clusters, programs, pools of registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import kernels
import litmus.parts
import numpy as np
import pytest
from arrived import MINE, OUT, PUT, SUM, TOTAL, by_role, by_roles, ctas_of
from kernels import T0, T1, WARPS, X, Y, add, box
from litmus.arrivals import PAIR, arriving, by_engine, last, of_two_groups
from litmus.meetings import SENT, WS, YS
from litmus.parts import TILE, Y1, Body, elect, load, s, store, t, tensor
from litmus.turnstiles import XS, grid

from fuser.cookbook.recipes import cluster_multicast, split_k, split_k_tma
from fuser.dtype import DType
from fuser.expr import Var, eq
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.simulator.simulate import Launch, search, simulate, witness
from oracles.verdict import Status, Verdict

ALL = 32 * WARPS
ONE = kir.Per.ROLE
GPU, CLUSTER, CTA = kir.Scope.GPU, kir.Scope.CLUSTER, kir.Scope.CTA
Rule = Callable[[kir.Stmt], list[kir.Stmt] | None]


def kinds(verdict: Verdict, severity: str = "error") -> set[str]:
    """Return the kinds of its findings."""
    return {f.kind for f in verdict.findings if f.severity == severity}


def split(splits: int, steps: int = 1) -> Launch:
    """Return a launch of one tile with `steps` steps along K for each CTA."""
    return Launch(splits, {"M": 64, "N": 8, "K": 16 * steps * splits, "splits": splits})


def judged(kernel: kir.Kernel, splits: int = 3) -> set[str]:
    """Return the kinds of errors of a few schedules."""
    return kinds(search(kernel, split(splits), schedules=6))


def changed(
    kernel: kir.Kernel, kind: type, change: Callable[[kir.Stmt], list[kir.Stmt]]
) -> kir.Kernel:
    """Replace every statement of a kind."""
    return kernel.rewrite(lambda stmt: change(stmt) if isinstance(stmt, kind) else None)


def released(kernel: kir.Kernel, *before: kir.Stmt, **change: object) -> kir.Kernel:
    """Change the release, and put statements before it."""
    return changed(
        kernel,
        kir.BlockSerializeRelease,
        lambda s: [*(replace(b) for b in before), replace(s, **change)],  # type: ignore[arg-type]  # fields of one dataclass
    )


@pytest.mark.parametrize("recipe", [split_k, split_k_tma])
@pytest.mark.parametrize("splits", [1, 2, 4])
def test_turns_add_up(recipe: Callable[[], kir.Kernel], splits: int) -> None:
    """CTAs share a tile and add in turn; one slot, all slots and anything between."""
    generator = np.random.default_rng(splits)
    a, b = (generator.integers(-4, 5, (n, 16 * splits)).astype(np.float32) for n in (64, 8))
    for seed in range(6):
        d = np.full((64, 8), np.nan, np.float32)
        verdict = simulate(recipe(), split(splits), {"A": a, "B": b, "D": d}, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(d, a @ b.T)


def test_a_release_reaches_as_far_as_its_scope() -> None:
    """Too narrow or relaxed, it publishes nothing to another CTA; a fence makes up for it."""
    kernel = split_k()
    assert judged(released(kernel, scope=CTA)) == {"scope"}
    assert judged(released(kernel, scope=CLUSTER)) == {"scope"}
    assert judged(released(kernel, relaxed=True)) == {"scope"}
    assert judged(released(kernel, kir.ThreadFence(CTA), relaxed=True)) == {"scope"}
    assert not judged(released(kernel, kir.ThreadFence(GPU), relaxed=True))
    assert not judged(released(kernel, kir.ThreadFence(GPU), scope=CTA))


def test_an_acquire_reaches_as_far_as_its_scope() -> None:
    """A wait at CTA scope sees the turn and not the writes, unless a fence follows."""
    for fenced in (False, True):
        after: list[kir.Stmt] = [kir.ThreadFence(GPU)] if fenced else []
        kernel = changed(
            split_k(),
            kir.BlockSerializeWait,
            lambda s, after=after: [replace(s, scope=CTA), *after],  # type: ignore[misc]  # a default binds
        )
        assert judged(kernel) == (set() if fenced else {"scope"})


def test_a_release_covers_its_own_thread_only() -> None:
    """Without the block sync before it, the writes of the other threads are not collected."""
    kernel = split_k()
    syncs = [s for s in kernel.body if isinstance(s, kir.BlockSync)]
    bare = kernel.rewrite(lambda s: [] if s is syncs[-1] else None)
    assert judged(bare) <= {"RAW", "WAR", "WAW"}
    assert judged(bare)


@pytest.mark.parametrize(("read_only", "keep"), [(True, 0), (False, 1)])
def test_copies_are_drained_before_a_release(read_only: bool, keep: int) -> None:
    """Reads awaited, or too few groups awaited: the turn is given away with writes in flight."""
    kernel = changed(
        split_k_tma(),
        kir.AsyncAwait,
        lambda s: (
            [replace(s, read_only=read_only, keep=keep)]
            if isinstance(s, kir.AsyncAwait) and s.kind is kir.AsyncKind.BULK
            else [s]
        ),
    )
    assert judged(kernel, 2) == {"drain"}


@pytest.mark.parametrize("space", [*kir.Space, None])
def test_a_reduction_after_an_acquire_needs_a_fence_of_global_memory(
    space: kir.Space | None,
) -> None:
    """Of the issuing thread, and of the right space."""
    kernel = changed(
        split_k_tma(),
        kir.FenceAsyncProxy,
        lambda s: (
            [s]
            if s == kir.FenceAsyncProxy(kir.Space.SHARED)
            else [kir.FenceAsyncProxy(space)]
            if space is not None
            else []
        ),
    )
    safe = space in (kir.Space.GLOBAL, kir.Space.ALL)
    assert judged(kernel) == (set() if safe else {"proxy"})


def test_a_semaphore_is_left_at_zero() -> None:
    """The last turn is not taken back."""
    kernel = changed(
        split_k(),
        kir.BlockSerializeRelease,
        lambda s: (
            [replace(s, turn=kir.BLOCK + 1)] if isinstance(s, kir.BlockSerializeRelease) else []
        ),
    )
    assert judged(kernel) == {"semaphore"}


def test_a_turn_needs_a_cta_that_runs() -> None:
    """Nothing is known of other CTAs, or CTAs wait for those that start after them."""
    assert judged(replace(split_k(), residency="any")) == {"residency"}
    assert not judged(replace(split_k(), residency="any"), 1)
    assert not judged(replace(split_k(), residency="co-resident"))
    last = kir.GRID - 1 - kir.BLOCK

    def backwards(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Let(var) if var.name == "turn":
                return [replace(stmt, value=last)]
            case _:
                return None

    kernel = split_k().rewrite(backwards)
    verdict = search(kernel, split(3), schedules=24)
    assert kinds(verdict) == {"residency"}, verdict
    assert not judged(replace(kernel, residency="co-resident"))


def test_a_workspace_starts_as_poison() -> None:
    """Adding to it in the first turn reads what nobody wrote in this launch."""
    kernel = split_k().rewrite(
        lambda s: (
            [replace(s, condition=0)]
            if isinstance(s, kir.IfThenElse)
            and s.orelse
            and any(isinstance(t, kir.Load) for t in s.orelse)
            else None
        )
    )
    assert judged(kernel, 1) == {"RAW"}


def test_requirements_are_checked_at_the_launch() -> None:
    """A launch that breaks one says nothing of the kernel."""
    verdict = simulate(split_k(), replace(split(3), grid=4))
    assert verdict.status is Status.UNSUPPORTED
    assert verdict.reason.startswith("launch: split_k requires")
    odd = simulate(replace(cluster_multicast(), requires=()), Launch(3, {"M": 64, "N": 8, "K": 8}))
    assert odd.status is Status.UNSUPPORTED


# --- programs -----------------------------------------------------------------------------------


def test_launches_in_a_row_share_memory() -> None:
    """The second launch reads, in every proxy, what the first one wrote; the boundary orders."""
    first = kernels.staged(2)
    t2 = replace(T1, name="T2")
    again = kernels.specialized(2).rewrite(
        lambda s: (
            [replace(s, src=box(T1))]
            if isinstance(s, kir.TmaLoad)
            else [replace(s, dst=box(t2))]
            if isinstance(s, kir.Store)
            else None
        )
    )
    again = replace(again, tensors=(T1, t2), outputs=("T2",))
    launch = Launch(1, {"R": 4, "C": 128, "pitch": 128})
    x = np.arange(512, dtype=np.float32).reshape(4, 128)
    tensors = {"T0": x, "T1": np.zeros_like(x), "T2": np.zeros_like(x)}
    verdict = simulate(LaunchSequence("two", (first, again)), (launch, launch), tensors)
    assert verdict.status is Status.PASS, verdict
    np.testing.assert_array_equal(tensors["T2"], 4 * x)
    with pytest.raises(ValueError, match="2 kernels and 1 launches"):
        simulate(LaunchSequence("two", (first, again)), launch)


def test_a_defect_of_a_program_names_its_launch() -> None:
    """Two launches of one kernel have the same lines; a reader must know which one fails."""
    right = kernels.staged(2)
    wrong = kernels.staged(2, ready_sync=False)
    launch = Launch(1, {"R": 8, "C": 128, "pitch": 128})
    verdict = search(LaunchSequence("two", (right, wrong)), (launch, launch), schedules=6)
    (error,) = [f for f in verdict.findings if f.severity == "error"]
    assert error.where.startswith(f"launch 1 ({wrong.name}), CTA 0, ")


# --- clusters -----------------------------------------------------------------------------------


def hasty() -> kir.Kernel:
    """Return the multicast kernel, in which slots are freed for the peer first."""
    ranks = [1 - kir.RANK, kir.RANK]

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierArrive(_, _, _, cta) if cta is not None:
                return [replace(stmt, cta=ranks.pop(0))]
            case _:
                return None

    return cluster_multicast().rewrite(rule)


def cluster(kernel: kir.Kernel, steps: int = 5) -> set[str]:
    """Return the kinds of errors on a pair of CTAs."""
    return kinds(search(kernel, Launch(2, {"M": 128, "N": 8, "K": 16 * steps}), schedules=6))


def test_a_cluster_shares_an_operand() -> None:
    """Values of a multicast, over tails and several clusters."""
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-4, 5, (n, 72)).astype(np.float32) for n in (192, 16))
    for seed in range(3):
        d = np.full((192, 16), np.nan, np.float32)
        launch = Launch(8, {"M": 192, "N": 16, "K": 72})
        verdict = simulate(cluster_multicast(), launch, {"A": a, "B": b, "D": d}, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(d, a @ b.T)


def test_an_arrival_on_a_peer_must_know_its_phase() -> None:
    """Freed for the peer first, its next arrival may overtake the one that is still missing."""
    assert not cluster(cluster_multicast())
    assert cluster(hasty()) == {"arrivals"}


def test_handshakes_across_ctas_need_cluster_scope() -> None:
    """Arrivals and waits at CTA scope free a slot that a peer may still read."""
    narrow = changed(cluster_multicast(), kir.MBarrierArrive, lambda s: [replace(s, scope=CTA)])  # type: ignore[arg-type]  # an arrive
    assert cluster(narrow) == {"scope"}
    near = changed(cluster_multicast(), kir.MBarrierWaitParity, lambda s: [replace(s, scope=CTA)])  # type: ignore[arg-type]  # a wait
    assert cluster(near) == {"scope"}


def test_a_cluster_must_see_its_barriers_begin_and_end() -> None:
    """The fence of the inits, the first meeting, and the last one before the exit."""
    kernel = cluster_multicast()
    assert cluster(changed(kernel, kir.FenceMBarrierInit, lambda s: [])) == {"init"}
    meetings = [i for i, s in enumerate(kernel.body) if isinstance(s, kir.ClusterArrive)]
    for at, kind in zip(meetings, ("init", "exit"), strict=True):
        body = (*kernel.body[:at], *kernel.body[at + 2 :])
        assert cluster(replace(kernel, body=body)) == {kind}
        relaxed = (kir.ClusterArrive(relaxed=True), *kernel.body[at + 1 :])
        covered = set() if kind == "init" else {kind}  # by the fence of the inits; by nothing
        assert cluster(replace(kernel, body=(*kernel.body[:at], *relaxed))) == covered
        fenced = (*kernel.body[:at], kir.ThreadFence(CLUSTER), *relaxed)
        assert cluster(replace(kernel, body=fenced)) == set()
        alone = (*kernel.body[:at], *kernel.body[at + 1 :])
        assert cluster(replace(kernel, body=alone)) == {"collective"}


@pytest.mark.parametrize("order", ["release", "relaxed", "fenced", "none"])
def test_distributed_shared_memory_is_ordered_by_the_cluster(order: str) -> None:
    """Each CTA reads the tile that its neighbour wrote."""
    tile = kir.Buffer("S0", DType.F32, (4, 64), 1, 0)
    scattered = kir.Layout((4, 64), 2, ALL)
    z = kir.Fragment("z", DType.F32, scattered)
    arrive: list[kir.Stmt] = [kir.ClusterArrive(relaxed=order != "release"), kir.ClusterWait()]
    if order == "fenced":
        arrive.insert(0, kir.ThreadFence(CLUSTER))
    body: list[kir.Stmt] = [
        kir.Load(X, box(T0, 0), 4),
        kir.Store(kir.Slot(tile, 0), X, 4),
        *(arrive if order != "none" else []),
        kir.Load(z, kir.Slot(tile, 0, 1 - kir.RANK), 2),
        kir.Store(box(T1, 0), z, 2),
        kir.ClusterArrive(),
        kir.ClusterWait(),
    ]
    kernel = replace(kernels.kernel("swap", body, buffers=(tile,)), cluster=2)
    launch = Launch(2, {"R": 4, "C": 128, "pitch": 128})
    x = np.arange(512, dtype=np.float32).reshape(4, 128)
    found = set()
    for seed in range(6):
        out = np.zeros_like(x)
        verdict = simulate(kernel, launch, {"T0": x, "T1": out}, seed=seed)
        found |= kinds(verdict)
        if not kinds(verdict):
            np.testing.assert_array_equal(out, np.roll(x, 64, axis=1))
    if order in ("release", "fenced"):
        assert not found
    else:
        assert found <= {"RAW", "scope"}
        assert found
    early = replace(kernel, body=kernel.body[:-2])
    if order == "release":
        assert kinds(search(early, launch, schedules=6)) == {"exit"}


# --- registers, elections, exotic barriers ------------------------------------------------------


@pytest.mark.parametrize(
    ("down", "up", "kind"),
    [
        (24, 136, set()),
        (24, 144, {"registers"}),
        (80, 136, {"registers"}),
        (24, 140, {"registers"}),
    ],
)
def test_registers_come_from_a_pool(down: int, up: int, kind: set[str]) -> None:
    """Two warpgroups of 80 registers: one gives back what the other takes."""
    give = kir.Role("give", 0, 4, (kir.SetMaxNReg(down, increase=False),))
    take = kir.Role("take", 4, 4, (kir.SetMaxNReg(up, increase=True),))
    load, store = kir.Load(X, box(T0, 0), 4), kir.Store(box(T1, 0), Y, 4)
    work = kir.Role("work", 0, 4, (load, add(), store))
    body: list[kir.Stmt] = [give, take, work]
    kernel = replace(kernels.kernel("pool", body, threads=256), registers=80)
    verdict = search(kernel, Launch(1, {"R": 4, "C": 64, "pitch": 64}), schedules=6)
    assert kinds(verdict) == kind, verdict


def test_registers_are_set_by_whole_warpgroups() -> None:
    """Two of four warps execute it."""
    half = kir.Role("half", 0, 2, (kir.SetMaxNReg(24, increase=False),))
    body: list[kir.Stmt] = [half, kir.Load(X, box(T0, 0), 4), add(), kir.Store(box(T1, 0), Y, 4)]
    kernel = replace(kernels.kernel("half", body), registers=80)
    verdict = simulate(kernel, Launch(1, {"R": 4, "C": 64, "pitch": 64}))
    assert kinds(verdict) == {"collective"}


@pytest.mark.parametrize(
    ("per", "count"), [(kir.Per.ROLE, 1), (kir.Per.WARPGROUP, 2), (kir.Per.WARP, 8)]
)
def test_elections_count(per: kir.Per, count: int) -> None:
    """One arrival per role, warpgroup or warp of 256 threads."""
    ring = kir.MBarrier("ring", count, 1)
    work = kir.Role("work", 0, 4, (kir.Load(X, box(T0, 0), 4), add(), kir.Store(box(T1, 0), Y, 4)))
    body: list[kir.Stmt] = [
        kir.Elect(ONE, (kir.MBarrierInit(ring),)),
        kir.BlockSync(0, 256),
        kir.Elect(per, (kir.MBarrierArrive(ring, 0),)),
        kir.MBarrierWaitParity(ring, 0, 0),
        work,
    ]
    kernel = kernels.kernel("elect", body, barriers=(ring,), threads=256)
    verdict = search(kernel, Launch(1, {"R": 4, "C": 64, "pitch": 64}), schedules=6)
    assert verdict.status is Status.PASS, verdict


def test_positions_are_carried_out_of_loops() -> None:
    """An assignment in a nested body is seen after it; a let in it is not."""
    p = kernels.TILE
    step = kir.Assign(p, p + 1)
    inner = kir.ForLoop(
        kernels.K, 2, (kir.IfThenElse(eq(kernels.K, 0), (step,), (replace(step),)),)
    )
    store = kir.Store(kir.Box(T1, (0, (p - 2) * 64), (4, 64), (4, kernels.C)), Y, 4)
    body: list[kir.Stmt] = [kir.Let(p, 0), inner, kir.Load(X, box(T0, 0), 4), add(), store]
    verdict = simulate(kernels.kernel("p", body), Launch(1, {"R": 4, "C": 64, "pitch": 64}))
    assert verdict.status is Status.PASS, verdict


# --- CTAs at an integer of a semaphore: which is the last-arriving one, and what it may rely on ---


def grid_kinds(verdict: Verdict) -> set[str]:
    """Return the kinds of its errors."""
    return {f.kind for f in verdict.findings if f.severity == "error"}


def grid_judged(kernel: kir.Kernel, ctas: int = 3, schedules: int = 12) -> set[str]:
    """Return the kinds of errors of a few schedules."""
    return grid_kinds(search(kernel, Launch(ctas, {"s": ctas}), schedules=schedules))


@pytest.mark.parametrize("residency", ["any", "ticket", "co-resident"])
@pytest.mark.parametrize("ctas", [1, 2, 3])
def test_the_sum_is_right_whoever_comes_last(residency: str, ctas: int) -> None:
    """Over some seeds every CTA has been the last, as a tile of its own shows."""
    z = tensor("Z")
    made = grid(
        (
            load(MINE, litmus.parts.box(XS, kir.BLOCK)),
            PUT,
            last(*SUM, OUT, store(litmus.parts.box(z), MINE)),
        ),
        (XS, WS, Y1, z),
        residency=residency,
    )
    made = replace(made, outputs=("Y", "Z"))
    x = np.random.default_rng(ctas).integers(-9, 9, (ctas * TILE[0], TILE[1])).astype(np.float32)
    parts = x.reshape(ctas, *TILE)
    who = set[int]()
    for seed in range(24):
        y, one = (np.full(TILE, np.nan, np.float32) for _ in range(2))
        given = {"X": x, "Y": y, "Z": one}
        verdict = simulate(made, Launch(ctas, {"s": ctas}), given, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(y, parts.sum(axis=0))
        who.add(next(cta for cta in range(ctas) if (parts[cta] == one).all()))
    assert who == set(range(ctas))


@pytest.mark.parametrize("who", [0, 1, 2])
def test_what_only_one_cta_gets_wrong_is_found(who: int) -> None:
    """A body that forgets the output where a certain CTA is the last."""
    forgets = kir.IfThenElse(eq(kir.BLOCK, who), (), (OUT,))
    made = arriving("put every", every=last(*SUM, forgets))
    assert grid_judged(made, schedules=24) == {"coverage"}


def test_groups_come_to_integers_of_their_own() -> None:
    """Each of two outputs is the sum of its own group."""
    x = np.arange(4 * 128, dtype=np.float32).reshape(16, 32)
    for seed in range(6):
        y = np.full((8, 32), np.nan, np.float32)
        launch = Launch(4, {"s": 2})
        verdict = simulate(of_two_groups(kir.BLOCK // s), launch, {"X": x, "Y": y}, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(y, x.reshape(2, 2, 4, 32).sum(axis=1).reshape(8, 32))


def test_engines_write_in_the_body() -> None:
    """Groups and copies of the body are those of the last CTA only; any CTA can await them."""
    inside = "get restage fence join give"
    assert not grid_judged(by_engine("put last", f"{inside} drain"))
    assert not grid_judged(by_engine("put last drain", inside))
    assert grid_judged(by_engine("put last", inside)) == {"exit"}


# --- who comes ----------------------------------------------------------------------------------


def test_a_second_coming_is_ordered_after_the_first() -> None:
    """By a meeting at another integer; without it a CTA may be counted twice in one round."""
    twice = (PUT, last(of=PAIR), kir.GridSync(PAIR, 1, s), last(*SUM, OUT, of=PAIR))
    assert not grid_judged(ctas_of(*twice))
    assert grid_judged(ctas_of(*twice[:2], *twice[3:])) == {"semaphore"}
    assert not grid_judged(ctas_of(*twice[:2], *twice[3:]), ctas=1)


def test_the_last_of_groups_comes_again_for_all() -> None:
    """An election in the body of another: the last of the first ones adds up what all stored."""
    first, most = kir.BLOCK // 2, 2
    made = ctas_of(
        PUT, last(last(*SUM, OUT, of=PAIR, at=1, ctas=1), of=PAIR, at=0, ctas=s), residency="any"
    )
    assert not grid_judged(made)
    many = kir.Semaphore("turns", 3)
    inner = kir.LastArriving(many, 2, most, (*SUM, OUT))
    nested = ctas_of(PUT, kir.LastArriving(many, first, 2, (inner,)), residency="any")
    nested = replace(nested, semaphores=(many,))
    assert not grid_judged(nested, ctas=4)
    direct = nested.rewrite(lambda stmt: [*SUM, OUT] if stmt is inner else None)
    assert grid_judged(direct, ctas=4) & {"RAW", "WAW"}


@pytest.mark.parametrize("other", ["grid", "wait", "release"])
def test_an_integer_that_elects_does_nothing_else(other: str) -> None:
    """CTAs that meet, and turns, would count in the same integer."""
    others: dict[str, kir.Stmt] = {
        "grid": kir.GridSync(PAIR, 0, s),
        "wait": kir.BlockSerializeWait(PAIR, 0, 0),
        "release": elect(kir.BlockSerializeRelease(PAIR, 0, 0)),
    }
    more = others[other]
    elected = last(*SUM, OUT, of=PAIR)
    assert grid_judged(ctas_of(PUT, elected, more)) == {"semaphore"}
    assert grid_judged(ctas_of(PUT, more, elected)) == {"semaphore"}


@pytest.mark.parametrize(
    ("ctas", "says"),
    [
        (s + 1, "3 of 4 CTAs have arrived at the end"),
        (s - 3, "0 CTAs arrive at turns[0]"),
    ],
)
def test_another_number_of_ctas_comes(ctas: Var, says: str) -> None:
    """The text says how many have come, and to what."""
    verdict = simulate(arriving(ctas=ctas), Launch(3, {"s": 3}))
    assert grid_kinds(verdict) == {"semaphore"}
    assert says in verdict.findings[0].witness


def test_one_more_comes_than_is_counted() -> None:
    """Its coming is not ordered after that of the last one."""
    verdict = simulate(arriving("pass mine", ctas=s - 1, apart=True), Launch(3, {"s": 3}))
    assert grid_kinds(verdict) == {"semaphore"}
    assert "nothing orders it after the last of them" in verdict.findings[0].witness


def test_the_launch_that_leaves_an_integer_dirty_is_named() -> None:
    """The next one would begin at another number."""
    launch = Launch(2, {"s": 2})
    two = LaunchSequence("two", (arriving(), arriving(ctas=s + 1)))
    (error,) = (f for f in simulate(two, (launch, launch)).findings if f.severity == "error")
    assert error.kind == "semaphore"
    assert error.where.startswith("launch 1 ")


def test_a_witness_tells_of_the_integer() -> None:
    """Its rows are those of the CTAs that came there."""
    found = witness(arriving("put pass last"), Launch(2, {"s": 2}))
    assert found is not None
    assert any("turns arrive as one of 2 CTAs" in row.text for row in found.rows)


# --- what is laid out ahead ---------------------------------------------------------------------


def test_the_same_role_of_every_cta_comes() -> None:
    """CTA 0 by its first two warps, the others by their last two."""
    made = by_roles()
    assert grid_judged(made, ctas=2) == {"collective"}
    assert not grid_judged(made, ctas=1)
    assert not grid_judged(replace(made, body=(by_role(2),)), ctas=2)


def test_single_lanes_cannot_come() -> None:
    """All threads of the role ask; here those of one warp each send one."""
    made = arriving("put alone")
    assert grid_judged(made) == {"collective"}


def test_a_variable_may_not_depend_on_who_was_last() -> None:
    """A position that the body moves on has no value behind it, unless nobody asks."""
    p = Var("p")
    steps = kir.ForLoop(t, p, (kir.BlockSync(0, 64),))
    moved = last(kir.Assign(p, p + 1), kir.ForLoop(t, p, ()), *SUM, OUT)
    body: Body = (kir.Let(p, 1), PUT, moved)
    assert not grid_judged(grid((load(MINE, litmus.parts.box(XS, kir.BLOCK)), *body), (XS, WS, Y1)))
    made = grid((load(MINE, litmus.parts.box(XS, kir.BLOCK)), *body, steps), (XS, WS, Y1))
    verdict = search(made, Launch(2, {"s": 2}), schedules=1)
    assert verdict.status is Status.UNSUPPORTED
    assert "`p` depends on which CTA arrives last" in verdict.reason
    assert not grid_judged(made, ctas=1)


def test_registers_of_the_body_are_the_last_ctas() -> None:
    """Behind it the others have none, where there are others."""
    made = arriving(
        "put every behind", every=last(*SUM), behind=store(litmus.parts.box(YS, kir.BLOCK), TOTAL)
    )
    made = replace(made, tensors=(XS, WS, YS))
    assert not grid_judged(made, ctas=1)
    assert grid_judged(made) == {"RAW"}


def test_reads_awaited_are_not_drained() -> None:
    """Not even where nobody reads what is on its way: other CTAs may."""
    assert grid_judged(by_engine(f"{SENT} read last", "get out")) == {"drain"}
    assert not grid_judged(by_engine(f"{SENT} join drain join last", "get out"))

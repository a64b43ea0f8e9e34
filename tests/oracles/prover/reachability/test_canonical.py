"""The canonical form leaves out only what follows from the rest: no state hides a worse one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fuser.cookbook import recipes
from fuser.cookbook.ring import (
    BULK,
    ELECT,
    emptied,
    filled,
    k,
    p,
    q,
    ring,
    start,
    step,
    trips,
)
from fuser.cookbook.sum import IN, SUM_NBYTES, C, R, X, Y, sum_box, sum_kernel, sum_slots
from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, Var, ceildiv, eq, fold, maximum, minimum
from fuser.kernel import ir as kir
from fuzz.mutation import operators
from oracles.prover import prove
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability import canonical, fixpoint
from oracles.prover.reachability.canonical import (
    Abstraction,
    Against,
    Rotation,
    comparisons,
    numbers,
)
from oracles.prover.reachability.code import Code
from oracles.prover.reachability.ctas import readings
from oracles.prover.reachability.state import Place, Unknown
from oracles.verdict import Status

M = Var("M")


def _copied(s: kir.Buffer) -> kir.Stmt:
    """One thread copies the tile of a round to global memory, and waits for the copy."""
    return kir.Elect(
        ELECT,
        (
            kir.TmaStore(sum_box(Y, k), kir.Slot(s, 0)),
            kir.AsyncCommit(BULK),
            kir.AsyncAwait(BULK, 0),
        ),
    )


def _fenced_if(condition: Expr) -> kir.Kernel:
    """Return a kernel whose copies follow a store through a fence, if a condition holds."""
    s = sum_slots("S", 1)
    body = (
        kir.Load(IN, sum_box(X, 0), 4),
        kir.Store(kir.Slot(s, 0), IN, 4),
        kir.IfThenElse(condition, (kir.FenceAsyncProxy(kir.Space.SHARED),)),
        kir.BlockSync(1, 128),
        kir.ForLoop(k, trips, (_copied(s),)),
    )
    return replace(sum_kernel("fenced_if", body, (s,), (), 128), params=(R, C, M))


def _stores(fence: kir.Stmt, *more: kir.Stmt) -> kir.Kernel:
    """Return a kernel that stores a tile and copies it in every round, with a fence between."""
    s = sum_slots("S", 1)
    loop = (
        kir.Load(IN, sum_box(X, k), 4),
        kir.BlockSync(0, 128),
        kir.Store(kir.Slot(s, 0), IN, 4),
        fence,
        kir.BlockSync(1, 128),
        _copied(s),
        *more,
    )
    body = (kir.Let(p, 10), kir.Let(q, 0), kir.ForLoop(k, trips, loop))
    return replace(sum_kernel("stores", body, (s,), (), 128), params=(R, C, M))


FENCE = kir.FenceAsyncProxy(kir.Space.SHARED)


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (Op(Kind.LE, 1, q % 5), (kir.Assign(q, q + k // 3),)),
        (eq(q % 2, 0), (kir.Assign(q, p), kir.Assign(p, k // 4))),
    ],
)
def test_what_an_assignment_makes_of_a_value_is_a_use_of_it(
    condition: Expr, steps: tuple[kir.Stmt, ...]
) -> None:
    """Rounds that only a later assignment tells apart were one, and a missing fence was missed."""
    kernel = _stores(kir.IfThenElse(condition, (FENCE,)), *steps)
    assert {v.kind for v in fixpoint.judge(kernel).violations} == {"proxy"}


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (Op(Kind.LE, 3, p), (step(p, -1),)),
        (eq(p % 2, 0), (kir.Assign(p, p // 2),)),
        (p <= q + 20, (step(p, 2), step(q))),
    ],
)
def test_values_that_do_not_repeat_are_refused(
    condition: Expr, steps: tuple[kir.Stmt, ...]
) -> None:
    """A position that falls, or is compared with another, was taken to repeat: a false proof."""
    kernel = _stores(kir.IfThenElse(condition, (FENCE,)), *steps)
    with pytest.raises(UnsupportedError, match="repeat|fall below"):
        fixpoint.judge(kernel)


def test_a_count_known_in_advance_is_still_reached() -> None:
    """Rounds before a count of at least eight were one, so the round without a fence never came."""
    blocks = ceildiv(M, 4)
    inner = kir.IfThenElse(k < blocks, (FENCE,))
    kernel = _stores(kir.IfThenElse(Op(Kind.LE, 8, blocks), (inner,), (FENCE,)))
    assert {v.kind for v in fixpoint.judge(kernel).violations} == {"proxy"}


def test_a_fence_that_everybody_knows_of_is_not_one_that_nobody_does() -> None:
    """The states after it, with and without, were one: a launch without the fence was proved."""
    blocks = ceildiv(M, 4)
    for condition in (blocks < 5, Op(Kind.LE, 5, blocks)):
        found = fixpoint.judge(_fenced_if(condition)).violations
        assert {v.kind for v in found} == {"proxy"}


# --- counts that tell states apart ----------------------------------------------------------------


j, t, tiles = Var("j"), Var("t"), Var("tiles")
SYNC = kir.BlockSync(0, 32)


def _code(*body: kir.Stmt) -> Code:
    kernel = replace(
        recipes.store_ring(), buffers=(), barriers=(), threads=32, tensors=(), outputs=(),
        params=(trips, tiles), requires=(), body=body,
    )  # fmt: skip
    return fixpoint.opened(kernel, next(iter(readings(kernel))), policy="default").world.code


def _found(*body: kir.Stmt) -> list[Against]:
    return list(comparisons(_code(*body), 0))


def _prolog(stop: int, test: Expr) -> kir.ForLoop:
    return kir.ForLoop(j, stop, (kir.IfThenElse(test, (SYNC,)),))


def test_the_largest_value_of_a_counter_is_the_largest_bound() -> None:
    """`j < trips` asks whether there are 1 ... 5 trips; j is 4 last, and 5 when it is left."""
    (one,) = _found(_prolog(5, j < trips))
    assert (one.most, one.names) == (6, frozenset())


def test_a_counter_of_unknown_length_goes_on() -> None:
    """No largest bound is known of it, so the distance counts."""
    (one,) = _found(kir.ForLoop(k, trips, (kir.IfThenElse(k < tiles, (SYNC,)),)))
    assert one.names == {"k"}


def test_a_tiles_prolog_is_passed_until_the_next_tile() -> None:
    """Behind it the same count of this tile is compared no more, but that of the next is."""
    loops = (_prolog(2, j < trips), kir.ForLoop(k, trips, (SYNC,)))
    code = _code(kir.ForLoop(t, tiles, loops))
    (one,) = comparisons(code, 0)
    program = code.programs[0]
    steps = next(at for at, i in enumerate(program) if getattr(i, "name", "") == "k")
    assert one.inner < steps < one.last


def test_a_name_with_two_uses_is_no_counter_to_a_number() -> None:
    """What one loop counts to five another counts to no end."""
    code = _code(_prolog(5, j < trips), kir.ForLoop(j, trips, (SYNC,)), kir.ForLoop(t, 3, (SYNC,)))
    assert numbers(code) == {"t": 3}


def _second(condition: Expr, first: kir.Stmt) -> kir.Kernel:
    """Return a kernel with a role that waits for another's rounds before its own.

    It copies a tile in every round, through a fence if a condition holds.
    """
    s = sum_slots("S", 1)
    rounds = (
        kir.Load(IN, sum_box(X, k), 4),
        kir.BlockSync(2, 128),
        kir.Store(kir.Slot(s, 0), IN, 4),
        kir.IfThenElse(condition, (kir.FenceAsyncProxy(kir.Space.SHARED),)),
        kir.BlockSync(2, 128),
        _copied(s),
    )
    roles = (
        kir.Role("late", 0, 4, (kir.BlockSync(1, 256), kir.ForLoop(k, trips, rounds))),
        kir.Role("early", 4, 4, (first, kir.NamedArrive(1, 256))),
    )
    return sum_kernel("second", roles, (s,), (), 256)


SAME = kir.ForLoop(q, trips, (kir.BlockSync(3, 128),))
"""As many rounds as the late role goes through."""


@pytest.mark.parametrize("bound", [1, 3, 12, 40])
def test_rounds_of_one_role_do_not_stand_for_those_of_another(bound: int) -> None:
    """The early role's rounds are all one, so the late one was seen in its first only.

    From round `bound` on nothing fences its copies: a false proof.
    """
    found = fixpoint.judge(_second(k < bound, SAME)).violations
    assert {(v.kind, v.k) for v in found} == {("proxy", bound)}


def test_roles_one_after_the_other_are_proved() -> None:
    """A lead without bound must not keep a right kernel from its proof."""
    closed = fixpoint.judge(_second(1, SAME))
    assert (closed.violations, closed.reason) == ((), "")
    assert closed.states < 50


def test_what_shows_only_with_two_lengths_for_one_count_is_no_refutation() -> None:
    """The late role never goes through more rounds than the early one, though it is let go."""
    early = kir.IfThenElse(trips < 12, (), (SAME,))
    closed = fixpoint.judge(_second(k < trips, early))
    assert closed.violations == ()


ROUND = kir.BlockSync(0, 128)


def _after(condition: Expr, *around: kir.Stmt) -> kir.Kernel:
    """Return a kernel that goes its rounds and then copies a tile, fenced if a condition holds."""
    s = sum_slots("S", 1)
    body = (
        *around,
        kir.ForLoop(q, trips, (ROUND,)),
        kir.Let(k, 0),
        kir.Load(IN, sum_box(X, k), 4),
        kir.Store(kir.Slot(s, 0), IN, 4),
        kir.IfThenElse(condition, (FENCE,)),
        ROUND,
        _copied(s),
    )
    return sum_kernel("after", body, (s,), (), 128)


@pytest.mark.parametrize("bound", [1, 3, 12, 40])
def test_a_count_is_followed_up_to_what_it_is_compared_with(bound: int) -> None:
    """All rounds of an empty loop were one, so that no launch of more than one came: a false proof.

    From `bound` trips on, the copy reads what no fence covers.
    """
    found = fixpoint.judge(_after(trips < bound)).violations
    assert {(v.kind, v.trips) for v in found} == {("proxy", bound)}


ENDS = {
    "both": minimum(trips, M),
    "either": maximum(trips, M),
    "a few": minimum(trips, 2) + maximum(trips - M, 0),
    "as many": minimum(trips, M) + maximum(trips - M, 0),
}
"""Lengths of which no count alone decides whether there is another round."""


@pytest.mark.parametrize("end", ENDS)
def test_rounds_that_several_counts_end_repeat(end: str) -> None:
    """What a loop is beyond long ago told each round from the last: 0.5 GB, and no answer."""
    kernel = _stores(FENCE)
    *lets, loop = kernel.body
    assert isinstance(loop, kir.ForLoop)
    closed = fixpoint.judge(replace(kernel, body=(*lets, replace(loop, stop=ENDS[end]))))
    assert (closed.reason, closed.violations) == ("", ())
    assert closed.states < 40


@pytest.mark.parametrize("bound", [1, 3, 12, 40])
@pytest.mark.parametrize("end", ENDS)
def test_what_follows_them_is_followed_as_far(end: str, bound: int) -> None:
    """From `bound` on, for one of the counts, the copy reads what no fence covers."""
    kernel = _after(trips < bound)
    *before, loop, let, load, store, fence, sync, copy = kernel.body
    assert isinstance(loop, kir.ForLoop)
    body = (*before, replace(loop, stop=ENDS[end]), let, load, store, fence, sync, copy)
    found = fixpoint.judge(replace(kernel, params=(R, C, M), body=body)).violations
    assert {v.kind for v in found} == {"proxy"}


def _if_all(conditions: tuple[Expr, ...], *body: kir.Stmt) -> tuple[kir.Stmt, ...]:
    for condition in reversed(conditions):
        body = (kir.IfThenElse(condition, body),)
    return body


def _told_later(outer: Expr, stop: Expr, bound: int) -> kir.Kernel:
    """Return a kernel whose second tile copies what no fence covers, if `trips` is `bound`.

    That it is at most so much is seen in the first tile, that it is at least in the second.
    """
    tile, seen, s = Var("tile"), Var("seen"), sum_slots("S", 1)
    filled = (kir.Load(IN, sum_box(X, 0), 4), kir.Store(kir.Slot(s, 0), IN, 4), ROUND)
    few = (eq(tile, 0), eq(q, bound), fold(Kind.LE, trips, q))
    wrong = (eq(tile, 1), eq(q, bound - 1), q < trips, eq(seen, 1))
    loop = (*_if_all(few, kir.Assign(seen, 1)), *_if_all(wrong, *filled, _copied(s), ROUND), ROUND)
    tiles = kir.ForLoop(tile, outer, (kir.ForLoop(q, stop, loop),))
    body = (kir.Let(seen, 0), kir.Let(k, 0), tiles)
    return replace(sum_kernel("told_later", body, (s,), (), 128), params=(R, C, M))


@pytest.mark.parametrize("bound", [1, 3, 7])
@pytest.mark.parametrize("stop", [maximum(trips, 8), maximum(trips, M), minimum(trips, M) + 8])
@pytest.mark.parametrize("outer", [2, R])
def test_what_a_loop_is_beyond_is_not_forgotten_before_it_begins_again(
    outer: Expr, stop: Expr, bound: int
) -> None:
    """Rounds that agree but for such a count are one only while nobody compares with it again."""
    found = fixpoint.judge(_told_later(outer, stop, bound)).violations
    assert {v.kind for v in found} == {"proxy"}


def test_a_count_compared_with_a_prologs_counter_is_followed_as_far_as_that_goes() -> None:
    """A prolog of five rounds asks five numbers; behind its loop nobody asks any more."""
    sync = kir.IfThenElse(j < trips, (ROUND,))
    kernel = _after(1, kir.ForLoop(j, 5, (sync,)))
    one = fixpoint.opened(kernel, next(iter(readings(kernel))), policy="default")
    state, code, counts = one.start(), one.world.code, Abstraction(one.world)
    (atom,) = code.counts
    assert counts.limit(state, Unknown(atom, (), 0)) == 6
    with pytest.raises(Exception, match=">="):
        one.execution(state).settle()
    for a in state.agents:
        a.at = next(n for n, i in enumerate(code.programs[a.kind.index]) if _main(i)) + 1
    assert counts.limit(state, Unknown(atom, (), 0)) == 0


def _main(i: object) -> bool:
    return getattr(i, "name", "") == "q"


def test_a_prolog_in_each_tile_ends_in_states_that_repeat() -> None:
    """A tile's steps were distinguished without end by a test that only the next tile makes."""
    tiles, tile = Var("tiles"), Var("tile")
    sync = kir.IfThenElse(j < trips, (ROUND,))
    body = (kir.ForLoop(j, 2, (sync,)), kir.ForLoop(q, trips, (ROUND,)))
    kernel = _after(1)
    kernel = replace(
        kernel,
        params=(*kernel.params, tiles),
        body=(kernel.body[0], kir.ForLoop(tile, tiles, body), *kernel.body[2:]),
    )
    closed = fixpoint.judge(kernel)
    assert (closed.reason, closed.violations) == ("", ())
    assert closed.states < 100


def test_a_false_proof_is_none_for_the_prover_either() -> None:
    """No second engine may hide it: this kernel is one that only `reachability` follows."""
    assert prove.prove(_after(trips < 12)).status is not Status.PASS


# --- states that differ by a rotation of their rings are one: fewer states, no other verdict ------


TURNING = ("store_ring", "specialized_ring", "double_wgmma", "cluster_multicast")


def _rotation(kernel: kir.Kernel) -> Rotation:
    reading = next(iter(readings(kernel)))
    return fixpoint.opened(kernel, reading, policy="default").abstraction.rotation


def _said(kernel: kir.Kernel) -> Iterator[tuple[str, str]]:
    closed = fixpoint.judge(kernel)
    yield from sorted({(v.severity, v.kind) for v in (*closed.violations, *closed.warnings)})
    yield "reason", closed.reason


@pytest.mark.parametrize("name", ["store_ring", "specialized_ring"])
def test_no_verdict_depends_on_turning(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with a kernel is wrong in the state that was not looked at again."""
    kernels = [m.kernel for m in operators.drop_each_sync(recipes.RECIPES[name]())]
    turned = [list(_said(kernel)) for kernel in kernels]
    monkeypatch.setattr(canonical, "rotation_of", lambda *_: Rotation())
    assert turned == [list(_said(kernel)) for kernel in kernels]


@pytest.mark.parametrize("name", TURNING)
def test_a_ring_turns(name: str) -> None:
    """One more turn of the ring is no other state."""
    assert _rotation(recipes.RECIPES[name]()).rings


def _two_rings(stages: int, second: Expr) -> kir.Kernel:
    """Return a kernel whose tiles go through two loops, each with its ring and its position.

    The second ring is used at positions `second`.
    """
    barriers: list[kir.MBarrier] = []
    slots: list[kir.Buffer] = []
    loads: list[kir.Stmt] = []
    uses: list[kir.Stmt] = []
    for i, (loop, at, position, rounds) in enumerate(((k, p, p, trips), (j, second, q, M))):
        full, empty = ring(f"full{i}", 1, stages), ring(f"empty{i}", 128, stages)
        s, slot = sum_slots(f"S{i}", stages, SUM_NBYTES * stages * i), at % stages
        load = (
            emptied(empty, at, stages),
            kir.MBarrierArriveExpectTx(full, slot, SUM_NBYTES),
            kir.TmaLoad(kir.Slot(s, slot), sum_box(X, loop), full, slot),
            step(position),
        )
        use = (
            filled(full, at, stages),
            kir.Load(IN, kir.Slot(s, slot), 4),
            kir.MBarrierArrive(empty, slot),
            step(position),
        )
        loads.append(kir.ForLoop(loop, rounds, load))
        uses.append(kir.ForLoop(loop, rounds, use))
        slots.append(s)
        barriers += full, empty
    roles = (
        kir.Role("compute", 0, 4, (kir.ForLoop(t, tiles, tuple(uses)),)),
        kir.Role("load", 4, 1, (kir.Elect(ELECT, (kir.ForLoop(t, tiles, tuple(loads)),)),)),
    )
    body = (*start(*barriers, threads=160), kir.Let(p, 0), kir.Let(q, 0), *roles)
    kernel = sum_kernel("two_rings", body, tuple(slots), tuple(barriers), 160)
    return replace(kernel, params=(R, C, M, tiles))


def test_rings_that_share_no_position_turn_independently() -> None:
    """Where one ring is tells nothing about the other: 106 states, and not 884."""
    assert len(_rotation(_two_rings(3, q)).orbits) == 2
    closed = fixpoint.judge(_two_rings(3, q))
    assert (closed.violations, closed.reason) == ((), "")
    assert closed.states < 150


def test_rings_whose_positions_stand_together_do_not() -> None:
    """Slot `(p + q) % S` moves with either of them."""
    (orbit,) = _rotation(_two_rings(2, p + q)).orbits
    assert {name for _, name in orbit.rings} >= {"S0", "full0"}


def test_no_verdict_depends_on_turning_two_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with one ring is wrong wherever the other is."""
    kernels = [m.kernel for m in operators.drop_each_sync(_two_rings(2, q))]
    turned = [list(_said(kernel)) for kernel in kernels]
    monkeypatch.setattr(canonical, "rotation_of", lambda *_: Rotation())
    assert turned == [list(_said(kernel)) for kernel in kernels]


def test_turning_on_is_turning_by_the_sum() -> None:
    """A slot that passes the end of its ring has the other parity, and after two ends its own."""
    rotation = _rotation(recipes.specialized_ring(3))
    place = Place("phase", (), (0, "full", 1), 0)
    assert rotation.moved(rotation.moved(place, 1), 1) == rotation.moved(place, 2)
    assert rotation.moved(place, 2) == Place("phase", (), (0, "full", 2), 1)
    (orbit,) = rotation.orbits
    assert rotation.moved(place, orbit.period) == place


def test_a_turning_moves_bits_as_events() -> None:
    """Sets of events and single events name the same things after it."""
    rotation = _rotation(recipes.specialized_ring(3))
    places = list(rotation.places(Place("phase", (), (0, "full", 0), 0)))
    events = {place: number for number, place in enumerate(places)}
    by = rotation.rotated(events, (1,))
    for number in events.values():
        assert by.bits(1 << 4 * number) == 1 << 4 * by.event(number)


def test_turns_go_on_by_their_parity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each role has a slot of its own, a turn more of all roles is no other state."""
    kernel = recipes.ping_pong()
    (orbit,) = (one for one in _rotation(kernel).orbits if one.step > 1)
    assert (orbit.names, orbit.rings, orbit.step, orbit.period) == (
        frozenset({"t"}), {("phase", "order"): 2}, 2, 4,
    )  # fmt: skip
    states = fixpoint.judge(kernel).states
    monkeypatch.setattr(canonical, "_by_parity", lambda *_: iter(()))
    assert states < fixpoint.judge(kernel).states


@pytest.mark.parametrize(
    ("expr", "same"),
    [
        (trips % 2, True), ((3 * trips + 1) % 2 < 1, True), (trips % 3, False),
        (trips // 2 % 2, False), (trips % 2 + trips, False), (k % 3, True),
    ],
)  # fmt: skip
def test_what_repeats_when_two_turns_are_over(expr: Expr, same: bool) -> None:
    """What a condition says of turns, it says again two turns later."""
    assert canonical._repeats(expr, {trips.name}, 2) is same


def test_a_prologs_counter_beside_a_position_turns_with_it() -> None:
    """Slots `(p + j) % S` hold back no turning: j is no position, it only ever counts to two."""
    p, j = Var("p"), Var("j")
    ring = kir.Buffer("S", DType.F32, (1, 4), 3, 0)
    row = kir.Fragment("row", DType.F32, kir.Layout((1, 4), 4, 1))
    for slot, turns in (((p + j) % 3, True), ((2 * p + j) % 3, False)):
        stores = kir.Elect(kir.Per.ROLE, (kir.Store(kir.Slot(ring, slot), row, 4),))
        late = kir.Elect(kir.Per.ROLE, (kir.Store(kir.Slot(ring, p % 3), row, 4),))
        tile = (
            kir.ForLoop(j, 2, (stores, kir.BlockSync(0, 32))),
            kir.ForLoop(k, trips, (late, kir.BlockSync(0, 32), kir.Assign(p, p + 1))),
        )
        tiles = kir.ForLoop(Var("t"), Var("tiles"), tile)
        kernel = replace(
            recipes.store_ring(), buffers=(ring,), barriers=(), threads=32, tensors=(),
            params=(trips, Var("tiles")), outputs=(), requires=(), body=(kir.Let(p, 0), tiles),
        )  # fmt: skip
        rotation = _rotation(kernel)
        assert ("access", "S") in rotation.rings
        (orbit,) = rotation.orbits
        inside = max(orbit.minds) > 1
        assert inside is not turns

"""Deliberate errors of the search: each gives a false proof, and the checker refuses it.

What the checker shares with the search cannot be caught here: the rules of the statements (what
`sync` and `statements` say that a statement orders).  Those are judged by others: `simulator` and
`explorer` have rules of their own, and the `named` invariants follow no search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import or_
from types import ModuleType

import pytest
from litmus.parts import (
    BULK,
    X1,
    Y1,
    Body,
    box,
    elect,
    fragment,
    init,
    k,
    kernel,
    load,
    m,
    n,
    p,
    q,
    slots,
    store,
)
from litmus.suite import by_name

from fuser.cookbook import recipes, ring
from fuser.expr import Expr, eq, fold
from fuser.expr import Kind as Sort
from fuser.kernel import ir as kir
from oracles.prover.inductive import check
from oracles.prover.reachability import canonical, code, ctas, fixpoint, state, world
from oracles.prover.reachability.canonical import Abstraction, Form, Rotation
from oracles.prover.reachability.code import Code
from oracles.prover.reachability.fixpoint import Closed, Execution
from oracles.verdict import Status

RLIMIT = 2_000_000
Breaks = Callable[[pytest.MonkeyPatch], None]


# --- how the search is broken ---------------------------------------------------------------------


def left_out(cls: type, *names: str) -> Breaks:
    """Leave fields out of the key of a part of a state."""
    kept = (one for one in fields(cls) if one.name not in names and one.metadata["key"])
    keys = "".join(f"{one.metadata['key'].format(one.name)}, " for one in kept)
    made = eval(f"lambda it, form: ({keys})")
    return lambda patch: patch.setitem(state._KEYS, cls, made)


def always(cls: type, name: str, value: object) -> Breaks:
    """Let a method have one answer."""
    return lambda patch: patch.setattr(cls, name, lambda *_: value)


def instead(of: type | ModuleType, name: str, make: Callable[..., object]) -> Breaks:
    """Put in place of a function what is made of it."""
    return lambda patch: patch.setattr(of, name, make(getattr(of, name)))


def cycles(make: Callable[[int, int], tuple[int, int]]) -> Breaks:
    """Let values repeat otherwise: from a threshold on, with a period."""

    def maker(right: Callable[..., Code]) -> Callable[..., Code]:
        def compiled(*given: object) -> Code:
            made = right(*given)
            made.cycles = {name: make(*one) for name, one in made.cycles.items()}
            return made

        return compiled

    return instead(code.Compiler, "code", maker)


def first_ways(many: int) -> Breaks:
    """Follow so many ways on from a fork."""
    return instead(Execution, "ways_on", lambda right: lambda *on: right(*on)[-many:])


def without(at: int) -> Breaks:
    """Leave out one part of what is known of a count."""

    def maker(right: Callable[..., tuple[object, ...]]) -> object:
        return lambda *of: (*right(*of)[:at], *right(*of)[at + 1 :])

    return instead(Form, "_count", maker)


def forgetting(what: Callable[[state.State], None]) -> Breaks:
    """Forget something of each state before it is compared."""

    def maker(right: Callable[..., None]) -> object:
        def forget(scene: Execution) -> None:
            what(scene.state)
            right(scene)

        return forget

    return instead(canonical, "forget", maker)


def no_waiters(of: state.State) -> None:
    """Forget who has waited for a phase."""
    for phase in of.phases.values():
        phase.waiters = ()


def sweeping(what: Callable[[state.State], None]) -> Breaks:
    """Take something to be over that is not."""

    def maker(right: Callable[..., None]) -> object:
        def sweep(now: state.State, *known: object) -> None:
            right(now, *known)
            what(now)

        return sweep

    return instead(state.State, "sweep", maker)


def most_one_less(patch: pytest.MonkeyPatch) -> None:
    """Take counts to be less than the kernel requires."""
    right = world.World.__dict__["most"].func
    made = cached_property(lambda it: {n: max(high - 1, 0) for n, high in right(it).items()})
    made.__set_name__(world.World, "most")
    patch.setattr(world.World, "most", made)


def minds_nothing(right: Callable[..., Rotation]) -> object:
    """Take nothing to tell one position of a ring from another."""

    def rotation_of(of: object) -> Rotation:
        orbits = right(of).orbits
        return Rotation(tuple(replace(o, minds=(-1,) * len(o.minds)) for o in orbits))

    return rotation_of


def all_repeats(patch: pytest.MonkeyPatch) -> None:
    """Take every condition on whose turn it is to repeat after two of them."""
    patch.setattr(canonical, "_moduli", lambda *_: iter(()))
    patch.setattr(canonical, "_repeats", lambda *_: True)


def ends(right: Callable[..., Iterator[object]]) -> object:
    """Take nothing to come back in a loop."""
    return lambda program: ((i, at) for at, i in enumerate(program))


# --- kernels that go wrong, most of them late -----------------------------------------------------


S = slots("S")
IN, FENCE = fragment("x", 64), kir.FenceAsyncProxy(kir.Space.SHARED)
SYNC = kir.BlockSync(0, 64)


def copied(fence: kir.Stmt, sync: kir.Stmt = SYNC) -> Body:
    """Store a tile and copy it out by TMA, with a fence between."""
    out = kir.TmaStore(box(Y1), kir.Slot(S, 0)), kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0)
    return (load(IN, box(X1)), sync, store(kir.Slot(S, 0), IN), fence, sync, elect(*out), sync)


def of(
    *body: kir.Stmt,
    threads: int = 64,
    requires: tuple[Expr, ...] = (),
    barriers: tuple[kir.MBarrier, ...] = (),
) -> kir.Kernel:
    """Return a kernel of one CTA with a buffer."""
    return kernel(
        body,
        threads=threads,
        buffers=(S,),
        barriers=barriers,
        tensors=(X1, Y1),
        params=(n, m),
        requires=(eq(kir.GRID, 1), *requires),
    )


def fenced_if(test: Expr) -> kir.Stmt:
    """Fence where a condition holds."""
    return kir.IfThenElse(test, (FENCE,))


def rounds(fence: kir.Stmt, *more: kir.Stmt) -> kir.Kernel:
    """Copy a tile in each round, with a fence between."""
    loop = kir.ForLoop(k, n, (*copied(fence), *more))
    return of(kir.Let(p, 10), kir.Let(q, 0), loop)


def after(test: Expr, requires: tuple[Expr, ...] = ()) -> kir.Kernel:
    """Copy a tile after rounds that do nothing to it."""
    return of(kir.ForLoop(q, n, (SYNC,)), *copied(fenced_if(test)), requires=requires)


def known_before(test: Expr) -> kir.Kernel:
    """Copy in each round what was stored before, through a fence if a condition held there."""
    out = kir.TmaStore(box(Y1), kir.Slot(S, 0)), kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0)
    stores = load(IN, box(X1)), store(kir.Slot(S, 0), IN), fenced_if(test), SYNC
    return of(*stores, kir.ForLoop(k, n, (elect(*out),)))


def second(test: Expr) -> kir.Kernel:
    """Copy in each round of a role that waits for as many rounds of another before its own."""
    join = kir.BlockSync(2, 64)
    late = kir.BlockSync(1, 128), kir.ForLoop(k, n, copied(fenced_if(test), join))
    early = kir.ForLoop(q, n, (kir.BlockSync(3, 64),)), kir.NamedArrive(1, 128)
    return of(kir.Role("late", 0, 2, late), kir.Role("early", 2, 2, early), threads=128)


def in_flight() -> kir.Kernel:
    """Await the copy of a tile only where a parameter is small."""
    out = kir.TmaStore(box(Y1), kir.Slot(S, 0)), kir.AsyncCommit(BULK)
    awaits = kir.IfThenElse(m < 5, (elect(kir.AsyncAwait(BULK, 0)),))
    stores = load(IN, box(X1)), store(kir.Slot(S, 0), IN), FENCE, SYNC
    return of(*stores, elect(*out), awaits, kir.ForLoop(k, n, (SYNC,)))


def hasty_ring() -> kir.Kernel:
    """Read every eighth tile of a ring without a wait for it."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        waits = isinstance(stmt, kir.MBarrierWaitParity) and stmt.barrier.name == "full"
        return [kir.IfThenElse(ring.k % 8 < 7, (stmt,))] if waits else None

    return recipes.specialized_ring(2).rewrite(rule)


def hasty_turns() -> kir.Kernel:
    """Copy tiles by two roles in turn, without a fence in every twelfth turn."""
    order = kir.MBarrier("order", 1, 2)

    def role(mine: int, fence: kir.Stmt) -> Body:
        wait = kir.MBarrierWaitParity(order, mine, (k // 2 + 1 + mine) % 2)
        tile = copied(fence, kir.BlockSync(1 + mine, 64))
        turn = kir.IfThenElse(
            eq(k % 2, mine), (wait, *tile, elect(kir.MBarrierArrive(order, 1 - mine)))
        )
        return (kir.ForLoop(k, n, (turn,)),)

    return of(
        init(order),
        kir.BlockSync(0, 128),
        kir.Role("even", 0, 2, role(0, fenced_if(k % 12 < 9))),
        kir.Role("odd", 2, 2, role(1, FENCE)),
        threads=128,
        barriers=(order,),
    )


def litmus(name: str) -> kir.Kernel:
    """Return the kernel of a litmus."""
    found = by_name(name).kernel
    assert isinstance(found, kir.Kernel)
    return found


@dataclass(frozen=True, slots=True)
class Row:
    """An error, and a wrong kernel that it proves."""

    name: str
    breaks: Breaks
    kernel: kir.Kernel


HALF = rounds(fenced_if(eq(q % 2, 0)), kir.Assign(q, p), kir.Assign(p, k // 4))
FEW = known_before((m + 3) // 4 < 5)
SIXTH = rounds(fenced_if(k % 6 < 5))
LATER = rounds(kir.IfThenElse(fold(Sort.LE, 8, m), (fenced_if(k < m),), (FENCE,)))

ROWS = (
    Row("threads are not compared", left_out(state.State, "agents"), second(k < 3)),
    Row("variables are not compared", left_out(state.Agent, "env"), SIXTH),
    Row("which loops run is not compared", left_out(state.Agent, "loops"), LATER),
    Row("counts are not compared", left_out(state.State, "ranges"), after(n < 12)),
    Row("what is known is not compared", always(Form, "knows_all", True), FEW),
    Row("what either of two states knows is kept", instead(
        Form, "meet", lambda _: lambda it, of, other: setattr(
            it, "known", tuple(map(or_, it.known, other.known))
        )
    ), FEW),
    Row("how far a count matters is forgotten", always(Abstraction, "limit", 0), after(n < 12)),
    Row("how far a count matters is not compared", without(6), after(n < 12)),
    Row("leads are forgotten", always(Abstraction, "leads", {}), second(k < 12)),
    Row("margins are forgotten", always(Abstraction, "margins", ()), LATER),
    Row("all counters are alike", always(Form, "_modulo", 0), SIXTH),
    Row("values repeat at once", cycles(lambda *_: (0, 1)), HALF),
    Row("values repeat twice as fast", cycles(lambda t, p: (t, p // 2 or 1)), SIXTH),
    Row("values repeat from the first on", cycles(lambda _, p: (0, p)), second(k < 12)),
    Row("one way on is followed", first_ways(1), after(m < 5)),
    Row("a large count is not followed", instead(
        Execution, "ways_on", lambda right: lambda *on: right(*on)[1:] or right(*on)
    ), after(m < 5)),
    Row("a loop is not gone back to", instead(world, "reaches", ends), second(k < 3)),
    Row("what is in flight is forgotten", sweeping(lambda it: it.flying.clear()), in_flight()),
    Row("what was published is forgotten", sweeping(
        lambda it: setattr(it, "live", 0)
    ), FEW),
    Row("n - m >= 0 is taken for granted", instead(
        code.Atoms, "_counted", lambda _: lambda it, of, __: (it.number(it.joined(of)[0]), 0)
    ), of(*copied(fenced_if(fold(Sort.LE, m, n))))),
    Row("a minimum is its first part", instead(
        code, "_several", lambda _: lambda first, second, *, every: first
    ), litmus("joined_up_to_the_smaller")),
    Row("a sum of conditions is its last", instead(
        code, "_several", lambda _: lambda first, second, *, every: second
    ), litmus("joined_by_both_of_a_sum")),
    Row("a count is one more", instead(
        code, "_at_least", lambda right: lambda atom, bound, *, less: right(
            atom, bound + 1, less=less
        )
    ), litmus("joined_up_to_less_than_required")),
    Row("a count is at most one less", most_one_less, litmus("joined_up_to_less_than_required")),
    Row("nothing minds a rotation", instead(canonical, "rotation_of", minds_nothing), hasty_ring()),
    Row("nothing minds whose turn it is", all_repeats, hasty_turns()),
    Row("two CTAs fewer are followed", instead(
        ctas, "largest", lambda right: lambda *of: right(*of) - 2
    ), litmus("turns_joined_where_nothing_is_added")),
    Row("three CTAs fewer are followed", instead(
        ctas, "largest", lambda right: lambda *of: right(*of) - 3
    ), litmus("turns_up_to_a_number")),
    Row("no more than two CTAs are followed", instead(
        ctas, "_sizes", lambda right: lambda *of: right(*of)[:2]
    ), litmus("turns_joined_in_parts_of_a_period")),
    Row("no CTAs are followed together", instead(fixpoint, "readings", lambda right: lambda *of: [
        one for one in right(*of) if not one.together
    ]), litmus("turns_joined_below_a_scaled_count")),
    Row("loops in which CTAs meet are cut short", instead(
        fixpoint, "private", lambda _: lambda of: of.counts
    ), litmus("a_turnstile_used_again_without_reset")),
    Row("loops that decide how CTAs meet are cut short", instead(
        fixpoint, "private", lambda _: lambda of: of.counts
    ), litmus("turns_joined_after_few_sums")),
    Row("who has waited is forgotten", forgetting(no_waiters), litmus("observer_is_lapped")),
)  # fmt: skip


def _judged(one: Row) -> Closed:
    return fixpoint.judge(one.kernel)


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.name.replace(" ", "_"))
def test_a_false_proof_is_refused(one: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search refutes the kernel, with the error it proves it, and the checker does not."""
    assert _judged(one).violations
    one.breaks(monkeypatch)
    wrong = _judged(one)
    assert (wrong.violations, wrong.reason) == ((), "")
    verdict = check.check(wrong.explorations, rlimit=RLIMIT)
    assert verdict.status is not Status.PASS
    assert verdict.reason

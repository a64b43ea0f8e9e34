"""z3 finds what the search has got wrong; of a search that is right it finds an invariant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
from litmus.tensor_maps import rewritten, ring
from sample import some

from fuser.cookbook import recipes
from fuser.cookbook.ring import k
from fuser.expr import Expr, Kind, Op, Var, both, eq, fold, minimum
from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case, compiled
from fuzz.kernels.matmul import COMPILED
from fuzz.kernels.subjects import find
from oracles.prover.inductive import check
from oracles.prover.inductive.classes import Bounds, normal, solved
from oracles.prover.prove import REMEMBERED, prove
from oracles.prover.reachability import canonical, fixpoint
from oracles.prover.reachability.canonical import Rotation
from oracles.prover.reachability.path import Evaluated, Kept, Note
from oracles.prover.reachability.world import World
from oracles.verdict import Status, Verdict

RLIMIT = 2_000_000
ROLLING = ("split_persistent", "split_persistent_tma", "split_persistent_scatter", "last_rows")
"""Schedules with boxes that CTAs share and that move along a loop."""


def _checked(kernel: kir.Kernel) -> Verdict:
    return check.check(fixpoint.judge(kernel).explorations, rlimit=RLIMIT)


def _stopping() -> kir.Kernel:
    """Return a kernel whose sixth tile the search takes for like the fifth."""

    def stops(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TensorMapReplace(kir.MapSlot(maps, index)):
                return [rewritten(maps, index, minimum(k, 5))]
            case _:
                return None

    return ring(stages=1, maps=1).rewrite(stops)


@pytest.mark.parametrize("name", ["last_rows", "split_persistent", ""])
def test_what_is_asked_on_the_way_is_what_is_asked_at_the_end(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explorations that were asked about have forgotten their states, and the answer is known."""
    kernel = find(f"matmul {name} 0").kernel if name else _stopping()
    whole = check.check(fixpoint.judge(kernel).explorations, rlimit=RLIMIT)
    assert whole.status is (Status.PASS if name else Status.UNKNOWN)
    monkeypatch.setattr(check, "AT_ONCE", 0)
    answers = check.Answers(RLIMIT)
    explorations = fixpoint.judge(kernel, settle=answers.take).explorations
    assert not any(one.recorder.states for one in explorations)
    assert check.check(explorations, rlimit=RLIMIT, known=answers) == whole


def test_a_map_that_stops_going_on_is_no_invariant() -> None:
    """The search takes the sixth tile for like the fifth, where the map is still the right one."""
    made = fixpoint.judge(_stopping())
    assert not made.violations
    verdict = check.check(made.explorations, rlimit=RLIMIT)
    assert verdict.status is Status.UNKNOWN
    assert "map maps[0] says" in verdict.reason


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_recipes_are_confirmed(name: str) -> None:
    """Each of them, rings, groups, clusters and turns among them."""
    verdict = _checked(recipes.RECIPES[name]())
    assert (verdict.status, verdict.reason) == (Status.PASS, "")
    assert verdict.checked > 0


def test_there_is_something_to_confirm() -> None:
    """Without any exploration there is no invariant."""
    assert check.check((), rlimit=RLIMIT).status is Status.UNKNOWN


# --- what was not followed ------------------------------------------------------------------------


def test_a_state_whose_future_was_not_followed_is_missed() -> None:
    """Whatever may follow it could be wrong."""
    closed = fixpoint.judge(recipes.specialized_ring(2))
    recorder = closed.explorations[0].recorder
    recorder.steps = [step for step in recorder.steps if step[0] != 1]
    verdict = check.check(closed.explorations, rlimit=RLIMIT)
    assert (verdict.status, "state 1" in verdict.reason) == (Status.UNKNOWN, True)


def test_a_way_that_was_not_followed_is_missed() -> None:
    """A loop that never ends is none that ends at once, or later."""
    closed = fixpoint.judge(recipes.specialized_ring(2))
    recorder = closed.explorations[0].recorder
    forks = [step for step in recorder.steps if any(hasattr(note, "fork") for note in step[1])]
    recorder.steps.remove(forks[-1])
    verdict = check.check(closed.explorations, rlimit=RLIMIT)
    assert verdict.status is Status.UNKNOWN
    assert "way" in verdict.reason or "was not followed" in verdict.reason


def test_a_rotation_that_something_minds_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only every second iteration does tells rotated states apart, whoever thinks not."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if not isinstance(stmt, kir.Load):
            return None
        return [stmt, kir.IfThenElse(eq(k % 2, 0), (kir.WarpSync(),))]

    kernel = recipes.specialized_ring(2)
    assert _checked(kernel).status is Status.PASS
    minding = kernel.rewrite(rule)
    right = canonical.rotation_of

    def careless(world: World) -> Rotation:
        orbits = (replace(one, minds=(-1,) * len(one.minds)) for one in right(world).orbits)
        return Rotation(tuple(orbits))

    assert _checked(minding).status is Status.PASS
    monkeypatch.setattr(canonical, "rotation_of", careless)
    assert _checked(kernel).status is Status.PASS
    assert _checked(minding).status is Status.UNKNOWN


def test_a_slot_by_its_number_is_missed_where_rings_rotate() -> None:
    """The kept state uses the right one; those that it stands for, rotated, use another."""
    closed = fixpoint.judge(recipes.specialized_ring(2))
    recorder = closed.explorations[0].recorder

    def numbered(note: Note) -> Note:
        if not (isinstance(note, Evaluated) and note.name == "bar"):
            return note
        exprs = zip(note.do.values, note.do.exprs, strict=True)
        fixed = tuple(note.value if name == "bar" else expr for name, expr in exprs)
        return replace(note, do=replace(note.do, exprs=fixed))

    assert check.check(closed.explorations, rlimit=RLIMIT).status is Status.PASS
    recorder.steps = [
        (source, [numbered(note) for note in notes], to, state)
        for source, notes, to, state in recorder.steps
    ]
    assert check.check(closed.explorations, rlimit=RLIMIT).status is Status.UNKNOWN


# --- expressions ----------------------------------------------------------------------------------


X, Y = Var("x"), Var("y")


@pytest.mark.parametrize(
    ("expr", "is_"),
    [
        ((X + 7) % 3, (X + 1) % 3),
        ((X + 7) // 3, (X + 1) // 3 + 2),
        ((3 * X + Y + 5) % 3, (Y + 2) % 3),
        ((4 * X + 9) // 4, X + 2),
        (eq(X + 2, X + 2), 1),
        (Op(Kind.LT, X + 2, X + 1), 0),
    ],
)
def test_constants_leave_quotients_and_remainders(expr: Op, is_: Expr) -> None:
    """So that two ways to write one position are one."""
    found = normal(expr)
    assert normal(eq(found, is_)) == 1
    for x in range(5):
        for y in range(5):
            assert _value(expr, x, y) == _value(found, x, y)


def _value(expr: object, x: int, y: int) -> int:
    match expr:
        case int():
            return expr
        case Var(name):
            return x if name == "x" else y
        case Op(kind, a, b):
            found = fold(kind, _value(a, x, y), _value(b, x, y))
            assert isinstance(found, int)
            return found
        case _:
            raise AssertionError(expr)


def _grid(expr: Expr) -> list[int]:
    return [_value(expr, x, y) for x in range(-4, 5) for y in range(-4, 5)]


SUMS = [X, Y, X + Y, X - Y, 2 * X - 3 * Y, (X + 5) % 3, X // 2 - Y]
CONDITIONS = [
    normal(fold(kind, left, right))
    for kind in (Kind.LE, Kind.LT, Kind.EQ)
    for total in SUMS
    for left, right in ((total, 1), (-2, total), (total, 0))
]


def test_conditions_keep_what_they_say_in_their_one_spelling() -> None:
    """And two that say the same of one sum have one."""
    for kind in (Kind.LE, Kind.LT, Kind.EQ):
        for a in SUMS:
            for b in (-3, 0, 1, Y, 2 * X):
                assert _grid(normal(fold(kind, a, b))) == _grid(fold(kind, a, b))
    assert normal(Op(Kind.LT, 2 * X, 2 * Y + 5)) == normal(fold(Kind.LE, X, Y + 2))
    assert normal(eq(fold(Kind.LE, X, Y), 0)) == normal(Op(Kind.LT, Y, X))


def test_what_is_plain_follows() -> None:
    """Whatever values there are for which the facts hold, the condition does."""
    where = {one: {n for n, holds in enumerate(_grid(one)) if holds} for one in CONDITIONS}
    given = 0
    for one, other in combinations(CONDITIONS, 2):
        bounds = Bounds().know([one, other])
        for goal in CONDITIONS[::2]:
            if bounds.give(goal):
                given += 1
                assert where[one] & where[other] <= where[goal], (one, other, goal)
    assert given > len(CONDITIONS) ** 2


@pytest.mark.parametrize(
    ("facts", "goal", "plain"),
    [
        ((X <= Y, X >= 0), Y >= 0, True),
        ((X + 13 <= Y, X >= 0), Y >= 13, True),
        ((X + 13 <= Y, X >= 0), Y >= 14, False),
        ((X <= 3, Y >= 0), X - 2 * Y <= 3, True),
        ((eq(X, 3),), X <= 3, True),
        ((eq(X, 3),), eq(X, 4), False),
        ((eq(X % 2, 0),), eq(X % 2, 0), True),
        ((both(X <= Y, Y <= 2),), X <= 2, True),
        ((), X <= X + 1, True),
    ],
)
def test_facts_are_added_up(facts: tuple[Expr, ...], goal: Expr, *, plain: bool) -> None:
    """One about several unknowns, and what is known of each alone."""
    assert Bounds().know(map(normal, facts)).give(normal(goal)) is plain


def test_equations_are_solved_in_turn() -> None:
    """What one variable is, the others are in terms of."""
    assert solved([eq(X, Y + 1), eq(Y, 3), fold(Kind.LE, 0, X)]) == {X: 4, Y: 3}
    assert solved([eq(X, X + 1)]) == {}


def test_what_is_no_invariant_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is not outvoted by the engine that is refused."""
    kernel = recipes.specialized_ring(2)
    refused = Verdict("inductive", Status.UNKNOWN, 0, reason="it does not follow")
    monkeypatch.setattr(check, "check", lambda *_, **__: refused)
    REMEMBERED.forget()
    verdict = prove(kernel)
    assert (verdict.status, verdict.reason) == (
        Status.UNKNOWN, "what reachability says is no invariant: it does not follow",
    )  # fmt: skip
    REMEMBERED.forget()


# --- kernels that the compiler makes --------------------------------------------------------------


@pytest.mark.parametrize("name", some(tuple(COMPILED), *ROLLING, *list(COMPILED)[::5]))
def test_schedules_are_confirmed(name: str) -> None:
    """Roles that take tiles alternately, clusters, CTAs that add up what they have."""
    verdict = _checked(find(f"matmul {name} 0").kernel)
    assert (verdict.status, verdict.reason) == (Status.PASS, "")


def test_what_is_known_of_all_uses_of_a_length_is_known_of_each() -> None:
    """With one slot a role waits for another's whole loop, whose length is decided for all uses."""
    params = MatmulParams((128, 16, 16), 2, "ping_pong", 1, 0, True, columns=16)
    fd = FusionDefinition()
    a = fd.define_tensor(shape=["i0", "i1"], dtype="f16")
    b = fd.define_tensor(shape=["i1", "i2"], dtype="f16")
    fd.add_output(fd.ops.matmul(a, b))
    case = Case(fd.fusion(), params, {"i0": 256, "i1": 64, "i2": 32}, "integers", 0)
    (launch,) = compiled(case).launches
    assert _checked(launch.kernel).status is Status.PASS


# --- boxes that CTAs share, which move along a loop -----------------------------------------------


def _of_place(note: Note) -> bool:
    return isinstance(note, Kept) and note.number[0] == "put"


def _of_turn(note: Note) -> bool:
    return isinstance(note, Kept) and note.number[0] == "turn"


@pytest.mark.parametrize("forgotten", [_of_place, _of_turn])
def test_a_number_that_was_not_put_down_is_missed(forgotten: Callable[[Note], bool]) -> None:
    """Where a box was written, and which tile a semaphore is of."""
    closed = fixpoint.judge(find("matmul split_persistent 0").kernel)
    for one in closed.explorations:
        steps = one.recorder.steps
        one.recorder.steps = [
            (source, [note for note in notes if not forgotten(note)], to, state)
            for source, notes, to, state in steps
        ]
    assert check.check(closed.explorations, rlimit=RLIMIT).status is not Status.PASS

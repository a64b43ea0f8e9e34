"""What an execution has evaluated on its way from one state to the next.

Whoever distrusts the search (`inductive`) can ask of each of these whether it would have been the
same in every state that the first one stands for.  Of the notes those that are made at every turn
are not frozen, which would take most of their time; nobody changes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.expr import Expr, Kind
from oracles.prover.reachability.code import Do
from oracles.prover.reachability.state import Range, State, Unknown, Where

Number = tuple[object, object]
"""A number of a state: (threads, variable), or (what it is of, which) where it was put down."""


@dataclass(slots=True, eq=False)
class Evaluated:
    """A number that decides what a statement does, such as the slot that it uses."""

    agent: int
    do: Do
    name: str
    value: int


@dataclass(slots=True)
class Tested:
    """The answer to a condition."""

    agent: int
    expr: Expr
    answer: bool


@dataclass(slots=True)
class Assigned:
    """A variable got the value of an expression, which may be of itself."""

    agent: int
    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Split:
    """One of `many` ways on from a fork: what is known of a count from here on.

    Before, it was known to be at least `least`.
    """

    fork: object
    way: int
    many: int
    unknown: Unknown
    known: Range
    least: int


@dataclass(frozen=True, slots=True)
class Decided:
    """One of two ways on: the answer to a condition on parameters."""

    fork: object
    way: int
    many: int
    test: Expr


@dataclass(frozen=True, slots=True)
class Served:
    """One of `many` ways on: who is given registers first."""

    fork: object
    way: int
    many: int


@dataclass(slots=True)
class Kept:
    """A number was put down, to be compared with later ones: that of a variable of threads."""

    number: Number
    of: Number | int


@dataclass(slots=True)
class Compared:
    """The answer to a comparison of two numbers."""

    kind: Kind
    left: Number | int
    right: Number | int
    answer: bool


@dataclass(frozen=True, slots=True)
class Said:
    """A tensor map was found to say what a copy takes it to: by numbers put down, and by those now.

    `told` are of the variables of its writer, `taken` of those of the copying threads.
    """

    agent: int
    where: Where
    told: tuple[Expr, ...]
    taken: tuple[Expr, ...]


Note = Evaluated | Tested | Assigned | Split | Decided | Served | Kept | Compared | Said
Path = tuple["Path", Note] | None
"""Notes in the order in which they were made; the latest is outermost."""


def notes(path: Path) -> list[Note]:
    """Return the notes of a path, the earliest first."""
    out: list[Note] = []
    while path is not None:
        path, note = path
        out.append(note)
    out.reverse()
    return out


class Recorder:
    """What an exploration has done: the states that it kept, and every way from one to the next.

    `states` are as they were compared with later ones; a step is the state it begins in (-1: the
    start), its notes, the state that it ends in (None: the threads are done), and what that looks
    like here, before anything was forgotten.  `joined` has the states that others stand for since,
    and which.
    """

    def __init__(self) -> None:
        self.states: list[State] = []
        self.steps: list[tuple[int, list[Note], int | None, State]] = []
        self.joined: dict[int, int] = {}

    def keep(self, state: State, seen: State) -> None:
        """Note a new state, in which a step ends and another begins; `seen` is all of it."""
        number = len(self.states)
        self.steps.append((seen.origin, notes(seen.path), number, seen))
        state.sets_out(number)
        self.states.append(state.copy())

    def meet(self, seen: State, number: int) -> None:
        """Note that a step ends in a state that is said to be like an earlier one."""
        self.steps.append((seen.origin, notes(seen.path), number, seen))

    def join(self, seen: State, number: int, state: State) -> int:
        """Note that a step ends in a state that is like an earlier one, and what stands for both.

        Return the number of that.
        """
        self.joined[number] = new = len(self.states)
        self.meet(seen, new)
        state.sets_out(new)
        self.states.append(state.copy())
        return new

    def drop_joined(self) -> None:
        """Keep the states that others do not stand for, and of these what the start leads to."""
        leaving: dict[int, list[tuple[list[Note], int | None, State]]] = {}
        for source, noted, to, state in self.steps:
            while to in self.joined:
                to = self.joined[to]
            leaving.setdefault(source, []).append((noted, to, state))
        kept = {-1: -1}
        for source in (todo := [-1]):
            for _, to, _ in leaving.get(source, ()):
                if to is not None and to not in kept:
                    kept[to] = len(kept) - 1
                    todo.append(to)
        self.steps = [
            (number, noted, None if to is None else kept[to], state)
            for source, number in kept.items()
            for noted, to, state in leaving.get(source, ())
        ]
        self.states = [self.states[number] for number in kept if number >= 0]
        self.joined = {}

    def end(self, state: State) -> None:
        """Note that all threads are done."""
        self.steps.append((state.origin, notes(state.path), None, state))

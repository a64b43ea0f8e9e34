"""What the threads of a CTA do in their turn, and in a later turn of the same semaphore.

Every event has a time in turn k and one in turn j > k.  Constraints say what each requires: its
thread's events before it, the barrier's meeting, the copies that an await covers, and across turns
that a wait comes after what the turns before it have released.  Nothing else orders two CTAs.

Notes
-----
A release publishes what its thread has done and seen, and a wait takes part in that; so along the
turns k, k + 1, ..., j what precedes the release of turn k precedes what follows the wait of turn j,
if in each turn the release follows the wait (`Obligation.TURNS`).  That is why two turns show all.

A step that is not executed has a time too, which orders nothing but its own thread's steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.graph import Thread
from oracles.prover.invariants.rules import Axiom, Without
from oracles.prover.invariants.trace import Step, Trace, all_of, any_of, bounds

TURNS = ("k", "j")
"""The number of a turn, and that of a later one."""
_TURN = kir.BlockSerializeWait | kir.BlockSerializeRelease
_SYNC = kir.FenceAsyncProxy | kir.ThreadFence | kir.AsyncAwait | kir.AsyncCommit
_OWN = kir.Load | kir.Store | kir.AtomicAdd | kir.BlockSync | kir.WarpSync | _TURN | _SYNC
_SILENT = kir.Compute | kir.Slice | kir.Reduce | kir.Coordinate | kir.Mma | kir.WgmmaFence
RANGE = "(assert (<= 0 k))(assert (< k n))(assert (<= 0 j))(assert (< j n))"


@dataclass(frozen=True, slots=True)
class Event:
    """A node of a turn: a step of a thread, a meeting of several, or a part of a copy."""

    name: str

    def at(self, turn: str) -> str:
        """Return its time in turn `k` or `j`."""
        return f"{turn}_{self.name}"


@dataclass(frozen=True, slots=True)
class Copy:
    """A bulk copy: when it is issued, when its source has been read, when it is done."""

    step: Step
    thread: Thread
    issue: Event
    read: Event
    done: Event


def condition(test: Expr | None, turn: str) -> str:
    """Return in SMT-LIB whether a guard holds in a turn.

    Raises
    ------
    UnsupportedError
        If it does not compare the turn with a number, or with their count.
    """
    match test:
        case None:
            return "true"
        case Op(Kind.AND, a, b):
            return all_of([condition(a, turn), condition(b, turn)])
        case Op(Kind.EQ, Op(Kind.EQ | Kind.AND) as held, 0):
            return f"(not {condition(held, turn)})"
        case _:
            return all_of([bound.text(turn) for bound in bounds(test)])


class Events:
    """The events of one turn and what they require, as constraints on two of its occurrences."""

    def __init__(self, trace: Trace, without: Without) -> None:
        self.trace = trace
        self.without = without
        self.names: dict[str, Event] = {}
        self._runs: dict[tuple[int, str], str] = {}
        self.copies: list[Copy] = []
        self.chains: dict[Thread, list[tuple[Step, Event]]] = {}
        self._claims: dict[str, None] = {}
        for thread in self._threads():
            self._chain(thread)
        for copy in self.copies:
            self._require(copy.issue, copy.read, Axiom.ISSUE)
            self._require(copy.read, copy.done, Axiom.ISSUE)
            for step, node in self.chains[copy.thread]:
                for turn in TURNS:
                    if isinstance(step.stmt, kir.AsyncAwait):
                        end = copy.read if step.stmt.read_only else copy.done
                        when = self.covers(step, step.stmt, copy, turn)
                        self._require(end, node, Axiom.GROUP, turn, when)
        self._taken()

    def runs(self, step: Step, turn: str) -> str:
        """Return whether a step is executed in a turn."""
        known = self._runs.get((step.index, turn))
        if known is None:
            known = self._runs[(step.index, turn)] = condition(step.guard, turn)
        return known

    def own(self, step: Step, thread: Thread) -> Event:
        """Return the event of a step of a thread."""
        return self._event(f"{step.index}_{thread.kind}_{thread.warp}_{thread.lane}")

    def _event(self, name: str) -> Event:
        return self.names.setdefault(name, Event(name))

    # --- threads --------------------------------------------------------------------------------

    def _threads(self) -> Iterator[Thread]:
        """One thread of each kind, and another one where there are several."""
        for kind in self.trace.kinds:
            (warp, *more), lane = kind.warps, 0 if kind.leads else 1
            yield Thread(kind.index, warp, lane)
            if not kind.alone:
                yield Thread(kind.index, *((more[0], lane) if more else (warp, 2)))

    def _chain(self, thread: Thread) -> None:
        """Follow a thread: it does one thing after the other, and meets others at barriers."""
        chain = self.chains[thread] = []
        before: list[tuple[Event, Step | None]] = []
        for step in self.trace.programs[thread.kind].before:
            node, meets = self._node(step, thread)
            if node is None:
                continue
            chain.append((step, node))
            for last, other in before:
                for turn in TURNS:
                    parts = [self.runs(s, turn) for s in (step if meets else None, other) if s]
                    self._require(last, node, Axiom.PROGRAM, turn, all_of(parts))
            skipped = meets and step.guard is not None
            before = [*before, (node, step)] if skipped else [(node, step if meets else None)]

    def _node(self, step: Step, thread: Thread) -> tuple[Event | None, bool]:
        """Return the event of a step, if it has one, and whether threads meet there."""
        turns = Axiom.TURN not in self.without
        match step.stmt:
            case kir.BlockSync() | kir.BlockSerializeWait() if turns:
                return self._event(f"{step.index}"), True
            case kir.WarpSync() if turns:
                return self._event(f"{step.index}_{thread.warp}"), True
            case kir.TmaStore() | kir.TmaReduce():
                issue = self.own(step, thread)
                ends = (self._event(f"{issue.name}_{end}") for end in ("read", "done"))
                self.copies.append(Copy(step, thread, issue, *ends))
                return issue, False
            case _ if isinstance(step.stmt, _OWN):
                return self.own(step, thread), False
            case _ if isinstance(step.stmt, _SILENT):
                return None, False
            case _:
                raise UnsupportedError(f"{step.where}: {type(step.stmt).__name__} in a turn")

    # --- requirements ---------------------------------------------------------------------------

    def _require(
        self, first: Event, then: Event, rule: Axiom, turn: str = "", when: str = "true"
    ) -> None:
        if rule in self.without or when == "false":
            return
        for one in (turn,) if turn else TURNS:
            claim = f"(< {first.at(one)} {then.at(one)})"
            self._claims[claim if when == "true" else f"(=> {when} {claim})"] = None

    def covers(self, step: Step, wait: kir.AsyncAwait, copy: Copy, turn: str) -> str:
        """Return when a step is executed in a turn and covers a copy that is, too.

        The copy's group is closed by the first commit behind it; `keep` more have to follow.
        """
        if wait.kind is not kir.AsyncKind.BULK or step.index < copy.step.index:
            return "false"
        commits = [
            s
            for s, _ in self.chains[copy.thread]
            if copy.step.index < s.index < step.index
            and s.stmt == kir.AsyncCommit(kir.AsyncKind.BULK)
        ]
        both_run = [self.runs(step, turn), self.runs(copy.step, turn)]
        sure = [s for s in commits if s.guard in (None, step.guard, copy.step.guard)]
        if len(sure) > wait.keep:
            return all_of(both_run)
        if wait.keep:
            return "false"
        return all_of([*both_run, any_of([self.runs(s, turn) for s in commits])])

    def _taken(self) -> None:
        """Make a wait come after what the turns before it have published."""
        waits = [(s, e) for s, _, e in self.of(kir.BlockSerializeWait) if _wide(s.stmt)]
        for step, thread, node in self.of(kir.BlockSerializeRelease):
            public = self.published(step, thread, node)
            for _, wait in waits[:1]:
                if public is not None and Axiom.TAKEN not in self.without:
                    when = all_of(["(< k j)", self.runs(step, "k")])
                    self._claims[f"(=> {when} (< {public.at('k')} {wait.at('j')}))"] = None

    def of(self, kind: type[kir.Stmt]) -> Iterator[tuple[Step, Thread, Event]]:
        """Yield the events of one kind of statement."""
        for thread, chain in self.chains.items():
            for step, node in chain:
                if isinstance(step.stmt, kind):
                    yield step, thread, node

    def published(self, step: Step, thread: Thread, node: Event) -> Event | None:
        """Return up to where a release publishes: itself, or a fence before it; None if nothing."""
        assert isinstance(step.stmt, kir.BlockSerializeRelease), "asked of releases"
        if _wide(step.stmt) and not step.stmt.relaxed:
            return node
        found = None
        for other, event in self.chains[thread]:
            wide = other.stmt == kir.ThreadFence(kir.Scope.GPU)
            if wide and other.index < step.index and other.guard in (None, step.guard):
                found = event
        return found

    def text(self) -> str:
        """Return declarations and constraints."""
        lines = [f"(declare-const {name} Int)" for name in ("k", "j", "n")]
        for event in self.names.values():
            lines += [f"(declare-const {event.at(turn)} Int)" for turn in TURNS]
        return "\n".join([*lines, RANGE, *(f"(assert {claim})" for claim in self._claims)])


def _wide(stmt: kir.Stmt) -> bool:
    """Whether a wait or a release reaches other CTAs."""
    assert isinstance(stmt, _TURN), "asked of turns"
    return stmt.scope is kir.Scope.GPU

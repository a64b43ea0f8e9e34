"""Which steps of an execution a reader needs, and in which words.

Kept are the two accesses, what filled the memory between, the handshakes by which the later depends
on the earlier, and the syncs of its kind that do too little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fuser.kernel import ir as kir
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.rules import Rule, Violation
from oracles.prover.reachability.state import Agent, Where
from oracles.prover.reachability.witness.trail import Step, Token, Trail
from oracles.prover.reachability.witness.words import concrete, engine, group, iteration, spot
from oracles.prover.reachability.world import World
from oracles.witness import Mark, Row

BESIDE = 10
"""Steps at a barrier that are shown, where the barrier itself is what goes wrong."""
_AT_BARRIER = frozenset({"parity", "arrivals", "bytes", "deadlock", "collective"})
"""Kinds of findings that are about a barrier."""
_RACES = frozenset({"RAW", "WAR", "WAW", "drain", "exit", "proxy"})
"""Kinds of findings that are about what an engine does with memory or registers."""


class Story:
    """Rows of a witness, from the trail of an execution that ends with a violation.

    Parameters
    ----------
    trail : Trail
        The execution.
    wrong : Violation
        What is wrong with it.
    first, second : int
        The steps of the two accesses; -1 where there is none.
    """

    def __init__(self, trail: Trail, wrong: Violation, first: int, second: int) -> None:
        self.trail = trail
        self.world = trail.world
        self.wrong = wrong
        self.first, self.second = first, second
        self.steps = trail.steps
        self.way = trail.path(first, second) if first >= 0 and second >= 0 else None
        self.apart = self._told_apart()
        self.waited: set[object] = set()
        self.registers = ""
        if first >= 0 and wrong.rule is Rule.REGISTERS_BUSY:
            one = trail.steps[first].stmt
            self.registers = one.acc.name if isinstance(one, kir.Wgmma) else ""
        if trail.stuck and trail.last is not None:
            self.waited = set(filter(None, (waits_for(a, self.world) for a in trail.last.agents)))

    def _told_apart(self) -> frozenset[int]:
        """Return the two kinds of threads if they are of one role: they need their own lanes."""
        if self.first < 0 or self.second < 0:
            return frozenset()
        one, two = self.steps[self.first], self.steps[self.second]
        if one.agent == two.agent or self.team(one.agent) != self.team(two.agent):
            return frozenset()
        return frozenset({one.agent, two.agent})

    def team(self, agent: int) -> tuple[int, str]:
        """Return the CTA and the role of threads."""
        kind = self.world.kinds[agent]
        return kind.cta, kind.role

    def program(self, agent: int) -> list[Do]:
        """Return the statements of threads, in order."""
        return [i for i in self.world.code.programs[agent] if isinstance(i, Do)]

    def lane(self, agent: int) -> str:
        """Name the threads of a role, or one kind of them where they are to be told apart."""
        kind = self.world.kinds[agent]
        if agent in self.apart:
            return str(kind)
        name = kind.role or "all threads"
        if any(self.team(other) == self.team(agent) for other in self.apart):
            name += ", other threads"
        return name + (f" of CTA {kind.cta}" if self.world.ctas > 1 else "")

    def kept(self) -> list[int]:
        """Return the steps to show, in order."""
        keep = {n for n in (self.first, self.second) if n >= 0}
        keep.update(self.way or ())
        if self.first >= 0:
            keep.update(self._filled(self.first))
        if self.first >= 0 and self.second >= 0:
            keep.update(self._too_weak())
            if self.way is None:
                keep.update(self._nearby())
        if self.wrong.kind in _AT_BARRIER:
            keep.update(self._at_barrier())
        elif self.first < 0 and self.second >= 0:
            keep.update(self._nearby())
        return self._merged(sorted(keep))

    def _filled(self, first: int) -> list[int]:
        """Return what wrote the memory that the earlier access reads, and the way from there."""
        step = self.steps[first]
        shared = self._shared() if self.second >= 0 else None
        places = {w for w, writes, _ in step.touches if not writes and (not shared or w in shared)}
        for other in reversed(self.steps[:first]):
            if any(where in places and writes for where, writes, _ in other.touches):
                return self.trail.path(other.number, first) or [other.number]
        return []

    def _too_weak(self) -> list[int]:
        """Return the syncs between the accesses that are of the right kind, but not enough."""
        one, two = self.steps[self.first], self.steps[self.second]
        wanted = engine(one.stmt)
        out = []
        for step in self.steps[self.first : self.second]:
            match step.stmt:
                case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
                    if step.agent == one.agent and kind is group(one.stmt):
                        out.append(step.number)
                case kir.FenceAsyncProxy() if self.wrong.kind == "proxy":
                    if step.agent in (one.agent, two.agent):
                        out.append(step.number)
                case _:
                    pass
        # Groups of later iterations are not about the guilty one, save an await that keeps some.
        commits = [n for n in out if isinstance(self.steps[n].stmt, kir.AsyncCommit)]
        awaits = [n for n in out if isinstance(self.steps[n].stmt, kir.AsyncAwait)]
        fences = [n for n in out if isinstance(self.steps[n].stmt, kir.FenceAsyncProxy)]
        return [*commits[:1], *awaits[-2:], *fences[-2:]] if wanted else fences[-2:]

    def _nearby(self) -> list[int]:
        """Return the last syncs before the later access, and the first after the earlier."""
        out: list[int] = []
        agent = self.steps[self.second].agent
        before = [s for s in self.steps[: self.second + 1] if s.agent == agent]
        for step in reversed(before):
            if step.k < 0 <= self.steps[self.second].k:
                break
            givers = [
                n
                for token in step.takes
                for n in self.trail.of(token)
                if self.steps[n].agent != agent
                and token[0] != "warp"
                and (token[0] != "barrier" or step.number > self.first)
            ]
            if givers and len(out) < 4:
                last = {self.team(self.steps[n].agent): n for n in givers}
                out += [step.number, *last.values()]
        if self.first >= 0:
            one = self.steps[self.first]
            later = [
                s
                for s in self.steps[self.first + 1 : self.second]
                if s.agent == one.agent and s.gives and not of_warp(s)
            ]
            out += [s.number for s in later[:1]]
        return out

    def _at_barrier(self) -> list[int]:
        """Return the last steps at the barrier slots that the last step uses."""
        ends = [n for n in (self.first, self.second) if n >= 0]
        slots = {slot(token) for n in ends for token in self.tokens(n)} | self.waited
        slots.discard(None)
        if not slots:
            return self._nearby() if self.second >= 0 else []
        there = [
            s.number for s in self.steps if {slot(token) for token in s.gives | s.takes} & slots
        ]
        return there[-BESIDE:]

    def tokens(self, number: int) -> set[tuple[object, ...]]:
        """Return what a step meets others by."""
        step = self.steps[number]
        return {*step.gives, *step.takes}

    def _merged(self, numbers: list[int]) -> list[int]:
        """Leave out steps of threads that do the same as others in their lane."""
        seen: dict[tuple[object, ...], int] = {}
        for n in (n for n in (self.first, self.second) if n >= 0):
            seen[self._same(n)] = n
        for n in numbers:
            seen.setdefault(self._same(n), n)
        return sorted(set(seen.values()), key=self._when)

    def _when(self, number: int) -> tuple[int, bool, int]:
        """Return when a step is over: of threads that meet, when the last one has come."""
        step = self.steps[number]
        joined = {t for t in step.takes if t in step.gives or t[0] == "semaphore"}
        met = [n for t in joined for n in self.trail.of(t) if n <= max(self.second, number)]
        last = max([number, *met])
        return last, number < last, number

    def _same(self, number: int) -> tuple[object, ...]:
        step = self.steps[number]
        turn = sum(
            s.site.index == step.site.index and s.agent == step.agent for s in self.steps[:number]
        )
        return self.lane(step.agent), step.site.index, turn

    def rows(self) -> list[Row]:
        """Return the rows, up to the later access and what is still in flight then."""
        rows: list[Row] = []
        numbers = self.kept()
        taken: set[object] = {token for n in numbers for token in self.steps[n].takes}
        taken |= {t for s in self.steps for t in s.gives if slot(t) in self.waited}
        for n in numbers:
            step = self.steps[n]
            marked = (
                Mark.FIRST if n == self.first else Mark.SECOND if n == self.second else Mark.NONE
            )
            by = engine(step.stmt)
            races = by and marked is not Mark.NONE and self.wrong.kind in _RACES
            busy = self._busy(n) if races else ""
            own = Mark.NONE if busy else marked
            rows.append(
                Row(self.lane(step.agent), step.site.line, self.text(step), self._note(n), own)
            )
            if busy:
                rows.append(Row(self._engine(step), step.site.line, busy, "", marked))
            elif isinstance(step.stmt, kir.TmaLoad) and (
                step.gives & taken or own is not Mark.NONE
            ):
                done = f"{self._places(step, writes=True)} written"
                rows[-1] = replace(rows[-1], mark=Mark.NONE)
                rows.append(Row(self._engine(step), step.site.line, done, step.phase, own))
        if self.first >= 0 and self._open():
            step = self.steps[self.first]
            says = ", ".join(filter(None, (self._busy(self.first), self._iteration(step))))
            rows.append(Row(self._engine(step), step.site.line, f"... still {says}"))
        return rows

    def _open(self) -> bool:
        """Whether it is the end of the earlier access that comes too late."""
        step = self.steps[self.first]
        return self.wrong.kind in _RACES - {"exit", "proxy"} and (
            self.registers != "" or any(ends for _, _, ends in step.touches)
        )

    def _engine(self, step: Step) -> str:
        many = self.world.ctas > 1
        return engine(step.stmt) + (f" of CTA {self.world.kinds[step.agent].cta}" if many else "")

    def _busy(self, number: int) -> str:
        """Say what an engine is doing to memory; of the two accesses, to what they share."""
        step = self.steps[number]
        if self.registers and number == self.first:
            return f"using {self.registers}"
        reads, writes = self._places(step, writes=False), self._places(step, writes=True)
        return " and ".join(
            part for part in (reads and f"reading {reads}", writes and f"writing {writes}") if part
        )

    def _places(self, step: Step, *, writes: bool) -> str:
        found = [where for where, w, _ in step.touches if w == writes]
        if self.first >= 0 and self.second >= 0 and step.number in (self.first, self.second):
            both = self._shared()
            found = [where for where in found if where in both]
        return ", ".join(dict.fromkeys(spot(self.world, where) for where in found))

    def _shared(self) -> set[Where]:
        """Return the places that both accesses are about."""
        one = {where for where, _, _ in self.steps[self.first].touches}
        two = {where for where, _, _ in self.steps[self.second].touches}
        return {
            where for where in one | two
            if any(o in one for o in self.world.layout.overlaps[where])
            and any(o in two for o in self.world.layout.overlaps[where])
        } or one | two  # fmt: skip

    def _note(self, number: int) -> str:
        """Say what became of the barrier, once all in the lane have done the same."""
        step = self.steps[number]
        if isinstance(step.stmt, kir.TmaLoad):
            return ""
        last = step.phase
        end = self.second if self.second > number else len(self.steps)
        for other in self.steps[number + 1 : end]:
            if other.site.index == step.site.index and self._same(other.number) == self._same(
                number
            ):
                last = other.phase
        return last

    def _iteration(self, step: Step) -> str:
        return iteration(self.world, step.site, step.k)

    def text(self, step: Step) -> str:
        """Say what a step does, with numbers in place of expressions."""
        return " ".join(
            part for part in (concrete(step.stmt, step.values), self._iteration(step)) if part
        )


def slot(token: tuple[object, ...]) -> object:
    """Return the slot of a barrier that a phase is of; of others the barrier."""
    return None if token[0] == "warp" else token[:-1]


def waits_for(a: Agent, world: World) -> Token | None:
    """Return the slot of a barrier, or the barrier, that threads wait for."""
    program = world.code.programs[a.kind.index]
    i = None if a.done or a.at >= len(program) else program[a.at]
    if not isinstance(i, Do):
        return None
    match i.site.stmt:
        case kir.MBarrierWaitParity(barrier):
            return "phase", (a.kind.cta, barrier.name, i.values["bar"](a.env))
        case kir.BlockSync(number):
            return "barrier", a.kind.cta, number
        case _:
            return None


def of_warp(step: Step) -> bool:
    """Whether a step meets nobody but the lanes of its warp."""
    return all(token[0] == "warp" for token in step.gives | step.takes)


def lanes(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the lanes of rows: threads first, then what works for them."""
    found = list(dict.fromkeys(row.lane for row in rows))
    return tuple(sorted(found, key=lambda name: "engine" in name or name.startswith("tensor core")))


def waited_barrier(do: Do) -> kir.MBarrier | None:
    """Return the mbarrier that a statement waits for."""
    stmt = do.site.stmt
    return stmt.barrier if isinstance(stmt, kir.MBarrierWaitParity) else None

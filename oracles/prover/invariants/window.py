"""The events of some iterations around iteration k, and their order, in SMT-LIB.

Notes
-----
An event is an integer: its place in one execution.  Every constraint says that an event comes
after one that it requires, if it is real, that is, not of an iteration before the first.

What an engine has done is published by its end alone: a constraint that goes through the end of
some other copy orders nothing but time (`TIMED`), for the thread that issued that copy has released
nothing by it.

The constraints hold in every execution up to its first violation of an obligation, if the rest of
the execution is thought to go on as the schedule has it (`schedule`: an order of all events that
respects every requirement; it exists, for z3 finds one), and if iterations before the first are
thought to lie far in the past.  So an execution that violates an obligation first gives a model of
the constraints and the violation; if there is no model, there is no such execution.  Fewer events
or fewer constraints have more models, never fewer: leaving iterations out costs proofs, not truth.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import pairwise

from oracles.prover.invariants.events.graph import Skeleton
from oracles.prover.invariants.events.nodes import Cross, Item, Thread
from oracles.prover.invariants.events.parametric import Bound, both, number
from oracles.prover.invariants.rules import Axiom

FAR = 1 << 20
"""Time from one iteration to the next in a schedule: more than all nodes of an iteration take."""

TIMED = "timed"
"""Whether a question is about time alone: then the end of an engine's work precedes what waits for
it, whatever it publishes."""


class Window:
    """The events at some offsets from iteration k."""

    def __init__(self, skeleton: Skeleton, offsets: set[int]) -> None:
        self._carried: dict[tuple[int, int], str] = {}
        self.skeleton = skeleton
        self.offsets = sorted(offsets)
        self.names: dict[tuple[int, int], str] = {}
        self.starts: dict[tuple[int, Thread], str] = {}
        self._order: dict[str, dict[str, None]] = {}
        if Axiom.PROGRAM not in skeleton.without:
            for thread, chain in skeleton.chains.items():
                self._chain(thread, chain)
        for cross in sorted(skeleton.crosses, key=lambda c: (c.node, c.cause, c.shift)):
            for offset in self.offsets:
                self._cross(cross, offset)

    def event(self, node: int, offset: int) -> str:
        """Return the name of a node's event in iteration `k + offset`."""
        return self.names.setdefault(
            (node, offset), f"e{node}_{offset}" if offset >= 0 else f"e{node}_m{-offset}"
        )

    def start(self, node: int, thread: Thread) -> str:
        """Return the name of the moment at which a thread begins a wait, in iteration k."""
        return self.starts.setdefault((node, thread), f"s{node}")

    def carries(self, node: int, offset: int) -> str:
        """Return that the end of an engine's work counts for what it publishes.

        That of a cp.async also counts where it arrives on an mbarrier.
        """
        later = [c for c in self.skeleton.crosses if c.rule is Axiom.FINISH and c.cause == node]
        ends = [(node, offset), *((c.node, offset - c.shift) for c in later)]
        return both(sorted(self._carried[end] for end in ends if end in self._carried))

    def _before(
        self, first: str, second: str, offset: int, guard: tuple[Bound, ...], when: str = "true"
    ) -> None:
        """Say that `first` precedes `second`, which is of iteration `k + offset`."""
        real = both([Bound(1, 0, offset).text(), *(g.text() for g in guard), when])
        self._order.setdefault(real, {})[f"(< {first} {second})"] = None

    def _chain(self, thread: Thread, chain: list[Item]) -> None:
        last: str | None = None
        skipped: list[tuple[str, tuple[Bound, ...]]] = []
        for offset in self.offsets:
            for item in chain:
                guard = tuple(g.at(offset) for g in item.guard)
                names = [(self.event(item.node, offset), guard)]
                if item.waits and offset == 0:
                    names.append((self.start(item.node, thread), guard))
                for name, held in names:
                    if last is not None:
                        self._before(last, name, offset, held)
                    for other, too in skipped:
                        self._before(other, name, offset, (*held, *too))
                if item.guard:
                    skipped.append(names[0])
                else:
                    last, skipped = names[0][0], []

    def _cross(self, cross: Cross, offset: int) -> None:
        held = tuple(g.at(offset) for g in cross.guard)
        at = cross.cause, offset + cross.shift
        cause, when = self.event(*at), "true"
        if cross.narrow:
            when = f"(or {TIMED} {self._carried.setdefault(at, f'c{cause}')})"
        self._before(cause, self.event(cross.node, offset), offset, held, when)

    def text(self) -> str:
        """Return declarations and constraints."""
        names = ["k", "n", *self.names.values(), *self.starts.values()]
        lines = [f"(declare-const {name} Int)" for name in names]
        lines += [f"(declare-const {name} Bool)" for name in (TIMED, *self._carried.values())]
        lines += [
            f"(assert {_under(real, both(list(order)))})" for real, order in self._order.items()
        ]
        return "\n".join(lines)

    def inside(self, times: Mapping[int, int]) -> str:
        """Return that the execution is that of the schedule, all of the window being real."""
        far = max(abs(offset) for _, offset in self.names) + 2
        fixed = [TIMED, f"(= k {far})", f"(= n {4 * far})"]
        for (node, offset), name in self.names.items():
            fixed.append(f"(= {name} {number(2 * (times[node] + FAR * offset))})")
        for (node, _), name in self.starts.items():
            fixed.append(f"(= {name} {number(2 * times[node] - 1)})")
        return both(fixed)


def _under(condition: str, claim: str) -> str:
    return claim if condition == "true" else f"(=> {condition} {claim})"


def schedule(skeleton: Skeleton, without: Container[Axiom] = ()) -> str:
    """Ask for a time of every node that follows those of all that it requires.

    Requirements by the axioms of `without` are left out.

    Node x of iteration i has the time `t_x + FAR * i`.  A solution proves that no event waits for
    itself; without one, some do: a deadlock.
    """
    order: set[str] = set()
    for chain in skeleton.chains.values():
        if chain and Axiom.PROGRAM not in skeleton.without:
            steps = [*((a.node, b.node, 0) for a, b in pairwise(chain))]
            steps.append((chain[-1].node, chain[0].node, -1))
            order |= {_sooner(*step) for step in steps}
    order |= {_sooner(c.cause, c.node, c.shift) for c in skeleton.crosses if c.rule not in without}
    lines = [f"(declare-const t{node} Int)" for node in range(skeleton.size)]
    return "\n".join([*lines, *(f"(assert {claim})" for claim in sorted(order))])


def _sooner(cause: int, node: int, shift: int) -> str:
    least = 1 + FAR * shift
    if cause == node:
        return "true" if least <= 0 else "false"
    return f"(>= (- t{node} t{cause}) {number(least)})"

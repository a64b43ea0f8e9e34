"""When somebody has waited for what an engine does: a copy of a phase, or one of a group."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.kernel import ir as kir
from oracles.prover.invariants.events.graph import Skeleton
from oracles.prover.invariants.events.groups import closing
from oracles.prover.invariants.events.nodes import Group, Phase
from oracles.prover.invariants.events.parametric import both, shift
from oracles.prover.invariants.rules import Axiom


def seen(phase: Phase, ahead: int) -> list[str]:
    """Return which waits for phase `k + ahead` run."""
    return [place.runs(ahead - shift(place)) for _, place, _, _ in phase.waits]


def finished(skeleton: Skeleton, group: Group) -> Iterator[str]:
    """Yield conditions on k, each enough for a copy of iteration k to be waited for in the end."""
    yield from _awaited(skeleton, group)
    yield from _after(skeleton, group)
    yield from _published(skeleton, group)


def _awaited(skeleton: Skeleton, group: Group) -> Iterator[str]:
    """Yield which awaits of the loop cover a group."""
    for step, place, thread, _, commits in skeleton.awaits:
        assert isinstance(step.stmt, kir.AsyncAwait), "asked of awaits"
        if skeleton.awaits_group(step.stmt.kind, thread, group):
            for back, when in skeleton.covers(group, commits, step.stmt.keep):
                yield both([place.runs(back), *(bound.at(back).text() for bound in when)])


def _published(skeleton: Skeleton, group: Group) -> Iterator[str]:
    """Yield which phases on which cp.async arrives are waited for."""
    for phase in skeleton.phases.values():
        for _, place, _, node in phase.arrivals:
            for cross in skeleton.crosses:
                finish = cross.rule is Axiom.FINISH
                if finish and (cross.node, cross.cause) == (node, group.done):
                    yield from (
                        both([place.runs(-cross.shift), runs])
                        for runs in seen(phase, shift(place) - cross.shift)
                    )


def _after(skeleton: Skeleton, group: Group) -> Iterator[str]:
    """Yield which groups the awaits after the loop cover."""
    commits = skeleton.commits.get((group.thread, group.kind), [])
    more = 0
    for step in skeleton.trace.programs[group.thread.kind].after:
        if step.guard is not None:
            continue
        match step.stmt:
            case kir.AsyncCommit(kind) if kind is group.kind:
                more += 1
            case kir.AsyncAwait(kind, keep) if kind is group.kind:
                yield from closing(commits, group.commits, keep, more)
            case _:
                pass

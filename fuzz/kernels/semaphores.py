"""Semaphore mutants: kernels whose CTAs add up in order, with a change to how they pass it on.

Some changes are legal, though they do not look so: a judge that refuses everything is seen through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from fuzz.kernels.cookbook import recipe
from fuzz.kernels.draw import Subject, mutated, subject
from fuzz.kernels.matmul import scheduled
from fuzz.kernels.template import wide_turns
from fuzz.kernels.tile import Template
from fuzz.mutation.semaphore import semaphore

STAGES = 2
"""Slots of the rings of the recipes."""
LAUNCHES = 4
"""Launches of each kernel: three CTAs or as near to that as there is, and few steps, first."""
BASES = ("split_k", "split_k_tma", "wide_turns", "split_pipelined")
"""What is changed: ordinary accesses, bulk copies, large ones, and a compiled kernel."""
_, _, _W, _C = BASES
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Member:
    """A kernel of `BASES` with a change, what is wrong with it or why nothing is, and which."""

    base: str
    name: str
    says: str

    @property
    def legal(self) -> bool:
        """Whether the memory model allows it."""
        return self.says.startswith("Legal: ")

    @property
    def key(self) -> str:
        """Base and name, as one word without spaces."""
        return f"{self.base}/{self.name.replace(' ', '-')}"


_CHANGES = """
RTWC control: Legal: the kernel as it is.
TW release before commit: The copies are issued, and under way.
TW no await: Copies are committed, but nobody waits for them.
TW read-only await:
  The await ends when the copies have read their sources, not when they have written.
TW await by another thread:
  Bulk groups belong to the thread that commits: the second warp waits for nothing.
TW await after release: The release comes before the copies are awaited.
RC no barrier before release:
  Nothing joins the stores of the other threads before the one that releases.
T no barrier before release:
  Legal: the thread that releases has issued and awaited all copies itself.
TW release by another warp without a barrier:
  Nothing orders the await of one thread before the release of another.
T release by another warp:
  Legal: a barrier stands between the await of one thread and the release of another.
RTC relaxed release: The release orders nothing before it, and no fence does.
RTC release at cta scope:
  The release orders writes for threads of its own CTA, and no other waits for it.
RT relaxed release behind a cta fence: The fence reaches threads of its own CTA only.
RT relaxed release behind a gpu fence: Legal: fence and relaxed store are a release.
TW no proxy fence:
  What other CTAs wrote was acquired for ordinary accesses, not for those of the engine.
T proxy fence before the acquire:
  A fence orders what was observed before it; the acquire comes after.
TW issued by a whole warp: Each of 32 lanes adds the tile.
T issued by a thread of each warp: Each of 4 threads adds the tile.
RTC semaphore not reset:
  The last CTA leaves the number of CTAs; the next launch waits for 0 forever.
RT last release left out: The last CTA leaves its own number; the next launch waits for 0 forever.
"""
"""A line each: bases by their letters, the change, and what is wrong with it or why nothing is."""


def _members() -> Iterator[Member]:
    for line in _CHANGES.replace("\n  ", " ").strip().splitlines():
        change, _, says = line.partition(": ")
        letters, _, name = change.partition(" ")
        for base, letter in zip(BASES, "RTWC", strict=True):
            if letter in letters:
                yield Member(base, name, says)


MEMBERS = {one.key: one for one in _members()}
"""By key, the unchanged kernels first."""


@cache
def _template(base: str) -> Template:
    if base == _W:
        return wide_turns()
    whole = scheduled(base, 0) if base == _C else recipe(base, STAGES)
    return Template(whole.kernel, STAGES, whole.at)


def semaphore_mutant(key: str) -> Subject:
    """Return a kernel of `MEMBERS`, with launches in which CTAs share a tile."""
    if key not in MEMBERS:
        raise ValueError(f"semaphore_mutant({key!r}): pick one of {', '.join(MEMBERS)}")
    one = MEMBERS[key]
    template = _template(one.base)
    made = subject(template, one.base)
    if one.name != CONTROL:
        (mutant,) = (m for m in semaphore(template.kernel) if m.change == one.name)
        made = mutated(template, one.base, mutant)
    shared = [start for start in made.launches if start[1].get("splits", 1) > 1]
    shared.sort(key=lambda start: (abs(start[0] - 3), max(start[1].values())))
    return replace(made, launches=tuple(shared[:LAUNCHES]))

"""Who executes: the kinds of threads of a CTA, and which of them a statement is executed by.

Threads that no `Role` and no `Elect` tells apart are one `Kind`, followed as one.  Warps are alike
if they lie in the same roles and none of them leads one; in a warp, lane 0 stands apart from the
other lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from fuser.kernel import ir as kir

WARPS = kir.WARPGROUP // kir.WARP
"""Warps of a warpgroup."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Threads of one CTA of the cluster that execute the same statements.

    Parameters
    ----------
    index : int
        Place in the list of all kinds of all CTAs of the cluster.
    cta : int
        Rank of their CTA.
    warps : tuple of int
        Their warps.
    leads : bool
        Whether they are lane 0 of each warp; else they are lanes 1 to 31.
    role : str
        Name of the innermost role.
    """

    index: int
    cta: int
    warps: tuple[int, ...]
    leads: bool
    role: str

    @property
    def lanes(self) -> int:
        """How many of them a warp has."""
        return 1 if self.leads else kir.WARP - 1

    @property
    def count(self) -> int:
        """How many they are."""
        return self.lanes * len(self.warps)

    @property
    def alone(self) -> bool:
        """Whether they are one thread."""
        return self.count == 1

    @property
    def warpgroup(self) -> int | None:
        """The warpgroup that all of them are in; None if they are in several."""
        groups = {warp // WARPS for warp in self.warps}
        return groups.pop() if len(groups) == 1 else None

    def __str__(self) -> str:
        first, last = self.warps[0], self.warps[-1]
        lane = "lane 0" if self.leads else "lanes 1..31"
        warp = f"warp {first}" if first == last else f"warps {first}..{last}"
        cta = f" of CTA {self.cta}" if self.cta else ""
        return f"{lane} of {warp}{cta}" + (f" ({self.role})" if self.role else "")


@dataclass(frozen=True, slots=True)
class Place:
    """Who executes a statement: the warps of its innermost role, and the election around it."""

    first: int
    warps: int
    per: kir.Per | None = None

    def elect(self, per: kir.Per) -> Place:
        """Return the place inside an election; within another one, the narrower of the two."""
        order = (kir.Per.ROLE, kir.Per.WARPGROUP, kir.Per.WARP)
        return Place(self.first, self.warps, next(p for p in order if p in (per, self.per)))

    def has(self, kind: Kind) -> bool:
        """Whether threads of this kind execute it."""
        if not self.first <= kind.warps[0] < self.first + self.warps:
            return False
        match self.per:
            case None:
                return True
            case kir.Per.ROLE:
                return kind.leads and kind.warps[0] == self.first
            case kir.Per.WARP:
                return kind.leads
            case kir.Per.WARPGROUP:
                return kind.leads and (kind.warps[0] - self.first) % WARPS == 0

    @property
    def base(self) -> int:
        """The first thread of the role, from which layouts count."""
        return self.first * kir.WARP

    @property
    def threads(self) -> frozenset[int]:
        """The threads that execute it, counted in the CTA."""
        return _threads(self)


@lru_cache(maxsize=256)
def _threads(place: Place) -> frozenset[int]:
    step = {
        None: 1,
        kir.Per.WARP: kir.WARP,
        kir.Per.WARPGROUP: kir.WARPGROUP,
        kir.Per.ROLE: place.warps * kir.WARP,
    }[place.per]
    return frozenset(range(place.base, place.base + place.warps * kir.WARP, step))


def kinds(kernel: kir.Kernel, ctas: int = 0) -> tuple[Kind, ...]:
    """Return the kinds of threads of all CTAs of one cluster, or of so many CTAs."""
    many = kernel.threads // kir.WARP
    marks: list[list[str]] = [[] for _ in range(many)]
    names = [""] * many
    groups = any(isinstance(s, kir.Elect) and s.per is kir.Per.WARPGROUP for s in kernel.walk())
    _mark(kernel.body, 0, many, "", marks, names, groups=groups)
    classes: dict[tuple[str, ...], list[int]] = {}
    for warp in range(many):
        classes.setdefault(tuple(marks[warp]), []).append(warp)
    out: list[Kind] = []
    for cta in range(ctas or kernel.cluster):
        for warps in sorted(classes.values()):
            for leads in (True, False):
                out.append(Kind(len(out), cta, tuple(warps), leads, names[warps[0]]))
    return tuple(out)


def _mark(
    body: tuple[kir.Stmt, ...],
    first: int,
    warps: int,
    name: str,
    marks: list[list[str]],
    names: list[str],
    *,
    groups: bool,
) -> None:
    """Note of every warp the roles it is in, and those it leads."""
    tag = f"{first}+{warps}"
    if tag not in marks[first]:
        for warp in range(first, min(first + warps, len(marks))):
            marks[warp].append(tag)
            names[warp] = name
        marks[first].append(f"first of {tag}")
        if groups:
            for warp in range(first, min(first + warps, len(marks)), WARPS):
                marks[warp].append(f"leads in {tag}")
    for role in _roles(body):
        _mark(role.body, role.first_warp, role.warps, role.name, marks, names, groups=groups)


def _roles(body: tuple[kir.Stmt, ...]) -> Iterator[kir.Role]:
    for stmt in body:
        if isinstance(stmt, kir.Role):
            yield stmt
        else:
            for inner in kir.bodies(stmt):
                yield from _roles(inner)

"""Who executes: the kinds of threads of a CTA, each with one representative.

Notes
-----
Kinds of threads.  Two threads of one role that differ neither in being its first warp nor in being
the first lane of their warp execute the same statements, because `Role` and `Elect` are the only
statements that tell threads apart.  So a role has at most four kinds: lane 0 and the other lanes
of its first warp, lane 0 and the other lanes of its other warps.  Where no statement takes one
lane of each warp, or joins the lanes of a warp (as `Wgmma` does), two kinds are left: the first
thread and the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError


@dataclass(frozen=True, slots=True)
class Agent:
    """Threads that execute the same statements, by one representative.

    Parameters
    ----------
    index : int
        Place in `Trace.agents`.
    base : int
        First warp of its role (of the CTA without one).
    threads : int
        Threads of its role (of the CTA without one).
    first_warp, first_lane : bool
        Whether they are in the first warp of the role, and lane 0 of their warps.
    warps, count : int
        Warps they are in, and how many they are.
    rest : bool
        All threads of the role but its first.
    """

    index: int
    role: str
    base: int
    threads: int
    first_warp: bool
    first_lane: bool
    warps: int
    count: int
    rest: bool = False

    @property
    def thread(self) -> int:
        """The representative, counted within its role."""
        if self.rest:
            return 1
        return (0 if self.first_warp else kir.WARP) + (0 if self.first_lane else 1)

    @property
    def members(self) -> Iterator[int]:
        """All of them, counted within the CTA."""
        first = self.base * kir.WARP
        if self.rest:
            yield from range(first + 1, first + self.threads)
            return
        start = 0 if self.first_warp else 1
        for warp in range(start, start + self.warps):
            for lane in range(1) if self.first_lane else range(1, kir.WARP):
                yield first + warp * kir.WARP + lane

    def __str__(self) -> str:
        if self.rest:
            return f"threads 1..{self.threads - 1}" + (f" ({self.role})" if self.role else "")
        lane = "lane 0" if self.first_lane else "lanes 1..31"
        warp = f"warp {self.base}" if self.first_warp else f"warps {self.base + 1}.."
        return f"{lane} of {warp}" + (f" ({self.role})" if self.role else "")


def kinds(kernel: kir.Kernel) -> tuple[Agent, ...]:
    """Return the kinds of threads of a kernel, role by role."""
    roles = [stmt for stmt in kernel.body if isinstance(stmt, kir.Role)]
    spans = [(role.name, role.first_warp, role.warps) for role in roles]
    taken = [w for _, first, warps in spans for w in range(first, first + warps)]
    if len(taken) != len(set(taken)):
        spans = _merged(spans)
    idle = sorted(set(range(kernel.threads // kir.WARP)) - set(taken))
    groups: list[tuple[str, int, int]] = list(spans)
    while idle:
        first = idle[0]
        warps = 1
        while warps < len(idle) and idle[warps] == first + warps:
            warps += 1
        groups.append(("", first, warps))
        idle = idle[warps:]
    out: list[Agent] = []
    if not any(_splits(stmt) for stmt in kernel.walk()):
        for name, first, warps in sorted(groups, key=lambda g: g[1]):
            many = warps * kir.WARP
            out.append(Agent(len(out), name, first, many, True, True, 1, 1))
            out.append(Agent(len(out), name, first, many, False, False, warps, many - 1, True))
        return tuple(out)
    for name, first, warps in sorted(groups, key=lambda g: g[1]):
        for first_warp in (True, False):
            many = 1 if first_warp else warps - 1
            for first_lane in (True, False):
                if many:
                    count = many * (1 if first_lane else kir.WARP - 1)
                    out.append(
                        Agent(
                            len(out),
                            name,
                            first,
                            warps * kir.WARP,
                            first_warp,
                            first_lane,
                            many,
                            count,
                        )
                    )
    return tuple(out)


def _splits(stmt: kir.Stmt) -> bool:
    """Whether a statement tells lanes of a warp apart, or joins them."""
    return isinstance(stmt, kir.WarpSync | kir.Wgmma) or (
        isinstance(stmt, kir.Elect) and stmt.per is kir.Per.WARP
    )


def _merged(spans: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """One after the other, the same warps may take several roles, if each takes them whole."""
    seen: dict[tuple[int, int], str] = {}
    for name, first, warps in spans:
        seen[first, warps] = name
    merged = [(name, first, warps) for (first, warps), name in seen.items()]
    taken = [w for _, first, warps in merged for w in range(first, first + warps)]
    if len(taken) != len(set(taken)):
        raise UnsupportedError("roles share some of their warps")
    return merged

"""Shared and global memory: bytes, and for each granule who wrote and read it last.

A granule is what the narrowest access of the kernel has.  Each access is checked against the last
write and the reads since, by what its agent knows (`clocks`).

Source: PTX ISA, "Memory Consistency Model" (conflicting accesses, data races), "Async proxy",
"Addresses as Operands" (natural alignment).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from oracles.ptx.clocks import ASYNC_GLOBAL, ASYNC_SHARED, GENERIC, NEVER, Clocks
from oracles.ptx.vectors import all_of, any_of, distinct

Ints = npt.NDArray[Any]

ASYNC, STRONG, BARRIER = 1, 2, 4
"""Flags of a write: by the asynchronous proxy; by a strong operation; here lives an mbarrier."""

WARPS = "warps"
"""Kind of the warning that not all warps of a group have waited for its wgmma."""
LANES = "lanes"
"""Kind of the warning that who gives a row of stmatrix does not know what was done to it."""

Report = Callable[[str, str, int, Any, Any, str], None]
"""Takes kind, text, time of the earlier access, agent now, agent then, what is missing."""


class Space:
    """The bytes of one state space of a launch, and who touched them."""

    def __init__(
        self, name: str, nbytes: int, grain: int, clocks: Clocks, report: Report, seen: bool
    ) -> None:
        self.name, self.nbytes, self.grain = name, nbytes, grain
        self.data = np.zeros(-(-nbytes // 16) * 16, np.uint8)
        self.view = {
            kind: self.data.view(kind)
            for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "u8", "i8", "f8")
        }
        many = len(self.data) // grain
        self.clocks, self.report = clocks, report
        self.writer = np.full(many, -1, np.int32)
        self.written = np.zeros(many, np.int32)
        self.flags = np.zeros(many, np.uint8)
        self.reader = np.full(many, -1, np.int32)
        self.at = np.zeros(many, np.int32)
        self.readers = np.zeros(many, np.int32)
        self._marked = np.zeros(many, np.bool_)
        self.plane = ASYNC_SHARED if name == "shared" else ASYNC_GLOBAL
        self.asks_written = seen
        self.granules_each = 0
        """Granules of a CTA; 0 in global memory."""
        self.sets: list[tuple[Ints, Ints]] = [(np.zeros(0, np.int32), np.zeros(0, np.int32))]
        self._interned: dict[tuple[bytes, bytes], int] = {}
        self.checked = 0

    def granules(self, places: Ints, nbytes: int) -> Ints:
        """Return the granules of accesses, a row for each."""
        first = places // self.grain
        many = max(1, nbytes // self.grain)
        if many == 1:
            return first[:, None]
        return first[:, None] + np.arange(many)

    def read(
        self,
        granules: Ints,
        by: Ints,
        *,
        agent: Ints | None = None,
        asynchronous: bool = False,
        strong: bool = False,
        keep: bool = True,
    ) -> None:
        """Judge reads of granules by threads, and remember them as those of other agents."""
        g, who = _flat(granules, by)
        self.checked += len(by)
        writer = self.writer[g]
        ok = self._ordered(g, who, writer, self.written[g], asynchronous, strong)
        if not all_of(ok):
            self._complain("RAW", g, who, ok, writer, self.written, asynchronous)
        if self.asks_written and any_of(writer < 0):
            at = int(np.flatnonzero(writer < 0)[0])
            self.report(
                "RAW",
                f"bytes {self.where(int(g[at]))} that nobody has written",
                0,
                int(who[at]),
                None,
                "",
            )
        if keep:
            self.remember(g, who if agent is None else _flat(granules, agent)[1])

    def ordered(self, granules: Ints, by: Ints) -> bool:
        """Tell whether asynchronous reads of granules by a thread are behind their last writes."""
        who = np.broadcast_to(by, granules.shape)
        times = self.written[granules]
        return bool(self._ordered(granules, who, self.writer[granules], times, True, False).all())

    def remember(self, g: Ints, agents: Ints) -> None:
        """Remember reads."""
        now = self.clocks.now
        old, since = self.reader[g], self.at[g]
        plain = (old < 0) | (old == agents)
        if not all_of(plain):
            threads = agents < self.clocks.threads
            knows = np.zeros(len(g), bool)
            ask = ~plain & threads
            if any_of(ask):
                knows[ask] = self._known(g[ask], agents[ask], old[ask], since[ask])
            plain |= knows
        plain &= self.readers[g] == 0
        self.reader[g[plain]] = agents[plain]
        self.at[g[plain]] = now
        several = ~plain
        several[plain] = self.reader[g[plain]] != agents[plain]
        if any_of(several):
            self._marked[g[several]] = True
            crowd = self._marked[g]
            self._marked[g[several]] = False
            self._gather(g[crowd], agents[crowd], now)

    def _gather(self, g: Ints, agents: Ints, now: int) -> None:
        """Remember several readers of granules."""
        order = np.lexsort((agents, g))
        g, agents = g[order], agents[order]
        cuts = np.flatnonzero(np.diff(g)) + 1
        made: dict[tuple[int, int, int, bytes], int] = {}
        starts = [0, *cuts.tolist()]
        ends = [*cuts.tolist(), len(g)]
        firsts = g[starts]
        olds = zip(
            self.readers[firsts].tolist(),
            self.reader[firsts].tolist(),
            self.at[firsts].tolist(),
            strict=True,
        )
        found = []
        for start, end, (many, one, at) in zip(starts, ends, olds, strict=True):
            fresh = agents[start:end]
            key = (many, one, at, fresh.tobytes())
            if key not in made:
                members = dict(zip(*(x.tolist() for x in self.sets[many]), strict=True))
                if many == 0 and one >= 0:
                    members[one] = at
                members.update(dict.fromkeys(fresh.tolist(), now))
                made[key] = self._intern(members)
            found.append(made[key])
        self.readers[firsts] = found
        self.reader[firsts] = agents[starts]
        self.at[firsts] = now

    def _intern(self, members: dict[int, int]) -> int:
        who = np.array(sorted(members), np.int32)
        when = np.array([members[n] for n in who.tolist()], np.int32)
        key = (who.tobytes(), when.tobytes())
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = len(self.sets)
            self.sets.append((who, when))
        return found

    def write(
        self,
        granules: Ints,
        by: Ints,
        *,
        agent: Ints | None = None,
        time: int | None = None,
        asynchronous: bool = False,
        strong: bool = False,
        twice: bool = False,
    ) -> None:
        """Judge writes of granules by threads, and remember them as those of other agents.

        `twice` is for those of whom several may write a granule at once.
        """
        g, who = _flat(granules, by)
        self.checked += len(by)
        writer, since = self.writer[g], self.written[g]
        ok = self._ordered(g, who, writer, since, asynchronous, strong)
        if not all_of(ok):
            self._complain("WAW", g, who, ok, writer, self.written, asynchronous)
        self._after_reads(g, who)
        if any_of(self.flags[g]) and any_of(self.flags[g] & BARRIER):
            at = int(np.flatnonzero(self.flags[g] & BARRIER)[0])
            self.report(
                "init",
                f"data over an mbarrier at {self.where(int(g[at]))}",
                0,
                int(who[at]),
                None,
                "mbarrier.inval before the bytes are used again",
            )
        agents = who if agent is None else _flat(granules, agent)[1]
        self.writer[g] = agents
        if len(g) > 1 and not strong and not twice and any_of(self.writer[g] != agents):
            at = int(np.flatnonzero(self.writer[g] != agents)[0])
            self.report(
                "WAW",
                f"{self.where(int(g[at]))} by two threads in one instruction",
                self.clocks.now,
                int(who[at]),
                int(self.writer[g[at]]),
                "nothing orders them",
            )
        self.written[g] = self.clocks.now if time is None else time
        self.flags[g] = ASYNC * asynchronous + STRONG * strong
        self.reader[g] = -1
        self.readers[g] = 0

    def give(self, granules: Ints, by: Ints) -> None:
        """Judge threads that give rows which others of their warp write; a warning."""
        g, who = _flat(granules, by)
        writer = self.writer[g]
        ok = self._ordered(g, who, writer, self.written[g], False, False)
        if not all_of(ok):
            self._complain(LANES, g, who, ok, writer, self.written, False)
        self._after_reads(g, who, LANES)

    def _ordered(
        self, g: Ints, who: Ints, writer: Ints, since: Ints, asynchronous: bool, strong: bool
    ) -> Ints:
        """Tell of each granule whether its last write happened before."""
        ok = writer < 0
        if all_of(ok):
            return ok
        if asynchronous:
            flags = self.flags[g]
            through = (flags & ASYNC) != 0
            plain = ~ok & through
            ok[plain] = self._crossed(g[plain], who[plain], writer[plain], since[plain])
            other = writer >= 0
            other &= ~through
            ok[other] = self.clocks.knows(self.plane, who[other], writer[other], since[other])
        else:
            ok |= self._known(g, who, writer, since)
        if strong and not all_of(ok):  # atomic towards each other, where of one proxy
            flags = self.flags[g]
            ok |= ((flags & STRONG) != 0) & (((flags & ASYNC) != 0) == asynchronous)
        return ok

    def _known(self, g: Ints, who: Ints, agents: Ints, since: Ints) -> Ints:
        """Tell of each granule whether a thread knows what an agent did to it by a time."""
        clocks = self.clocks
        if clocks.elsewhere == GENERIC:
            return clocks.knows(GENERIC, who, agents, since)
        ok = clocks.knows(clocks.elsewhere, who, agents, since)
        if self.granules_each and not all_of(ok):
            own = clocks.home[agents] == g // self.granules_each
            ok |= own & clocks.knows(GENERIC, who, agents, since)
        return ok

    def _crossed(self, g: Ints, who: Ints, writer: Ints, since: Ints) -> Ints:
        """Tell whether asynchronous work that is done is known to more of it.

        In global memory that of another CTA is only behind a proxy fence.
        """
        ok = self._known(g, who, writer, since)
        if self.plane == ASYNC_GLOBAL:
            home = self.clocks.home
            near = home[writer] == home[who]
            ok &= near | self.clocks.knows(ASYNC_GLOBAL, who, writer, since)
        return ok

    def _after_reads(self, g: Ints, who: Ints, kind: str = "WAR") -> None:
        reader = self.reader[g]
        some = reader >= 0
        if not any_of(some):
            return
        many = self.readers[g]
        one = some & (many == 0)
        ok = np.ones(len(g), bool)
        if any_of(one):
            ok[one] = self._read_before(g[one], who[one], reader[one], self.at[g[one]])
        if not all_of(ok):
            self._complain(kind, g, who, ok, reader, self.at, False)
        crowd = np.flatnonzero(many)
        if not len(crowd):
            return
        homes = g[crowd] // self.granules_each if self.granules_each else np.zeros_like(crowd)
        groups = np.stack([many[crowd], who[crowd], homes])
        groups, firsts = np.unique(groups, axis=1, return_index=True)
        for (number, thread, _), at in zip(groups.T.tolist(), crowd[firsts].tolist(), strict=True):
            agents, times = self.sets[number]
            by = np.full(len(agents), thread)
            known = self._read_before(np.full(len(agents), g[at]), by, agents, times)
            if not all_of(known):
                bad = int(np.flatnonzero(~known)[0])
                self.report(
                    kind,
                    self.where(int(g[at])),
                    int(times[bad]),
                    thread,
                    int(agents[bad]),
                    "nothing orders the read before the write",
                )

    def _read_before(self, g: Ints, who: Ints, agents: Ints, since: Ints) -> Ints:
        """Tell of each granule whether a thread knows that an agent has read it by a time.

        A group of wgmmas is the warpgroup's: that one warp has waited for it is enough, and a
        warning where the others have not told that they did.  Source: PTX ISA, "wgmma.commit_group"
        ("per warpgroup"); CUTLASS has one thread of a warpgroup free a slot for all of them.
        """
        ok = self._known(g, who, agents, since)
        known = self.clocks.warps
        if not known or not all_of(ok):
            return ok
        for group in known.keys() & set(distinct(agents).tolist()):
            mine = np.flatnonzero(agents == group)
            for warp in known[group]:
                sure = self._known(g[mine], who[mine], np.full(len(mine), warp), since[mine])
                if not all_of(sure):
                    bad = mine[int(np.flatnonzero(~sure)[0])]
                    self.report(
                        WARPS,
                        self.where(int(g[bad])),
                        int(since[bad]),
                        int(who[bad]),
                        int(warp),
                        "another warp of its group has waited, this one has not told that it did",
                    )
                    break
        return ok

    def _complain(
        self, kind: str, g: Ints, who: Ints, ok: Ints, other: Ints, times: Ints, asynchronous: bool
    ) -> None:
        at = int(np.flatnonzero(~ok)[0])
        when = int(times[g[at]])
        missing = "nothing orders the earlier access before it"
        if asynchronous:
            one = np.array([who[at]]), np.array([other[at]]), np.array([when])
            if self._known(g[[at]], *one)[0]:
                kind, missing = "proxy", "ordered, but no fence.proxy.async stands between"
        if when >= NEVER:
            missing = "the copy is still in flight"
        self.report(kind, self.where(int(g[at])), when, int(who[at]), int(other[at]), missing)

    def where(self, granule: int) -> str:
        """Name a granule."""
        return f"{self.name} {granule * self.grain:#x}"


def _flat(granules: Ints, by: Ints) -> tuple[Ints, Ints]:
    """Return granules, and for each its agent."""
    if granules.ndim == 1:
        alike = by.shape == granules.shape
        return granules, by if alike else np.broadcast_to(by, granules.shape)
    if granules.shape[1] == 1:
        return granules[:, 0], by
    return granules.reshape(-1), np.repeat(by, granules.shape[1])

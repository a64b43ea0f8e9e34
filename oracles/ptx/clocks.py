"""Who knows of what: for each thread, until when the accesses of each agent happened before.

An agent is a thread, or an engine on behalf of one: its cp.async copies, its bulk copies' reads
and writes, a warp's wgmma reads, the copies that complete on an mbarrier.  A row has the last time
of each agent that is known, in three planes: to the generic proxy, and to the asynchronous proxy
in shared and in global memory, behind a proxy fence.  Where a kernel writes tensor maps there are
three more: what was released to the tensormap proxy for the CTA, for the cluster, for the device.
Where it releases shared memory only (`fence.release.sync_restrict`) there is one more, of what is
known of accesses of anything but the shared memory of the CTA of who did it.
Threads that know the same share a row.

Source: PTX ISA, "Memory Consistency Model" (causality order, proxies), "Async proxy".  Epochs:
C. Flanagan, S. N. Freund, "FastTrack: efficient and precise dynamic race detection", 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from oracles.ptx.vectors import all_of, distinct

Ints = npt.NDArray[Any]

GENERIC, ASYNC_SHARED, ASYNC_GLOBAL, RELEASED = range(4)
"""The planes of a row; `RELEASED` is the first of three, if there are any."""
NEVER = 1 << 30
"""Times from here on are of what is still in flight: nobody knows of it."""


MOST_BYTES = 256 << 20
"""What the rows of a launch may take."""


class LimitError(Exception):
    """The launch does not end within what the judge takes."""


class Clocks:
    """Knowledge of all threads of a launch."""

    def __init__(
        self,
        threads: int,
        home: Ints | None = None,
        *,
        releases: bool = False,
        restricts: bool = False,
    ) -> None:
        self.threads = threads
        self.planes = RELEASED + 3 * releases + restricts
        self.elsewhere = self.planes - 1 if restricts else GENERIC
        """The plane of memory that is not the shared one of the CTA of who accesses it."""
        self.generic = (GENERIC, self.elsewhere)
        self.home = np.zeros(threads, np.int32) if home is None else home.astype(np.int32)
        """The CTA of each column."""
        self.now = 1
        self.columns = threads
        self.known = np.zeros((16, self.planes, threads + 16), np.int32)
        self.row = np.zeros(threads, np.intp)
        self.fenced = np.zeros((self.planes - 1, threads), np.int32)
        self.free = list(range(15, 0, -1))
        self.made = self.kept = 0
        """Rows since the last collection, and rows that it left."""
        self.holders: list[Callable[[], Iterable[int]]] = []
        self._column: dict[tuple[Hashable, ...], int] = {}
        self.names: dict[int, tuple[Hashable, ...]] = {}
        self.warps: dict[int, Ints] = {}
        """Columns of the warps of each warpgroup that has wgmmas, by its own."""
        self.copies = -1
        """First of the columns of the threads' cp.async copies, once there are any."""
        self.copied = np.zeros((self.planes, threads), np.int32)

    def column(self, key: tuple[Hashable, ...], cta: int = -1) -> int:
        """Return the column of an engine of a CTA."""
        found = self._column.get(key)
        if found is None:
            found = self._column[key] = self._more(1)
            self.names[found] = key
            self.home[found] = cta
        return found

    def warpgroup(self, number: int, cta: int) -> int:
        """Return the column of a warpgroup's wgmmas, which each of its warps has one of, too."""
        one = self.column(("wgmma of warpgroup", number, "CTA", cta), cta)
        if one not in self.warps:
            keys = (("wgmma of warp", 4 * number + n, "CTA", cta) for n in range(4))
            self.warps[one] = np.array([self.column(key, cta) for key in keys])
        return one

    def copy_columns(self) -> int:
        """Return the first of the columns of cp.async copies, one for each thread."""
        if self.copies < 0:
            self.copies = self._more(self.threads)
            self.home[self.copies : self.copies + self.threads] = self.home[: self.threads]
        return self.copies

    def _more(self, many: int) -> int:
        first = self.columns
        self.columns += many
        self.home = np.concatenate([self.home, np.full(many, -1, np.int32)])
        if self.columns > self.known.shape[2]:
            room = max(self.columns - self.known.shape[2], self.known.shape[2] // 2)
            self.known = np.pad(self.known, ((0, 0), (0, 0), (0, room)))
        return first

    def fresh(self, content: Ints) -> int:
        """Return a new row; nobody holds it yet, so nothing is collected here.

        LimitError where there are too many.
        """
        if not self.free:
            more = len(self.known)
            if 2 * self.known.nbytes > MOST_BYTES:
                raise LimitError(f"{more} sets of threads know different things, too many to keep")
            grown = np.zeros((2 * more, *self.known.shape[1:]), np.int32)  # not resident as zeros
            grown[:more] = self.known
            self.known = grown
            self.free += range(2 * more - 1, more - 1, -1)
        row = self.free.pop()
        self.made += 1
        has = content.shape[1]
        self.known[row, :, :has] = content
        self.known[row, :, has:] = 0
        return row

    def collect(self) -> None:
        """Find rows that nobody has any more; between instructions only.

        Not before as many were made as the last collection left, so that it costs little.
        """
        if self.made <= max(self.kept, 8):
            return
        used = {0, *map(int, distinct(self.row))}
        for holder in self.holders:
            used.update(holder())
        self.free = [n for n in range(len(self.known) - 1, 0, -1) if n not in used]
        self.made, self.kept = 0, len(used)

    def tick(self) -> int:
        """Return the time of the next access."""
        self.now += 1
        return self.now

    def knows(self, plane: int, by: Ints, agent: Ints | int, since: Ints | int) -> Ints:
        """Tell of each thread whether it knows what an agent has done by a time.

        Agent and time are of each thread, or the same for all.
        """
        ok = self.known[self.row[by], plane, agent] >= since
        if all_of(ok):  # most accesses are ordered by what their threads were told
            return np.asarray(ok)
        own = agent == by
        if plane in self.generic:
            ok |= own & (since < NEVER)
        else:
            ok |= own & (self.fenced[plane - 1][by] >= since)
        if self.copies >= 0:
            copied = self.copied[GENERIC if plane in self.generic else plane]
            ok |= (agent == self.copies + by) & (copied[by] >= since)
        return np.asarray(ok)

    def released(self, threads: Ints) -> int:
        """Return a row with all that some threads know and have done."""
        rows = distinct(self.row[threads])
        content = self.known[rows[0]].copy() if len(rows) == 1 else self.known[rows].max(axis=0)
        for plane in self.generic:
            content[plane, threads] = self.now
        for plane in self._proxies:
            content[plane, threads] = np.maximum(
                content[plane, threads], self.fenced[plane - 1, threads]
            )
        if self.copies >= 0:
            own = self.copies + threads
            content[:, own] = np.maximum(content[:, own], self.copied[:, threads])
            content[self.elsewhere, own] = content[GENERIC, own]
        return self.fresh(content)

    def restricted(self, threads: Ints) -> int:
        """Return a row with what threads of a CTA know of their own shared memory."""
        row = self.released(threads)
        self.known[row, ASYNC_GLOBAL:] = 0
        self.known[row, :, : self.columns][:, self.home != self.home[threads[0]]] = 0
        return row

    @property
    def _proxies(self) -> range:
        """The planes of other proxies than the generic one."""
        return range(1, self.elsewhere or self.planes)

    def joined(self, one: int, other: int) -> int:
        """Return a row with what two rows have; row 0 has nothing."""
        if one == 0 or one == other:
            return other
        if other == 0:
            return one
        return self.fresh(np.maximum(self.known[one], self.known[other]))

    def acquire(self, threads: Ints, row: int) -> None:
        """Let threads know what a row has."""
        if row == 0 or not len(threads):
            return
        for old in distinct(self.row[threads]):
            who = threads[self.row[threads] == old]
            if old == row:
                continue
            if all_of(self.known[row] >= self.known[old]):
                self.row[who] = row
            elif not all_of(self.known[old] >= self.known[row]):
                self.row[who] = self.joined(int(old), row)

    def learn(
        self, threads: Ints, column: int | Ints, time: int, planes: tuple[int, ...] = (0,)
    ) -> None:
        """Let threads know what an engine, or several, have done by a time."""
        for old in distinct(self.row[threads]):
            who = threads[self.row[threads] == old]
            content = self.known[old].copy()
            for plane in {*planes, *(self.generic if GENERIC in planes else ())}:
                content[plane, column] = np.maximum(content[plane, column], time)
            self.row[who] = self.fresh(content)

    def _fenced(self, plane: int) -> int:
        """Return what a fence makes known to a proxy."""
        return GENERIC if plane == ASYNC_SHARED else self.elsewhere

    def fence(self, threads: Ints, planes: tuple[int, ...]) -> None:
        """Make what threads know, and have done, known to other proxies (fence.proxy)."""
        for old in distinct(self.row[threads]):
            who = threads[self.row[threads] == old]
            content = self.known[old]
            seen = {plane: self._fenced(plane) for plane in planes}
            if all((content[plane] >= content[of]).all() for plane, of in seen.items()):
                continue
            content = content.copy()
            for plane, of in seen.items():
                content[plane] = np.maximum(content[plane], content[of])
            self.row[who] = self.fresh(content)
        for plane in planes:
            self.fenced[plane - 1, threads] = self.now
            self.copied[plane, threads] = self.copied[GENERIC, threads]

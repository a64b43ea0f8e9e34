"""What one warp knows alone: groups of asynchronous work, and registers that a wgmma uses.

Both depend on the order of the warp's own statements only, so no interleaving changes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from oracles.explorer.rules import Defect, NotModelled, Rule


@dataclass(slots=True)
class Groups:
    """The groups of one kind of an agent: pieces by the events of their end, and their reads'."""

    open: list[tuple[int, int]] = field(default_factory=list)
    closed: list[list[tuple[int, int]]] = field(default_factory=list)
    unsettled: bool = False
    """Whether it depends on which CTA arrives last how many groups there are."""

    def copy(self) -> Groups:
        """Return groups that can go their own way."""
        return Groups(self.open[:], self.closed[:], self.unsettled)

    def either(self, other: Groups) -> None:
        """Go on with what is in flight here or there, of which only one is known to have been."""
        if self == other:
            return
        self.unsettled = True
        self.open += [piece for piece in other.open if piece not in self.open]
        self.closed += [group for group in other.closed if group not in self.closed]

    def commit(self) -> None:
        """Close the open group, empty or not."""
        self.closed.append(self.open)
        self.open = []

    def done(self, keep: int, *, reads: bool) -> int:
        """Return the events that are over when all but the latest `keep` groups are."""
        if self.unsettled and keep:
            raise NotModelled("an await that keeps groups of the body of the last-arriving CTA")
        old = self.closed[: max(0, len(self.closed) - keep)]
        out = 0
        for group in old:
            for whole, read in group:
                out |= read if reads else whole | read
        if not reads:
            self.closed = self.closed[len(old) :]
            self.unsettled = False
        return out


@dataclass(slots=True)
class _Pending:
    event: int
    acc: str
    a: str


@dataclass(slots=True)
class Registers:
    """The fragments of one warp, as far as its wgmmas are concerned."""

    without: frozenset[Rule]
    clean: dict[str, object] = field(default_factory=dict)
    """Fragments not touched since a wgmma fence, with the layout of the last wgmma on them."""
    fenced: bool = False
    pending: list[_Pending] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    """Fragments that only the last-arriving CTA has written, in the body that this one skipped."""

    def copy(self) -> Registers:
        """Return registers that can go their own way."""
        return Registers(
            self.without, dict(self.clean), self.fenced, self.pending[:], set(self.dirty),
            set(self.written), set(self.elsewhere),
        )  # fmt: skip

    def either(self, other: Registers) -> None:
        """Go on with what was touched here or there."""
        both = self.clean.keys() & other.clean.keys()
        if self.pending != other.pending or any(self.clean[k] != other.clean[k] for k in both):
            raise NotModelled("wgmmas in flight at an end of the body of the last-arriving CTA")
        self.clean |= other.clean
        self.fenced = self.fenced and other.fenced
        self.dirty |= other.dirty
        self.elsewhere |= self.written - other.written | other.elsewhere
        self.written &= other.written

    def fence(self) -> None:
        """Order every earlier access before the next wgmma."""
        self.fenced = True
        self.dirty.clear()
        self.clean.clear()

    def wgmma(self, stmt: kir.Wgmma, event: int, where: str, *, adds: bool) -> None:
        """Start a wgmma, which `adds` to its result or clears it."""
        a = stmt.a.name if isinstance(stmt.a, kir.Fragment) else ""
        self._valued(((stmt.acc.name,) if adds else ()) + ((a,) if a else ()), where)
        if Rule.WGMMA_FENCE not in self.without:
            for name in (stmt.acc.name, a):
                if name and (not self.fenced or name in self.dirty):
                    says = f"no wgmma_fence since {name} was last used otherwise"
                    raise Defect(Rule.WGMMA_FENCE, "fence", where, says)
            if self.clean.get(stmt.acc.name, stmt.acc.layout) != stmt.acc.layout:
                says = f"{stmt.acc.name} changes its shape without a wgmma_fence"
                raise Defect(Rule.WGMMA_FENCE, "fence", where, says)
        if Rule.REGISTERS_IN_FLIGHT not in self.without:
            for other in self.pending:
                if a and other.acc == a:
                    self._race("RAW", where, a)
                if other.a == stmt.acc.name:
                    self._race("WAR", where, stmt.acc.name)
        self.clean[stmt.acc.name] = stmt.acc.layout
        self.written.add(stmt.acc.name)
        self.elsewhere.discard(stmt.acc.name)
        self.pending.append(_Pending(event, stmt.acc.name, a))

    def finish(self, events: int) -> None:
        """Forget the wgmmas that an await has seen the end of."""
        self.pending = [p for p in self.pending if not p.event & events]

    def touch(self, reads: tuple[str, ...], write: str, where: str) -> None:
        """Access fragments by an ordinary statement."""
        if Rule.REGISTERS_IN_FLIGHT not in self.without:
            for p in self.pending:
                if p.acc in reads:
                    self._race("RAW", where, p.acc)
                if write == p.acc:
                    self._race("WAW", where, p.acc)
                if write and write == p.a:
                    self._race("WAR", where, p.a)
        self._valued(reads, where)
        self.dirty.update(reads)
        if write:
            self.dirty.add(write)
            self.written.add(write)
            self.elsewhere.discard(write)

    def _valued(self, reads: tuple[str, ...], where: str) -> None:
        missing = {*reads} - self.written
        if missing and Rule.RAW not in self.without:
            who = "the last-arriving CTA only" if missing & self.elsewhere else "nobody before"
            says = f"registers {min(missing)} are written by {who}"
            raise Defect(Rule.RAW, "RAW", where, says)

    def _race(self, kind: str, where: str, name: str) -> None:
        says = f"registers {name} are in use by a wgmma that this warp has not awaited"
        raise Defect(Rule.REGISTERS_IN_FLIGHT, kind, where, says)


def fragments(stmt: kir.Stmt) -> tuple[tuple[str, ...], str]:
    """Return the fragments that an ordinary statement reads, and the one it writes."""
    match stmt:
        case kir.Load(dst) | kir.Coordinate(dst):
            return (), dst.name
        case kir.Slice(dst, src) | kir.Unpack(dst, src) | kir.Reduce(dst, src):
            return (src.name,), dst.name
        case kir.Scan(dst, src, _, start):
            return (src.name, start.name), dst.name
        case kir.Store(_, src) | kir.AtomicAdd(_, src) | kir.StAsync(_, src):
            return (src.name,), ""
        case kir.Mma(acc, a, b):
            return (acc.name, a.name, b.name), acc.name
        case kir.Gather(dst, _, index):
            return tuple(one.name for one in index), dst.name
        case kir.Compute(dst, _, args):
            return tuple(x.name for x in args if isinstance(x, kir.Fragment)), dst.name
        case _:
            return (), ""

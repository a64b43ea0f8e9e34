"""The rules of the prover's order: one name for each edge it draws and each thing it asks.

The engine looks a rule up wherever it uses it, so that a test can take one away and see whether
anybody notices.  What breaks a rule is a `Violation`; `Findings` has those of one exploration.
`Words` are those in which a statement is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.state import Where
from oracles.prover.sites import Site


class Rule(Enum):
    """An axiom (an edge of the order) or an obligation (what must be ordered, or add up).

    `kind` is what a violation of an obligation is called, unless it says something else.
    """

    kind: str

    def __new__(cls, says: str, kind: str = "") -> Rule:
        """Make a rule with a text and a kind."""
        made = object.__new__(cls)
        made._value_, made.kind = says, kind
        return made

    WAIT_ACQUIRES = "axiom: the arrivals and bytes of a phase precede what follows a wait for it"
    SYNC_JOINS = "axiom: what precedes a block sync in its threads precedes what follows it"
    WARP_JOINS = "axiom: what precedes a warp sync in its lanes precedes what follows it"
    CLUSTER_JOINS = "axiom: what precedes an arrival at the cluster's barrier precedes its waits"
    AWAIT_ORDERS = "axiom: finished groups precede what follows their await in that thread"
    FENCE_ORDERS = "axiom: a proxy fence carries earlier ordinary accesses to the async proxy"
    TURN_ACQUIRES = "axiom: what earlier turns released precedes what follows a semaphore's wait"
    GRID_JOINS = "axiom: CTAs at a grid barrier know what each of them knew"
    LAST_KNOWS = "axiom: the last-arriving CTA knows what each of the others knew"
    WAIT_ENDS = "axiom: the launches before have ended before what follows a wait for them"
    MAP_FENCES = "axiom: a release carries writes of tensor maps to an acquire, which tells copies"
    RAW = "obligation: a read follows the write that it must see", "RAW"
    WAR = "obligation: a write follows earlier reads of its bytes", "WAR"
    WAW = "obligation: a write follows earlier writes of its bytes", "WAW"
    WRITTEN = "obligation: what is read has been written", "RAW"
    PROXY = (
        "obligation: a fence stands between an ordinary write and an asynchronous access",
        "proxy",
    )
    PROXY_READ = (
        "obligation: a fence stands between an ordinary read and an asynchronous write",
        "proxy",
    )
    PROXY_WRITER = "obligation: that fence is the writer's own", "proxy"
    MAP = "obligation: a tensor map says what the copy through it takes it to say", "map"
    PHASE_BEHIND = "obligation: a wait starts after the phase before its own is complete", "parity"
    PHASE_LAPPED = (
        "obligation: a phase completes after every wait for the last one has returned",
        "parity",
    )
    PHASE_EARLY = (
        "obligation: arrivals and bytes come after the phase before theirs is complete",
        "parity",
    )
    ARRIVALS = "obligation: a phase has an arrival left for each that comes", "arrivals"
    BYTES = "obligation: a phase expects the bytes that are copied", "bytes"
    INIT = "obligation: a barrier is used in its life, where that is visible", "init"
    BOUNDS = "obligation: slots exist", "bounds"
    SYNC_APART = (
        "obligation: one generation of a named barrier is over before the next begins",
        "collective",
    )
    SYNC_COUNT = (
        "obligation: a named barrier is reached by exactly its number of threads",
        "collective",
    )
    COLLECTIVE = "obligation: warpgroup statements are executed by whole warpgroups", "collective"
    LIVENESS = "obligation: no thread waits forever", "deadlock"
    REGISTERS_BUSY = "obligation: registers of a wgmma are left alone until it is awaited", "RAW"
    WGMMA_FENCE = "obligation: a fence stands between register accesses and the next wgmma", "fence"
    BUDGET = "obligation: setmaxnreg asks for what the register file has", "registers"
    SCOPE = "obligation: a release and an acquire reach the CTA that they are for", "scope"
    DRAIN = "obligation: a release follows the bulk writes that it announces", "drain"
    TURN_VALUES = (
        "obligation: each turn is released by the one before, and the last leaves 0",
        "semaphore",
    )
    RESIDENCY = "obligation: a CTA waits only for CTAs that are sure to run", "residency"
    BEGUN = "obligation: a CTA stores only into CTAs that have begun", "residency"
    DETERMINISM = "obligation: a kernel declared bitwise adds in one order", "determinism"
    DEPENDENCY = (
        "obligation: what launches before may use is left alone until they end",
        "dependency",
    )
    EXIT = "obligation: nothing is in flight when a CTA ends", "exit"


@dataclass(frozen=True, slots=True)
class Violation:
    """An obligation that does not hold.

    `trips` is the smallest number of trips that shows it, `k` the iteration (-1 outside of loops);
    `event` is the earlier one of the two events, -1 if there is none; `look` is where a reader is
    to look first, where that is known.
    """

    rule: Rule
    later: Site
    says: str
    kind: str
    k: int = -1
    trips: int = 0
    earlier: Site | None = None
    event: int = -1
    severity: str = "error"
    look: str = ""


class Findings:
    """What has been asked of a kernel in one reading, and what does not hold.

    `doubt` is why something is neither right nor wrong, if it is.
    """

    def __init__(self, off: frozenset[Rule] = frozenset()) -> None:
        self.off = off
        self.checked = 0
        self.doubt = ""
        self._found: dict[tuple[str, int, int], Violation] = {}

    def ask(self, times: int = 1) -> None:
        """Count obligations that are asked."""
        self.checked += times

    def doubts(self, says: str) -> None:
        """Record why something stays open."""
        self.doubt = says

    def record(self, found: Violation) -> None:
        """Record that an obligation does not hold, unless its rule is taken away."""
        if found.rule in self.off:
            return
        key = found.kind, found.later.index, found.earlier.index if found.earlier else -1
        known = self._found.get(key)
        if known is None or (known.severity, found.severity) == ("warning", "error"):
            self._found[key] = found

    def copy(self) -> Findings:
        """Return what has been found so far."""
        other = Findings(self.off)
        other.go_back(self)
        return other

    def more_than(self, other: Findings) -> bool:
        """Whether something has been found since another time."""
        return self._found != other._found

    def go_back(self, to: Findings, *, asked: bool = True) -> None:
        """Have found no more than another time; by default nothing more was asked, either."""
        self._found = dict(to._found)
        if asked:
            self.checked, self.doubt = to.checked, to.doubt

    @property
    def violations(self) -> tuple[Violation, ...]:
        """All that has been found, in that order."""
        return tuple(self._found.values())

    @property
    def errors(self) -> list[Violation]:
        """What is more than a warning."""
        return [v for v in self._found.values() if v.severity == "error"]

    @property
    def failed(self) -> bool:
        """Whether an error has been found."""
        return bool(self.errors)


# --- words ----------------------------------------------------------------------------------------


class Words(NamedTuple):
    """What a kind of statement is called, and what it leaves to an engine.

    `engine` names what goes on when the statement has returned, empty if it is done then; `group`
    is the kind of group that it joins.
    """

    called: str
    engine: str = ""
    group: kir.AsyncKind | None = None


_BULK = "store engine", kir.AsyncKind.BULK
_WORDS = {
    kir.TmaLoad: Words("the TMA load", "TMA engine"),
    kir.TmaStore: Words("the TMA store", *_BULK),
    kir.TmaReduce: Words("the TMA reduction", *_BULK),
    kir.CpAsync: Words("the cp.async", "cp.async engine", kir.AsyncKind.CP_ASYNC),
    kir.QueueCopy: Words("the queued copy", "queue", kir.AsyncKind.QUEUE),
    kir.StAsync: Words("the st.async", "asynchronous store"),
    kir.Wgmma: Words("`wgmma`", "tensor core", kir.AsyncKind.WGMMA),
    kir.Load: Words("the load"),
    kir.Store: Words("the store"),
    kir.AtomicAdd: Words("the atomic addition"),
    kir.TensorMapReplace: Words("the write"),
    kir.MBarrierArrive: Words("the arrival"),
    kir.MBarrierArriveExpectTx: Words("the arrival"),
    kir.CpAsyncMBarrierArrive: Words("the arrival"),
    kir.MBarrierWaitParity: Words("the wait"),
    kir.BlockSerializeRelease: Words("the release"),
}
_PLAIN = Words("")


def words(stmt: kir.Stmt) -> Words:
    """Return what a statement is called, and what it leaves to an engine."""
    found = _WORDS.get(type(stmt), _PLAIN)
    if isinstance(stmt, kir.Load | kir.Store) and stmt.matrix:
        return Words("the ldmatrix" if isinstance(stmt, kir.Load) else "the stmatrix")
    return found


def iteration(site: Site, k: int) -> str:
    """Return which iteration of the innermost loop is meant, as `k=3`; empty outside of loops."""
    return f"{site.loops[-1].name}={k}" if site.loops and k >= 0 else ""


def said(site: Site, k: int) -> str:
    """Name an operation with its iteration and its line."""
    called = words(site.stmt).called or f"`{line(site.stmt).partition('(')[0]}`"
    parts = called, iteration(site, k), f"(line {site.line})"
    return " ".join(filter(None, parts))


def spot(where: Where, ctas: int) -> str:
    """Name a slot of a buffer, or a tensor."""
    cta, name, slot = where
    if cta < 0:
        return name
    return f"{name}[{slot}]" + (f" of CTA {cta}" if ctas > 1 else "")

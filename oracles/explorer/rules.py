"""The rules of the explorer, each by name: what orders what, and what has to hold.

Every rule is consulted where it acts, so that a reading without it can be asked for and the
test-suite can be seen to notice.
"""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """One axiom (it grants an order) or one obligation (it demands one)."""

    SAME_THREAD = "two accesses of one element by one thread are in program order"
    BLOCK_SYNC = "a block sync joins what its threads knew"
    NAMED_ARRIVE = "a named arrive hands over what its threads knew"
    WARP_SYNC = "a warp sync joins what the lanes of the warp knew"
    MBARRIER_RELEASE = "an arrival hands over what its thread knew"
    MBARRIER_ACQUIRE = "a wait takes over what the arrivals of its phase handed over"
    COMPLETE_TX = "who waits for a phase knows that the copies that counted on it are done"
    CP_ASYNC_ARRIVE = "who waits for a phase knows the cp.async whose end arrived on it"
    AWAIT_BULK = "an await of bulk groups knows that they are done"
    AWAIT_BULK_READ = "an await of the reads of bulk groups knows that these are done"
    AWAIT_CP_ASYNC = "an await of cp.async groups knows that they are done"
    AWAIT_QUEUE = "an await of a queue knows that all of its copies but the latest are done"
    AWAIT_WGMMA = "an await of wgmma groups knows, for its whole warp, that they are done"
    WARPGROUP = "an await of a wgmma waits until all warps of the warpgroup have issued it"
    PROXY_FENCE_SHARED = "a proxy fence covers what its thread knew of shared memory"
    PROXY_FENCE_GLOBAL = "a proxy fence covers what its thread knew of global memory"
    THREAD_FENCE = "a thread fence makes later relaxed or narrow releases carry what was known"
    INIT_FENCE = "an mbarrier init passes to other CTAs through its fence"
    CLUSTER_BARRIER = "the cluster barrier joins what the threads of a cluster knew"
    SEMAPHORE = "a turn hands over what the releasing thread knew"
    GRID_SYNC = "CTAs that meet know what each of them knew"
    ELECT_LAST = "the last-arriving CTA knows what each that came knew"
    GRID_DEPENDENCY = "a wait for the launches before knows that they have ended"

    RAW = "a read knows the write before it"
    WAR = "a write knows the reads before it"
    WAW = "a write knows the write before it"
    DRAIN = "what is released to another CTA is done, not only issued"
    SCOPE = "what another CTA needs is released and acquired at a scope that reaches it"
    PROXY_WRITE = "a proxy fence stands between an ordinary write and an engine's access"
    PROXY_READ = "a proxy fence stands between an ordinary read and an engine's write"
    PROXY_REMOTE = "an engine's access to what another CTA left in global memory is fenced"
    PROXY_MAP = "a tensor map is released and acquired between a write and a copy through it"
    MAP = "a tensor map says what a copy through it takes it to say"
    WGMMA_FENCE = "a wgmma fence stands between other accesses of its registers and a wgmma"
    REGISTERS_IN_FLIGHT = "registers of a wgmma in flight are left alone"
    ARRIVALS = "an arrival finds one missing in the running phase"
    EARLY = "an arrival or copy cannot land in the phase, or turn, before its own"
    PHASE = "a wait sees the same phase in every interleaving"
    BYTES = "the bytes that a phase expects are the bytes that come"
    GROUP = "what is issued is committed"
    INIT = "a barrier is used in its life, by threads that know of its begin"
    DEADLOCK = "some thread can go on, or all are done"
    COLLECTIVE = "a statement is executed by the threads that it needs"
    REGISTER_POOL = "registers that are asked for are, or become, free"
    TURNS = "who releases a semaphore, or arrives at it, knows that it was left before"
    SEEN = "a wait sees any release of its turn that is not over for sure"
    SEMAPHORE_ZERO = "a semaphore is 0 at the end of a launch"
    RESIDENCY = "a CTA waits only for CTAs that are sure to run"
    BEGUN = "a CTA stores only into CTAs of its cluster that have begun"
    EXIT = "nothing touches the shared memory of a CTA that has ended"
    DETERMINISM = "sums of floats have one order, where bits are promised"
    DEPENDENCY = "what the launches before may use is left alone until they have ended"
    BOUNDS = "indices lie inside their slots"
    COVERAGE = "every element of an output is written, and once"
    LAUNCH = "CTAs that never meet write apart from each other"


class Defect(Exception):
    """An obligation that does not hold on the way that was taken; a `kind` of `KINDS`.

    `against` is the agent and the statement of the other access, `stuck` who waits forever.
    """

    def __init__(
        self,
        rule: Rule,
        kind: str,
        where: str,
        says: str,
        against: tuple[int, str] | None = None,
        stuck: tuple[tuple[int, str], ...] = (),
    ) -> None:
        super().__init__(f"{kind} at {where}: {says}")
        self.rule, self.kind, self.where, self.says = rule, kind, where, says
        self.against, self.stuck = against, stuck


class NotModelled(Exception):
    """A construct that the explorer does not read."""

"""The rules of the prover's order: one name for each edge it draws and each thing it asks.

The engine looks a rule up wherever it uses it, so that a test can take one away and see whether
anybody notices.
"""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """An axiom (an edge of the order) or an obligation (what must be ordered, or add up)."""

    WAIT_ACQUIRES = "axiom: the arrivals and bytes of a phase precede what follows a wait for it"
    SYNC_JOINS = "axiom: what precedes a block sync in its threads precedes what follows it"
    WARP_JOINS = "axiom: what precedes a warp sync in its lanes precedes what follows it"
    CLUSTER_JOINS = "axiom: what precedes an arrival at the cluster's barrier precedes its waits"
    AWAIT_ORDERS = "axiom: finished groups precede what follows their await in that thread"
    FENCE_ORDERS = "axiom: a proxy fence carries earlier ordinary accesses to the async proxy"
    TURN_ACQUIRES = "axiom: what earlier turns released precedes what follows a semaphore's wait"
    GRID_JOINS = "axiom: CTAs that meet know what each of them knew"
    LAST_KNOWS = "axiom: the last CTA to come knows what each of the others knew"
    RAW = "obligation: a read follows the write that it must see"
    WAR = "obligation: a write follows earlier reads of its bytes"
    WAW = "obligation: a write follows earlier writes of its bytes"
    WRITTEN = "obligation: what is read has been written, as this buffer's"
    PROXY = "obligation: a fence stands between an ordinary write and an asynchronous access"
    PROXY_READ = "obligation: a fence stands between an ordinary read and an asynchronous write"
    PROXY_WRITER = "obligation: that fence is the writer's own"
    PHASE_BEHIND = "obligation: a wait starts after the phase before its own is complete"
    PHASE_LAPPED = "obligation: a phase completes after every wait for the last one has returned"
    PHASE_EARLY = "obligation: arrivals and bytes come after the phase before theirs is complete"
    ARRIVALS = "obligation: a phase has an arrival left for each that comes"
    BYTES = "obligation: a phase expects the bytes that are copied"
    INIT = "obligation: a barrier is used in its life, where that is visible"
    BOUNDS = "obligation: slots exist"
    SYNC_APART = "obligation: one turn of a named barrier is over before the next begins"
    SYNC_COUNT = "obligation: a named barrier is reached by exactly its number of threads"
    COLLECTIVE = "obligation: warpgroup statements are executed by whole warpgroups"
    LIVENESS = "obligation: no thread waits for ever"
    REGISTERS_BUSY = "obligation: registers of a wgmma are left alone until it is awaited"
    WGMMA_FENCE = "obligation: a fence stands between register accesses and the next wgmma"
    BUDGET = "obligation: setmaxnreg asks for what the register file has"
    SCOPE = "obligation: a release and an acquire reach the CTA that they are for"
    DRAIN = "obligation: a release follows the bulk writes that it announces"
    TURN_VALUES = "obligation: each turn is released by the one before, and the last leaves 0"
    RESIDENCY = "obligation: a CTA waits only for CTAs that are sure to run"
    DETERMINISM = "obligation: a kernel declared bitwise adds in one order"
    EXIT = "obligation: nothing is in flight when a CTA ends"

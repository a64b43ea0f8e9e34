"""Truth tables: a pattern with each of its syncs left in or out, and the placements that are safe.

The truth is written as a rule over the syncs left in, from which all 2^n rows follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from litmus.aliases import OVERLAID, overlaid
from litmus.cp_async import copies
from litmus.distributed import shared
from litmus.named import handover
from litmus.operands import COPIED
from litmus.parts import Run, trips
from litmus.products import by_registers, staged
from litmus.rings import ring
from litmus.stores import OUT_LOOP, leaving
from litmus.turnstiles import SHARES, turnstile
from litmus.wgmma import TAKES

Kept = frozenset[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A pattern whose optional syncs are words of a sentence.

    Parameters
    ----------
    name : str
        The pattern.
    build : callable
        Makes the kernel of a sentence.
    sentence : str
        With all syncs left in.
    optional : tuple of str
        The words that may be left out, at most 6.
    safe : callable
        Tells whether the kernel with these words left in is right in every launch.
    launches : tuple of Run
        In each of them an unsafe placement can fail.
    """

    name: str
    build: Callable[[str], kir.Kernel | LaunchSequence]
    sentence: str
    optional: tuple[str, ...]
    safe: Callable[[Kept], bool]
    launches: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """One row of a table."""

    table: str
    kept: Kept
    kernel: kir.Kernel | LaunchSequence
    safe: bool
    launches: tuple[Run, ...]

    @property
    def name(self) -> str:
        """Name of the row: the pattern and the syncs left in."""
        return "+".join((self.table, *sorted(self.kept)))


def placements(table: Table) -> Iterator[Placement]:
    """Yield all 2^n kernels of a table with their truth."""
    for choice in product((True, False), repeat=len(table.optional)):
        kept = frozenset(w for w, in_ in zip(table.optional, choice, strict=True) if in_)
        words = (w for w in table.sentence.split() if w not in table.optional or w in kept)
        kernel = table.build(" ".join(words))
        yield Placement(table.name, kept, kernel, table.safe(kept), table.launches)


def needs(*groups: str) -> Callable[[Kept], bool]:
    """Return the rule that of every group of words (`a|b`) at least one is left in."""
    alternatives = [frozenset(group.split("|")) for group in groups]
    return lambda kept: all(kept & group for group in alternatives)


def _ring(sentence: str) -> kir.Kernel:
    use, feed = sentence.split(" / ")
    return ring(use, feed)


def _handover(sentence: str) -> kir.Kernel:
    give, take = sentence.split(" / ")
    return handover(give, take)


_LATER = trips(5)

TABLES: tuple[Table, ...] = (
    Table(
        "tma_ring",
        _ring,
        "wait read free out / room expect fill",
        ("wait", "free", "room", "expect"),
        needs("wait", "free", "room", "expect"),
        _LATER,
    ),
    Table(
        "store_staging",
        leaving,
        OUT_LOOP,
        ("drain", "sync", "fence", "join"),
        needs("drain", "sync", "fence", "join"),
        _LATER,
    ),
    Table(
        "wgmma_with_a_in_registers",
        by_registers,
        TAKES,
        ("fence", "fence2", "await", "await2", "commit", "commit2"),
        needs("fence", "fence2", "await", "await2", "commit", "commit2"),
        _LATER,
    ),
    Table(
        "wgmma_with_staged_operands",
        staged,
        COPIED,
        ("landed", "fence_proxy", "sync", "await", "copied"),
        needs("landed", "fence_proxy", "sync", "await", "copied"),
        _LATER,
    ),
    Table(
        "cp_async_ring",
        lambda sentence: copies(loop=sentence),
        "await sync refill commit2 read sync2 out",
        ("await", "sync", "commit2", "sync2"),
        needs("await", "sync", "commit2"),
        _LATER,
    ),
    Table(
        "named_barrier_handover",
        _handover,
        "get put full free / wait read done out",
        ("full", "free", "wait", "done"),
        needs("full", "free", "wait", "done"),
        _LATER,
    ),
    Table(
        "turnstile",
        turnstile,
        "turn add join release",
        ("turn", "join", "release"),
        needs("turn", "join", "release"),
        SHARES,
    ),
    Table(
        "cluster_handshake",
        shared,
        "put fence relaxed wait get arrive2 wait2 out",
        ("fence", "relaxed", "wait", "arrive2", "wait2"),
        needs("fence", "relaxed", "wait", "arrive2", "wait2"),
        (Run(2),),
    ),
    Table(
        "aliased_buffers",
        overlaid,
        OVERLAID,
        ("sync_a", "over_a", "sync_b", "over_b"),
        needs("sync_a", "over_a", "sync_b", "over_b"),
        _LATER,
    ),
    Table(
        "buffers_side_by_side",
        lambda sentence: overlaid(sentence, offset=512),
        OVERLAID,
        ("sync_a", "over_a", "sync_b", "over_b"),
        lambda kept: {"sync_a", "sync_b"} <= kept,
        _LATER,
    ),
)
"""Every table."""


def tables() -> Mapping[str, tuple[Placement, ...]]:
    """Return all rows of all tables, by pattern."""
    return {table.name: tuple(placements(table)) for table in TABLES}

"""What each of several roles has to itself beside their steps: staging, its barrier, its groups.

Roles that take tiles in turn are one role (`alternating_roles`) if they do the same.  Their results
leave through staging of their own, so that the next role's steps need not wait for it: the same
statements, but for the names of buffers and the numbers of barriers that nobody else uses.  A role
does with its own, tile after tile, what the one role does with that of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError


@dataclass(frozen=True, slots=True)
class Private:
    """The buffers and the numbers of barriers that one role has to itself, in order of use."""

    buffers: tuple[kir.Buffer, ...]
    numbers: tuple[int, ...]


def private(kernel: kir.Kernel, role: str, beside: Sequence[kir.Stmt]) -> Private:
    """Return what a role has to itself in statements beside its steps.

    Parameters
    ----------
    kernel : Kernel
        The whole kernel.
    role : str
        The role, by name.
    beside : sequence of Stmt
        What it does besides its steps.

    Raises
    ------
    UnsupportedError
        If something of it is used elsewhere, or in another slot from tile to tile.
    """
    mine = list(kir.walk(tuple(beside)))
    own = {id(stmt) for stmt in mine}
    others = [stmt for stmt in kernel.walk() if id(stmt) not in own]
    found = Private(tuple(dict.fromkeys(_buffers(mine))), tuple(dict.fromkeys(_numbers(mine))))
    shared = {b.name for b in found.buffers} & {b.name for b in _buffers(others)}
    shared |= {f"barrier {n}" for n in set(found.numbers) & set(_numbers(others))}
    if shared:
        names = ", ".join(sorted(shared))
        raise UnsupportedError(f"{role} uses {names} beside its steps, and others do too")
    for slot in (slot for stmt in mine for slot in _slots(stmt)):
        if slot.index != 0 or slot.cta is not None:
            raise UnsupportedError(f"{role} uses {slot.buffer.name} slot by slot beside its steps")
    return found


def renamed(
    body: tuple[kir.Stmt, ...], own: Private, first: Private
) -> tuple[kir.Stmt, ...] | None:
    """Return statements with a role's own things named as the first role's; None if they differ."""
    if len(own.buffers) != len(first.buffers) or len(own.numbers) != len(first.numbers):
        return None
    pairs = list(zip(own.buffers, first.buffers, strict=True))
    if any(replace(a, name=b.name, offset=b.offset) != b for a, b in pairs):
        return None
    buffers = {a.name: b for a, b in pairs}
    numbers = dict(zip(own.numbers, first.numbers, strict=True))

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.BlockSync(number):
                return [replace(stmt, barrier=numbers[number])]
            case kir.Store(kir.Slot(buffer) as dst):
                return [replace(stmt, dst=replace(dst, buffer=buffers[buffer.name]))]
            case kir.TmaStore(_, kir.Slot(buffer) as src):
                return [replace(stmt, src=replace(src, buffer=buffers[buffer.name]))]
            case _:
                return None

    return kir.rewrite(body, rule)


def _buffers(body: Iterable[kir.Stmt]) -> Iterator[kir.Buffer]:
    yield from (slot.buffer for stmt in body for slot in _slots(stmt))


def _slots(stmt: kir.Stmt) -> Iterator[kir.Slot]:
    match stmt:
        case kir.Wgmma(_, a):
            yield from (part for part in (a, *stmt.columns) if isinstance(part, kir.Slot))
        case kir.Load(_, part) | kir.TmaStore(_, part) | kir.TmaReduce(_, part):
            yield from (part,) if isinstance(part, kir.Slot) else ()
        case kir.Store(part) | kir.TmaLoad(part) | kir.CpAsync(part):
            yield from (part,) if isinstance(part, kir.Slot) else ()
        case _:
            pass


def _numbers(body: Iterable[kir.Stmt]) -> Iterator[int]:
    for stmt in body:
        if isinstance(stmt, kir.BlockSync | kir.NamedArrive):
            yield stmt.barrier

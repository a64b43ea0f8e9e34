"""Registers of threads: what they hold of a tile, and what ordinary statements compute in them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod

import numpy as np

from fuser.dtype import DType
from fuser.kernel import ir as kir
from oracles.simulator.machine import Agent, Violation
from oracles.simulator.memory import ops
from oracles.simulator.memory.ops import Array
from oracles.simulator.memory.tile import (
    bytes_of,
    columns_of,
    gathered,
    registers_of,
    taken_from,
    tile,
)
from oracles.simulator.sync.clock import Index
from oracles.simulator.unroll import Event


def span(agent: Agent, event: Event) -> tuple[int, int]:
    """Return the threads of an agent, counted in the role of a statement."""
    first = kir.WARP * event.team.first
    return agent.lo - first, agent.hi - first


def register(agent: Agent, fragment: kir.Fragment, size: int | None = None) -> Array:
    """Return a thread's part of a fragment, which has to be of this `size`, if one is asked for."""
    if fragment.name not in agent.registers:
        raise Violation("RAW", f"register {fragment.name} was never written")
    held = agent.registers[fragment.name]
    if size not in (None, held.size):
        raise Violation("RAW", f"register {fragment.name} was never written in this layout")
    return held


def nothing(dtype: DType) -> Array:
    """Return the registers of a thread that holds no element."""
    return np.empty(0, ops.REGISTER[dtype])


def number(value: float, dtype: DType) -> Array:
    """Return a number in register form."""
    return np.asarray(value).astype(ops.REGISTER[dtype])


def compute(agent: Agent, event: Event, stmt: kir.Compute, scalars: Mapping[str, Array]) -> None:
    """Apply an op to this thread's part."""
    dst = stmt.dst
    args: list[Array] = []
    holds = True
    for arg in stmt.args:
        match arg:
            case kir.Fragment():
                values = register(agent, arg)
                if arg.layout is not dst.layout and arg.layout != dst.layout:
                    at = taken_from(dst.layout, arg.layout, span(agent, event))
                    if at is None:
                        raise Violation("bounds", f"{arg.name} and {dst.name} differ in layout")
                    values = values[at]
                holds = holds and (values.size > 0 or values.ndim == 0)
                bits = stmt.op == "cast" and arg.dtype.is_f8
                args.append(ops.factor(arg.dtype, values) if bits else values)
            case kir.ScalarParam(name):
                args.append(scalars[name])
            case kir.Literal(value, dtype):
                args.append(number(value, dtype))
    if not holds:
        agent.registers[dst.name] = nothing(dst.dtype)
        return
    result = ops.evaluate(stmt.op, dst.dtype, args)
    if result.ndim == 0:
        held = tile(dst.layout, span(agent, event)).elements.size
        result = np.full(held, result, result.dtype)
    agent.registers[dst.name] = result


def slice_columns(agent: Agent, event: Event, stmt: kir.Slice) -> None:
    """Take this thread's part of some columns, or all its registers under other positions."""
    whole, part = stmt.src.layout, stmt.dst.layout
    if {whole.deal, part.deal} == {kir.Deal.STRIPS, kir.Deal.ROUND}:
        _relabel(agent, event, stmt)
        return
    held = register(agent, stmt.src)
    at = columns_of(whole, part, stmt.column, span(agent, event))
    inside = 0 <= stmt.column <= whole.shape[-1] - part.shape[-1]
    if not inside or whole.shape[:-1] != part.shape[:-1] or (at < 0).any():
        says = f"{stmt.dst.name} is not made of columns of {stmt.src.name} in the same threads"
        raise Violation("bounds", says)
    register(agent, stmt.src, tile(whole, span(agent, event)).elements.size)
    agent.registers[stmt.dst.name] = held[at]


def unpack(agent: Agent, event: Event, stmt: kir.Unpack) -> None:
    """Make two numbers of 4 bits of each byte that this thread has."""
    bytes_, made = stmt.src.layout, stmt.dst.layout
    at = bytes_of(bytes_, made, span(agent, event))
    if bytes_.shape[:-1] != made.shape[:-1] or (at < 0).any():
        says = f"{stmt.src.name} has not the bytes of {stmt.dst.name} in the same threads"
        raise Violation("bounds", says)
    held = register(agent, stmt.src, tile(bytes_, span(agent, event)).elements.size)[at]
    odd = tile(made, span(agent, event)).elements % 2 == 1
    bits = np.where(odd, held.view(np.uint8) >> np.uint8(4), held.view(np.uint8) & np.uint8(15))
    signed = bits.astype(np.int32) - np.where(bits < 8, 0, 16)
    agent.registers[stmt.dst.name] = signed.astype(ops.REGISTER[stmt.dst.dtype])


def _relabel(agent: Agent, event: Event, stmt: kir.Slice) -> None:
    """Hand registers on in their order, thread by thread: row-major order is another."""
    threads = span(agent, event)
    at, to = registers_of(stmt.src.layout, threads), registers_of(stmt.dst.layout, threads)
    held = register(agent, stmt.src, at.size)
    mine, theirs = np.argsort(to), np.argsort(at)
    whole = stmt.src.layout.shape == stmt.dst.layout.shape and stmt.column == 0
    if not whole or to.size != at.size or (to[mine] != at[theirs]).any():
        says = f"{stmt.dst.name} has not the registers of {stmt.src.name}"
        raise Violation("bounds", says)
    out = np.empty_like(held)
    out[mine] = held[theirs]
    agent.registers[stmt.dst.name] = out


def reduce(pair: tuple[Agent, Agent], event: Event, stmt: kir.Reduce) -> None:
    """Put elements of a warp's registers together, along rows or down columns."""
    dst, src = stmt.dst.layout, stmt.src.layout
    if kir.Deal.ROWS in (dst.deal, src.deal) and not stmt.down:
        _reduce_rows(pair, event, stmt)
        return
    spans = span(pair[0], event), span(pair[1], event)
    values = np.zeros(prod(src.shape), ops.REGISTER[stmt.src.dtype])
    for agent, threads in zip(pair, spans, strict=True):
        held = tile(src, threads).elements
        values[held] = register(agent, stmt.src, held.size)
    made: list[Array] = []
    for parts in _put_together(dst, src, spans):
        if parts is None:
            says = f"elements of {stmt.src.name} that are put together lie in several warps"
            raise Violation("bounds", says)
        made.append(ops.folded(stmt.op, stmt.dst.dtype, values[parts]))
    for agent, result in zip(pair, made, strict=True):
        agent.registers[stmt.dst.name] = result


@lru_cache(maxsize=256)
def _put_together(
    dst: kir.Layout, src: kir.Layout, spans: tuple[tuple[int, int], tuple[int, int]]
) -> tuple[Index | None, Index | None]:
    """Return for both parts of a warp which elements, a row each, are put together to each of its.

    None where the warp does not hold all of them.
    """
    holds = np.zeros(prod(src.shape), np.bool_)
    for threads in spans:
        holds[tile(src, threads).elements] = True
    last, found = src.shape[-1], list[Index | None]()
    for threads in spans:
        wanted = tile(dst, threads).elements
        if dst.folded > 1:
            first = wanted // dst.shape[-1] * last + wanted % dst.shape[-1] * dst.folded
            parts = first + np.arange(dst.folded)[:, None]
        else:
            apart = prod(dst.shape)
            parts = wanted + np.arange(prod(src.shape) // apart)[:, None] * apart
        found.append(parts if holds[parts].all() else None)
    return found[0], found[1]


def _reduce_rows(pair: tuple[Agent, Agent], event: Event, stmt: kir.Reduce) -> None:
    """Put together what threads that share a row have of it: halves of it, again and again."""
    dst, src = stmt.dst.layout, stmt.src.layout
    values = np.zeros(prod(src.shape), ops.REGISTER[stmt.src.dtype])
    for agent in pair:
        held = tile(src, span(agent, event)).elements
        values[held] = register(agent, stmt.src, held.size)
    made: list[Array] = []
    for agent in pair:
        parts = gathered(dst, src, span(agent, event))
        if parts is None or dst.shape[:-1] != src.shape[:-1]:
            says = f"elements of {stmt.src.name} that are put together lie in several warps"
            raise Violation("bounds", says)
        out = values[parts]
        while out.shape[1] > 1:
            half = out.shape[1] // 2
            both = ops.evaluate(stmt.op, stmt.dst.dtype, [out[:, :half], out[:, half : 2 * half]])
            out = np.concatenate([both, out[:, 2 * half :]], axis=1)
        made.append(out[:, 0])
    for agent, result in zip(pair, made, strict=True):
        agent.registers[stmt.dst.name] = result


def scan(pair: tuple[Agent, Agent], event: Event, stmt: kir.Scan) -> None:
    """Put together what a warp has of each run up to each element: ever longer stretches of it."""
    src, start = stmt.src.layout, stmt.start.layout
    values, has = _of_warp(pair, event, stmt.src)
    begins, begun = _of_warp(pair, event, stmt.start)
    columns = src.shape[-1]
    if stmt.down:
        runs = np.arange(prod(src.shape)).reshape(-1, columns).T
    else:
        runs = np.arange(prod(src.shape)).reshape(prod(start.shape), -1)
    made, known = values[runs], np.logical_and.accumulate(has[runs], axis=1) & begun[:, None]
    made[:, 0] = ops.evaluate(stmt.op, stmt.dst.dtype, [begins, made[:, 0]])
    stride = 1
    while stride < made.shape[1]:
        both = [made[:, :-stride], made[:, stride:]]
        made = np.concatenate(
            [made[:, :stride], ops.evaluate(stmt.op, stmt.dst.dtype, both)], axis=1
        )
        stride *= 2
    if stmt.exclusive:
        made = np.concatenate([begins[:, None], made[:, :-1]], axis=1)
    out, sure = np.empty_like(values), np.zeros_like(has)
    out[runs], sure[runs] = made, known
    for agent in pair:
        wanted = tile(stmt.dst.layout, span(agent, event)).elements
        if stmt.dst.layout.shape != src.shape or not sure[wanted].all():
            says = f"elements of {stmt.src.name} that are put together lie in several warps"
            raise Violation("bounds", says)
        agent.registers[stmt.dst.name] = out[wanted]


def _of_warp(
    pair: tuple[Agent, Agent], event: Event, part: kir.Fragment
) -> tuple[Array, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Return the elements of a fragment that a warp holds, 0 for others; and which these are."""
    values = np.zeros(prod(part.layout.shape), ops.REGISTER[part.dtype])
    has = np.zeros(prod(part.layout.shape), np.bool_)
    for agent in pair:
        held = tile(part.layout, span(agent, event)).elements
        values[held], has[held] = register(agent, part, held.size), True
    return values, has


def coordinate(agent: Agent, event: Event, stmt: kir.Coordinate) -> None:
    """Fill a fragment with positions along an axis."""
    part = tile(stmt.dst.layout, span(agent, event))
    positions = part.coordinates[stmt.axis] + event.origin[0]
    agent.registers[stmt.dst.name] = positions.astype(ops.REGISTER[stmt.dst.dtype])

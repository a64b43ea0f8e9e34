"""What lanes of a warp do together: shuffles, votes, matches, elections.

Source: PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask", "elect.sync",
"bar.warp.sync".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.ptx.machine import Ints, Machine
from oracles.ptx.text.grammar import Instruction, Pair, Sym
from oracles.ptx.text.program import Block
from oracles.ptx.text.translate import UnsupportedError
from oracles.ptx.vectors import distinct


def shuffle(m: Machine, block: Block, ins: Instruction, g: Ints) -> None:
    """Give each lane the value of another."""
    g = m.whole_warps(block, g, ins.operands[4])
    if not len(g):
        return
    dst, src, b, c, _ = ins.operands
    lane = m.lane[g]
    by = m.value(b, g, "u32").astype(np.int64)
    bound = m.value(c, g, "u32").astype(np.int64)
    segment, clamp = bound >> 8 & 31, bound & 31
    top = (lane & segment) | (clamp & ~segment)
    match ins.mods[1]:
        case "up":
            other = lane - by
            ok = other >= top
        case "down":
            other = lane + by
            ok = other <= top
        case "bfly":
            other = lane ^ by
            ok = other <= top
        case _:
            other = (lane & segment) | (by & ~segment & 31)
            ok = other <= top
    other = np.where(ok, other, lane)
    source = np.minimum(g - lane + other, m.T - 1)
    first, second = (dst.first, dst.second) if isinstance(dst, Pair) else (dst, Sym("_"))
    m.set(first, g, m.value(src, source, "b32"))
    m.set(second, g, ok)
    m.claims += len(g)
    m.go(block.after, g)


def _reduced(m: Machine, g: Ints, values: Ints, op: Any, start: int) -> Ints:
    """Return for each thread what an operation makes of its warp's values."""
    held = np.full(int(m.warp[-1]) + 1, start, values.dtype)
    op.at(held, m.warp[g], values)
    found: Ints = held[m.warp[g]]
    return found


def vote(m: Machine, block: Block, ins: Instruction, g: Ints) -> None:
    """Tell each lane what predicates the others have."""
    dst, src, mask = ins.operands
    g = m.whole_warps(block, g, mask)
    if not len(g):
        return
    p = m.value(src, g, "pred").astype(np.int64)
    every, some = _reduced(m, g, p, np.minimum, 1), _reduced(m, g, p, np.maximum, 0)
    match ins.mods[1]:
        case "all":
            m.set(dst, g, every.astype(bool))
        case "any":
            m.set(dst, g, some.astype(bool))
        case "uni":
            m.set(dst, g, every == some)
        case _:
            m.set(dst, g, _reduced(m, g, p << m.lane[g], np.bitwise_or, 0).astype(np.uint32))
    m.go(block.after, g)


def match(m: Machine, block: Block, ins: Instruction, g: Ints) -> None:
    """Tell each lane which lanes have its value; of `all`, whether all have it."""
    dst, src, mask = ins.operands
    g = m.whole_warps(block, g, mask)
    if not len(g):
        return
    values = m.value(src, g, ins.mods[-1])
    alike = np.zeros(len(g), np.int64)
    for value in distinct(values).tolist():
        pick = values == value
        bits = pick.astype(np.int64) << m.lane[g]
        alike |= np.where(pick, _reduced(m, g, bits, np.bitwise_or, 0), 0)
    if ins.mods[0] == "all":
        every = _reduced(m, g, np.int64(1) << m.lane[g], np.bitwise_or, 0)
        same = alike == every
        alike = np.where(same, every, 0)
        if isinstance(dst, Pair):
            m.set(dst.second, g, same)
            dst = dst.first
    m.set(dst, g, alike.astype(np.uint32))
    m.claims += len(g)
    m.go(block.after, g)


_REDUX: dict[str, tuple[Any, int | None]] = {
    "add": (np.add, 0),
    "min": (np.minimum, None),
    "max": (np.maximum, None),
}
_REDUX |= {"and": (np.bitwise_and, -1), "or": (np.bitwise_or, 0), "xor": (np.bitwise_xor, 0)}


def redux(m: Machine, block: Block, ins: Instruction, g: Ints) -> None:
    """Reduce integers of a warp."""
    dst, src, mask = ins.operands
    g = m.whole_warps(block, g, mask)
    if not len(g):
        return
    values = m.value(src, g, ins.mods[-1]).astype(np.int64)
    op, start = _REDUX[ins.mods[1]]
    if start is None:
        start = 1 << 40 if ins.mods[1] == "min" else -(1 << 40)
    found = _reduced(m, g, values, op, start)
    m.set(dst, g, (found & 0xFFFFFFFF).astype(np.uint32))
    m.go(block.after, g)


def elect(m: Machine, block: Block, ins: Instruction, g: Ints) -> None:
    """Pick the lowest lane of the mask that still runs."""
    dst, mask = ins.operands
    g = m.whole_warps(block, g, mask)
    if not len(g):
        return
    lane = m.lane[g]
    inside = (m.value(mask, g, "u32").astype(np.int64) >> lane & 1) == 1
    leader = _reduced(m, g, np.where(inside, lane, 99), np.minimum, 99)
    assert isinstance(dst, Pair)
    m.set(dst.first, g, leader.astype(np.uint32))
    m.set(dst.second, g, lane == leader)
    m.go(block.after, g)


def active(m: Machine, block: Block, ins: Instruction, g: Ints) -> None:
    """Tell which lanes are here."""
    m.set(ins.operands[0], g, _reduced(m, g, 1 << m.lane[g], np.bitwise_or, 0).astype(np.uint32))
    m.go(block.after, g)


def join(m: Machine, block: Block, ins: Instruction, g: Ints) -> None:
    """Join the lanes of a mask, and what they did before (bar.warp.sync)."""
    g = m.whole_warps(block, g, ins.operands[0])
    m.note(g, "warp sync")
    for warp in distinct(m.warp[g]):
        who = g[m.warp[g] == warp]
        m.clocks.row[who] = m.clocks.released(who)
    m.claims += len(g)
    m.go(block.after, g)


def check(ins: Instruction) -> None:
    """Raise UnsupportedError for a form that is not modelled."""
    forms: dict[str, tuple[str, ...]] = {
        "shfl": ("up", "down", "bfly", "idx"),
        "vote": ("all", "any", "uni", "ballot"),
    }
    forms["redux"] = tuple(_REDUX)
    if ins.name in forms and (ins.mods[0] != "sync" or ins.mods[1] not in forms[ins.name]):
        raise UnsupportedError(ins.opcode)
    if ins.name == "match" and (ins.mods[1] != "sync" or ins.mods[-1] not in ("b32", "b64")):
        raise UnsupportedError(ins.opcode)
    if ins.name == "redux" and ins.mods[-1] not in ("s32", "u32", "b32"):
        raise UnsupportedError(ins.opcode)

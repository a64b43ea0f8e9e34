"""Tensor cores: ldmatrix, stmatrix, mma.sync, wgmma, and the registers of a wgmma in flight.

Products are sums in f64 rounded once to the accumulator's type: exact where the numbers are small
integers, else within what the hardware's own order of summation may do; or as `Machine.sums` says.

Source: PTX ISA, "mma" (fragments), "ldmatrix", "stmatrix", "wgmma.mma_async", "Asynchronous
warpgroup-level matrix shared memory layout" (matrix descriptor), "wgmma.fence".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oracles.ptx.engines import swizzled
from oracles.ptx.machine import Ints, Machine
from oracles.ptx.text import arithmetic as arith
from oracles.ptx.text.grammar import Imm, Instruction, Reg, Vec
from oracles.ptx.text.program import Block
from oracles.ptx.text.translate import UnsupportedError
from oracles.ptx.vectors import any_of, distinct

SPAN = {0: 0, 1: 128, 2: 64, 3: 32}
"""Bytes of the swizzle that bits 62..63 of a descriptor stand for."""
BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1}
SHAPES = {"m16n8k16": ("bf16", "f16"), "m16n8k8": ("tf32", "bf16", "f16"), "m16n8k32": ("s8", "u8")}


def numbers(raw: Ints, kind: str) -> Ints:
    """Return bytes, the last axis, as the numbers that they are."""
    raw = np.ascontiguousarray(raw)
    match kind:
        case "bf16":
            return np.asarray(arith.from_bf16(raw.view(np.uint16)), np.float64)
        case "f16":
            return np.asarray(arith.from_f16(raw.view(np.uint16)), np.float64)
        case "tf32":
            return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
        case "s8":
            return raw.view(np.int8).astype(np.float64)
        case "u8":
            return raw.astype(np.float64)
        case _:
            return arith.F8_VALUES[kind][raw.astype(np.intp)]


@dataclass(frozen=True, slots=True)
class Laid:
    """Where a matrix descriptor has each byte of a matrix in the shared memory of a CTA.

    `place` has a row for each along M or N; `start` and `end` are its first and last byte before
    they are swizzled.  `granules` are all of it; where each warp has rows of its own, `warps` are
    those of these and of all others.
    """

    place: Ints
    start: int
    end: int
    granules: Ints
    warps: tuple[tuple[Ints, Ints], ...]


@lru_cache(maxsize=256)
def laid_out(
    bits: int, rows: int, k: int, size: int, turned: bool, shared_bytes: int, grain: int, own: int
) -> Laid:
    """Return where a matrix of elements of `size` bytes lies; a kernel asks for few, many times.

    Each warp has `own` of the rows.
    """
    start = (bits & 0x3FFF) << 4
    leading, stride = (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4
    span = SPAN[bits >> 62 & 3]
    r = np.arange(rows)[:, None]
    if not turned:
        at = np.arange(k * size)[None, :]
        if span:
            place = r // 8 * stride + r % 8 * span + at
        else:
            place = r // 8 * stride + at // 16 * leading + r % 8 * 16 + at % 16
    else:
        step, along = np.arange(k)[None, :], r * size
        if not span:
            place = step // 8 * leading + along // 16 * stride + step % 8 * 16 + along % 16
        else:
            place = along // span * leading + step // 8 * stride + step % 8 * span + along % span
        place = (place[..., None] + np.arange(size)).reshape(rows, k * size)
    place = start + place
    end = int(place.max())
    place = swizzled(place, span, shared_bytes)
    granules = place // grain
    every = distinct(granules)
    warps: list[tuple[Ints, Ints]] = []
    if own < rows:
        for warp in range(4):
            mine = distinct(granules[own * warp : own * (warp + 1)])
            warps.append((mine, np.setdiff1d(every, mine)))
    return Laid(place, start, end, every, tuple(warps))


class Tensor:
    """What tensor cores have in flight."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        many = len(m.program.tensor_registers)
        self.index = m.program.tensor_registers
        self.flight = np.full((many, m.T), -1, np.int32)
        self.operand = np.full((many, m.T), -1, np.int32)
        self.shape = np.zeros((many, m.T), np.int16)
        """Columns of the wgmma that has a register in flight."""
        self.touched = np.zeros((many, m.T), np.int32)
        self.fenced = np.full(m.T, -1, np.int64)
        self.groups = np.zeros(m.T, np.int32)
        self.commits = np.zeros((m.T, 8), np.int32)
        if many:
            m.touch = self.touch

    # --- registers in flight ---------------------------------------------------------------------

    def touch(self, g: Ints, used: Ints, made: Ints) -> None:
        """Judge accesses of ordinary instructions to registers of a wgmma."""
        self.m.at_line(self.m.line)
        for which, what in ((used, self.flight), (made, self.operand)):
            if len(which):
                flying = what[np.ix_(which, g)]
                if (flying >= 0).any():
                    row, col = (int(n[0]) for n in np.nonzero(flying >= 0))
                    name = next(k for k, v in self.index.items() if v == which[row])
                    verb = "written" if what is self.operand else "used"
                    self.m.find(
                        "RAW" if verb == "used" else "WAR",
                        f"register {name} of {self.m.name(int(g[col]))} is {verb} "
                        f"while a wgmma has it; no wgmma.wait_group covers that",
                    )
        self.touched[np.ix_(used, g)] = self.m.clocks.now
        if len(made):
            self.touched[np.ix_(made, g)] = self.m.clocks.now

    # --- wgmma -----------------------------------------------------------------------------------

    def wgmma(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute wgmma.fence, commit_group, wait_group and mma_async."""
        m = self.m
        action = ins.mods[0]
        if action == "mma_async":
            g = m.whole_warps(block, g, warps=4)
            m.note(g, "wgmma")
            for number in distinct(m.tid[g] // 128 + m.cta[g] * 64):
                self._product(ins, g[m.tid[g] // 128 + m.cta[g] * 64 == number])
            m.go(block.after, g)
            return
        g = m.whole_warps(block, g)
        if not len(g):
            return
        m.claims += len(g)
        if action == "fence":
            m.note(g, "wgmma.fence")
            self.fenced[g] = m.clocks.now
        elif action == "commit_group":
            m.note(g, "commit", "wgmma")
            if self.groups[g].max() + 1 >= self.commits.shape[1]:
                self.commits = np.pad(self.commits, ((0, 0), (0, self.commits.shape[1])))
            self.commits[g, self.groups[g]] = m.clocks.now
            self.groups[g] += 1
        else:
            (keep,) = ins.operands
            assert isinstance(keep, Imm)
            m.note(g, "await", "wgmma", keep.value, "all")
            over = self.groups[g] - keep.value
            for what in (self.flight, self.operand):
                held = what[:, g]
                what[:, g] = np.where(held < over, -1, held)
            some = over > 0
            who = g[some]
            times = self.commits[who, over[some] - 1]
            keys = m.warp[who].astype(np.int64) << 32 | times
            for key in distinct(keys):
                mine = who[keys == key]
                first = int(mine[0])
                column = self._column(first)
                own = m.clocks.warps[column][int(m.tid[first]) % 128 // 32]
                m.clocks.learn(mine, np.array([column, own]), int(key & 0xFFFFFFFF))
        m.go(block.after, g)

    def _column(self, thread: int) -> int:
        m = self.m
        return m.clocks.warpgroup(int(m.tid[thread]) // 128, int(m.cta[thread]))

    def _product(self, ins: Instruction, g: Ints) -> None:
        m = self.m
        shape, to, kind, other = ins.mods[3], *[x for x in ins.mods[4:] if x != "satfinite"]
        rows, (n, k) = 64, (int(x) for x in shape[4:].split("k"))
        d, a, b, scale, *more = ins.operands
        assert isinstance(d, Vec)
        flags = [op.value for op in more if isinstance(op, Imm)]
        if to == "s32":
            flags = [1, 1]
        signs, turned = flags[:2], flags[2:]
        if isinstance(a, Vec):
            turned = [0, *turned]
        turned = [*turned, 0, 0][:2]
        first, who = int(g[0]), g[:1]
        here: Any = slice(first, first + len(g)) if g[-1] - first == len(g) - 1 else g
        names = [op.name for op in d.items if isinstance(op, Reg)]
        which = np.array([self.index[name] for name in names])
        taken = which
        if isinstance(a, Vec):
            taken = np.concatenate(
                [which, [self.index[r.name] for r in a.items if isinstance(r, Reg)]]
            )
        fenced = self.fenced[here]
        if any_of(self.touched[:, here][taken] > fenced) or any_of(fenced < 0):
            m.find(
                "fence",
                f"wgmma of {m.name(first)}: no wgmma.fence "
                f"since ordinary instructions used its registers",
            )
        self._in_flight(which, taken[len(which) :], here, first, n)
        self.flight[_at(which, here)] = self.groups[here]
        self.shape[_at(which, here)] = n
        left: Ints | None
        if isinstance(a, Vec):
            regs = np.stack([m.R[r.name][here] for r in a.items if isinstance(r, Reg)], axis=1)
            left = _fragment_a(regs.view(np.uint32), kind, k)
            self.operand[_at(taken[len(which) :], here)] = self.groups[here]
        else:
            left = self._matrix(ins, a, who, g, rows, k, kind, bool(turned[0]), rows // 4)
        right = self._matrix(ins, b, who, g, n, k, other, bool(turned[1]), n)
        if left is None or right is None:
            return
        at = _accumulated(len(names) * (2 if to == "f16" else 1))
        if len(g) < 128:
            at = at[0][m.tid[g] % 128], at[1][m.tid[g] % 128]
        p = bool(m.value(scale, g, "pred")[0]) if not isinstance(scale, Imm) else bool(scale.value)
        m.claims += 64
        words = np.stack([m.R[name][here].view(np.uint32) for name in names], axis=1)
        held = np.zeros((rows, n))
        if p:
            held[at] = _numbers_of(words, to)
        made = m.sums(left * signs[0], right.T * signs[1], held, kind, to)
        for name, word in zip(names, _words_of(made[at], to).T, strict=True):
            m.R[name][here] = word.view(m.R[name].dtype)

    def _in_flight(self, made: Ints, used: Ints, here: Any, first: int, n: int) -> None:
        """Judge registers that a wgmma shares with those in flight.

        Only results of one shape are in order by default.  Source: PTX ISA, "wgmma.mma_async" and
        "wgmma.wait_group" (accesses of registers before the wait).
        """
        results, held = self.flight[_at(made, here)] >= 0, self.operand[_at(made, here)] >= 0
        other = results & (self.shape[_at(made, here)] != n)
        for kind, found, verb in (
            ("RAW", self.flight[_at(used, here)] >= 0, "reads a result"),
            ("WAR", held, "overwrites an operand"),
            ("WAW", other, "overwrites a result of another shape"),
        ):
            if any_of(found):
                self.m.find(
                    kind,
                    f"wgmma of {self.m.name(first)} {verb} of one in flight; "
                    f"no wgmma.wait_group covers that",
                )

    def _matrix(
        self,
        ins: Instruction,
        op: Any,
        who: Ints,
        g: Ints,
        rows: int,
        k: int,
        kind: str,
        turned: bool,
        own: int,
    ) -> Ints | None:
        """Return the matrix that a descriptor names, rows along M or N; None if it is refused.

        Of A each warp has `own` rows: a warp that others have not told of theirs is a warning.
        """
        m = self.m
        every = m.value(op, g, "b64")
        if any_of(every != every[0]):
            m.find("collective", "the threads of a warpgroup give different matrix descriptors")
        bits = int(every[0])
        if bits >> 49 & 7:
            m.find(
                "map",
                f"matrix descriptor {bits:#x}: base offset {bits >> 49 & 7}; only 0 is modelled",
            )
            return None
        laid = laid_out(bits, rows, k, BYTES[kind], turned, m.shared_bytes, m.shared.grain, own)
        if laid.end >= m.shared_end or laid.start < 0x400:
            m.find(
                "bounds",
                f"matrix descriptor {bits:#x} reaches shared "
                f"{laid.end:#x}; it ends at {m.shared_end:#x}",
            )
            return None
        base = int(m.cta[who[0]]) * m.shared_bytes
        self._read(laid, base // m.shared.grain, g)
        return numbers(m.shared.data[laid.place + base], kind)

    def _read(self, laid: Laid, base: int, g: Ints) -> None:
        """Judge the reads of a matrix, whose granules count from a base, by four warps.

        The ISA has the warpgroup read all of it.  FlashAttention-3 lets the warps that write rows
        of A join with nobody, "since each warp is using its own P values": as hardware reads them.
        """
        shared = self.m.shared
        column = np.array([self._column(int(g[0]))])
        every, known = laid.granules + base, set[int]()
        for warp in range(4):
            thread = g[32 * warp : 32 * warp + 1]
            row = int(self.m.clocks.row[thread[0]])
            if row in known and not laid.warps:
                continue
            first = not known
            known.add(row)
            mine = every
            if laid.warps:
                mine = laid.warps[warp][0] + base
                if not shared.ordered(every, thread):
                    others = laid.warps[warp][1] + base
                    if shared.ordered(mine, thread) and not shared.ordered(others, thread):
                        says = (
                            "a warp's wgmma by the letter reads rows of A that other warps have "
                            "written, and nothing orders that"
                        )
                        self.m.find("rows", says, "warning")
            keep = first or bool(laid.warps)
            shared.read(mine, thread, agent=column, asynchronous=True, keep=keep)

    # --- mma.sync --------------------------------------------------------------------------------

    def multiply(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute mma.sync for whole warps."""
        m = self.m
        g = m.whole_warps(block, g)
        if not len(g):
            return
        shape = ins.mods[2]
        to, kind, other, _ = [x for x in ins.mods[5:] if x != "satfinite"]
        k = int(shape.split("k")[1])
        d, a, b, c = ins.operands
        warps = g.reshape(-1, 32)

        def words(op: Any) -> Ints:
            return np.stack([m.value(one, g, "b32") for one in op.items], axis=1).reshape(
                len(warps), 32, -1
            )

        left = np.stack([_fragment_a(w, kind, k) for w in words(a)])
        right = np.stack([_fragment_b(w, other, k) for w in words(b)])
        each = np.arange(4)
        lane = np.arange(32)[:, None]
        at = lane // 4 + 8 * (each // 2), 2 * (lane % 4) + each % 2
        held = np.zeros((len(warps), 16, 8))
        held[:, *at] = _numbers_of(words(c), to)
        made = m.sums(left, right, held, kind, to)
        out = np.moveaxis(_words_of(made[:, *at], to), -1, 0)
        m.claims += len(warps)
        for one, value in zip(d.items, out, strict=True):  # type: ignore[union-attr]
            m.set(one, g, value.reshape(-1))
        m.go(block.after, g)

    # --- matrices --------------------------------------------------------------------------------

    def _rows(self, ins: Instruction, g: Ints, op: Any) -> tuple[Ints, Ints, Ints]:
        m = self.m
        many = int(next(mod for mod in ins.mods if mod in ("x1", "x2", "x4"))[1])
        places, ok = m.place_shared(g, m.where(op, g), 1, 1)
        giving = m.lane[g] < 8 * many
        if (places[giving] % 16).any():
            m.find("bounds", f"a row of {ins.name} is no multiple of 16 bytes")
        return places.reshape(-1, 32), giving & ok, places

    def load(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute ldmatrix: who gives a row knows what is in it, who gets a word has read that."""
        m = self.m
        g = m.whole_warps(block, g)
        if not len(g):
            return
        dst, src = ins.operands
        rows, giving, places = self._rows(ins, g, src)
        m.shared.read(m.shared.granules(places[giving], 16), g[giving], keep=False)
        lane = np.arange(32)
        assert isinstance(dst, Vec)
        for i, one in enumerate(dst.items):
            if "trans" not in ins.mods:
                at = rows[:, 8 * i + lane // 4] + 4 * (lane % 4)
                m.shared.read(m.shared.granules(at.reshape(-1), 4), g)
                word = m.shared.view["u4"][at // 4]
            else:
                first = rows[:, 8 * i + 2 * (lane % 4)] + 2 * (lane // 4)
                second = rows[:, 8 * i + 2 * (lane % 4) + 1] + 2 * (lane // 4)
                halves = m.shared.view["u2"]
                for half in (first, second):
                    m.shared.read(m.shared.granules(half.reshape(-1), 2), g)
                word = arith.both(halves[second // 2], halves[first // 2])
            m.set(one, g, word.reshape(-1))
        m.go(block.after, g)

    def store(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute stmatrix: who has a word writes it, as who gets one of ldmatrix reads it.

        By the letter it may be who gives the row, then a warning: CUTLASS's epilogues overwrite
        what they have read in the same form, and join with nobody between.
        """
        m = self.m
        g = m.whole_warps(block, g)
        if not len(g):
            return
        dst, src = ins.operands
        rows, giving, places = self._rows(ins, g, dst)
        m.shared.give(m.shared.granules(places[giving], 16), g[giving])
        lane = np.arange(32)
        assert isinstance(src, Vec)
        m.progress += 1
        for i, one in enumerate(src.items):
            word = m.value(one, g, "b32").reshape(-1, 32)
            if "trans" not in ins.mods:
                at = rows[:, 8 * i + lane // 4] + 4 * (lane % 4)
                m.shared.write(m.shared.granules(at.reshape(-1), 4), g)
                m.shared.view["u4"][at // 4] = word
            else:
                high, low = arith.halves(word)
                first = rows[:, 8 * i + 2 * (lane % 4)] + 2 * (lane // 4)
                second = rows[:, 8 * i + 2 * (lane % 4) + 1] + 2 * (lane // 4)
                for half, value in ((first, low), (second, high)):
                    m.shared.write(m.shared.granules(half.reshape(-1), 2), g)
                    m.shared.view["u2"][half // 2] = value
        m.go(block.after, g)


def _at(registers: Ints, threads: Any) -> Any:
    """Return the index of registers of threads, which are neighbours (a slice) or not."""
    return (registers, threads) if isinstance(threads, slice) else np.ix_(registers, threads)


@lru_cache(maxsize=64)
def _accumulated(many: int) -> tuple[Ints, Ints]:
    """Return row and column of each of the results that the threads of a warpgroup have."""
    thread, each = np.arange(128), np.arange(many)
    lane = thread % 32
    return (
        (thread // 32 * 16 + lane // 4)[:, None] + 8 * (each // 2 % 2),
        8 * (each // 4) + (2 * (lane % 4))[:, None] + each % 2,
    )


def _numbers_of(words: Ints, to: str) -> Ints:
    """Return the numbers of an accumulator's registers, the last axis."""
    if to == "s32":
        return words.view(np.int32).astype(np.float64)
    if to == "f32":
        return words.view(np.float32).astype(np.float64)
    tops, lows = arith.halves(words)
    pairs = np.stack([arith.from_f16(lows), arith.from_f16(tops)], axis=-1)
    return pairs.reshape(*words.shape[:-1], -1).astype(np.float64)


def _words_of(made: Ints, to: str) -> Ints:
    """Return the registers that hold numbers."""
    if to == "s32":
        return (made.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)
    if to == "f32":
        return made.astype(np.float32).view(np.uint32)
    bits = arith.to_f16(made)
    return np.asarray(arith.both(bits[..., 1::2], bits[..., ::2]))


def _fragment_a(words: Ints, kind: str, k: int) -> Ints:
    """Return the rows of A that threads hold, 4 words each: 16 rows for a warp."""
    size = BYTES[kind]
    per = 4 // size
    threads, many = words.shape
    lane = np.arange(threads) % 32
    raw = np.zeros((threads // 2, k * size), np.uint8)
    for i in range(many):
        row = np.arange(threads) // 32 * 16 + lane // 4 + 8 * (i % 2)
        column = (lane % 4 * per + i // 2 * 4 * per) * size
        bytes_ = np.ascontiguousarray(words[:, i]).view(np.uint8).reshape(threads, 4)
        raw[row[:, None], column[:, None] + np.arange(4)] = bytes_
    return numbers(raw, kind)


def _fragment_b(words: Ints, kind: str, k: int) -> Ints:
    """Return the columns of B that the lanes of a warp hold, as a K x 8 matrix."""
    size = BYTES[kind]
    per = 4 // size
    lane = np.arange(32)
    raw = np.zeros((8, k * size), np.uint8)
    for i in range(words.shape[1]):
        column = (lane % 4 * per + i * 4 * per) * size
        bytes_ = np.ascontiguousarray(words[:, i]).view(np.uint8).reshape(32, 4)
        raw[(lane // 4)[:, None], column[:, None] + np.arange(4)] = bytes_
    return numbers(raw, kind).T


def check(ins: Instruction) -> None:
    """Raise UnsupportedError for a form that is not modelled."""
    mods = ins.mods
    match ins.name:
        case "ldmatrix" | "stmatrix":
            known = {
                "sync",
                "aligned",
                "m8n8",
                "x1",
                "x2",
                "x4",
                "trans",
                "shared",
                "shared::cta",
                "b16",
            }
            ok = {*mods} <= known
        case "mma":
            kinds = [x for x in mods[5:] if x != "satfinite"]
            ok = mods[:2] == ("sync", "aligned") and mods[3:5] == ("row", "col")
            ok = ok and len(kinds) == 4 and kinds[1] in SHAPES.get(mods[2], ())
            ok = ok and kinds[0] == kinds[3] and kinds[0] in ("f32", "s32", "f16")
        case _:
            ok = mods[0] in ("fence", "commit_group", "wait_group", "mma_async")
            if mods[0] == "mma_async":
                kinds = [x for x in mods[4:] if x != "satfinite"]
                ok = len(kinds) == 3 and kinds[0] in ("f32", "s32", "f16")
                ok = ok and kinds[1] in BYTES and kinds[2] in BYTES and "sp" not in mods
    if not ok:
        raise UnsupportedError(ins.opcode)

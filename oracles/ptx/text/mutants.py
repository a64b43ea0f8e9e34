"""Mutants of PTX text: each synchronising instruction dropped or weakened, one at a time.

A judge that passes a mutant is blind to it, or the instruction is not needed for what was launched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oracles.ptx.text.grammar import Imm, Instruction, parse
from oracles.verdict import Status


@dataclass(frozen=True, slots=True)
class Mutant:
    """A text with one change: what was done, to which instruction, at which line."""

    change: str
    opcode: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Fate:
    """What a judge said of a mutant."""

    mutant: Mutant
    status: Status

    @property
    def killed(self) -> bool:
        """Tell whether it was refuted."""
        return self.status is Status.FAIL


_DROPPED = re.compile(
    r"^(bar\.|barrier\.|fence\.|membar\.|mbarrier\.(init|arrive|expect_tx|try_wait|test_wait)"
    r"|cp\.async\.(commit|wait|bulk\.(commit|wait)|mbarrier)|wgmma\.(fence|commit|wait)"
    r"|cp\.async\.wait_all|tensormap\.cp_fenceproxy)"
)
_WEAKER = (
    (re.compile(r"^(st\.)release\.(cta|cluster|gpu|sys)"), r"\1relaxed.\2", "release to relaxed"),
    (re.compile(r"^(ld\.)acquire\.(cta|cluster|gpu|sys)"), r"\1relaxed.\2", "acquire to relaxed"),
    (re.compile(r"^(atom|red)\.acq_rel\."), r"\1.relaxed.", "acq_rel to relaxed"),
    (re.compile(r"^(\w+\.(?:release|acquire|acq_rel|relaxed)\.)gpu"), r"\1cta", "gpu to cta"),
    (re.compile(r"^(fence\.acq_rel\.)gpu"), r"\1cta", "gpu to cta"),
    (re.compile(r"^((?:fence|tensormap)\..*generic\.\w+\.)gpu"), r"\1cta", "gpu to cta"),
    (re.compile(r"^(barrier\.cluster\.arrive)\.release"), r"\1.relaxed", "release to relaxed"),
    (re.compile(r"^(cp\.async\.bulk\.wait_group)(?!\.read)"), r"\1.read", "all to .read"),
)


def mutants(text: str) -> Iterator[Mutant]:
    """Yield the mutants of every function of a text, in order of lines."""
    for function in parse(text).functions.values():
        for ins in function.body:
            if isinstance(ins, Instruction):
                yield from _of(text, ins)


def _of(text: str, ins: Instruction) -> Iterator[Mutant]:
    start, end = ins.span
    spelled = text[start:end]

    def made(change: str, new: str) -> Mutant:
        return Mutant(change, ins.opcode, ins.line, text[:start] + new + text[end:])

    if _DROPPED.match(ins.opcode):
        if ins.mods[0] in ("try_wait", "test_wait"):
            dst = spelled.split()[1 if ins.guard is None else 2].rstrip(",")
            yield made("drop", f"setp.eq.u32 {dst}, 0, 0;")
        elif (ins.name == "bar" and "red" not in ins.mods) or "red" not in ins.mods:
            yield made("drop", "")
    if ins.opcode.startswith(("cp.async", "wgmma")) and "wait_group" in ins.mods:
        (keep,) = ins.operands
        if isinstance(keep, Imm):
            yield made("keep one more", re.sub(r"\d+\s*;$", f"{keep.value + 1};", spelled))
    for pattern, into, change in _WEAKER:
        if pattern.match(ins.opcode):
            new = pattern.sub(into, ins.opcode)
            yield made(change, spelled.replace(ins.opcode, new, 1))


def fates(text: str, judge: Callable[[str], Status]) -> list[Fate]:
    """Return what a judge says of each mutant of a text that it passes.

    ValueError if it does not pass the text itself: then nothing could be learnt.
    """
    own = judge(text)
    if own is not Status.PASS:
        raise ValueError(f"fates: the text without a change is {own.value}; pass one that is right")
    return [Fate(one, judge(one.text)) for one in mutants(text)]


def kill_table(found: list[Fate]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return for each change of each opcode how many were killed, of how many."""
    all_: Counter[tuple[str, str]] = Counter()
    killed: Counter[tuple[str, str]] = Counter()
    for fate in found:
        key = (fate.mutant.opcode, fate.mutant.change)
        all_[key] += 1
        killed[key] += fate.killed
    return {key: (killed[key], many) for key, many in sorted(all_.items())}

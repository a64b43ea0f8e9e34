"""What can be read off the programs of threads, whatever state they are in."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.expr import Var, variables
from fuser.kernel import ir as kir
from oracles.prover.reachability.program.code import Branch, Code, Do, Enter, Instruction, Set


def reaches(program: list[Instruction]) -> Iterator[tuple[Instruction, int]]:
    """Yield the instructions, and the last place from which each may still be reached."""
    loops = [(at, i.end) for at, i in enumerate(program) if isinstance(i, Enter)]
    for at, i in enumerate(program):
        yield i, max((at, *(end - 1 for start, end in loops if start <= at < end)))


def last_deed(program: list[Instruction]) -> int:
    """Return the last place of a program from which a statement may still be reached."""
    return max((reach for i, reach in reaches(program) if isinstance(i, Do)), default=-1)


def last_reads(program: list[Instruction]) -> dict[str, int]:
    """Return by variable the last place of a program from which it may still be read."""
    out: dict[str, int] = {}
    for i, reach in reaches(program):
        match i:
            case Do(exprs=exprs, index=index, origin=origin):
                read = (*exprs, *origin, *(() if index is None else (index,)))
            case Set(expr=expr) | Branch(expr=expr):
                read = (expr,)
            case Enter(name=name, stop=stop):
                read = (Var(name), stop)
            case _:
                read = ()
        for name in {v.name for expr in read for v in variables(expr)}:
            out[name] = max(out.get(name, -1), reach)
    return out


def used_barriers(code: Code) -> frozenset[tuple[int, str]]:
    """Return the barriers, by CTA, that somebody uses once they are initialised."""
    ctas = {kind.cta for kind in code.kinds}
    out: set[tuple[int, str]] = set()
    for kind, program in zip(code.kinds, code.programs, strict=True):
        skipped = -1
        for at, i in enumerate(program):
            if isinstance(i, Branch) and i.expr == 0:
                skipped = max(skipped, i.orelse - 1)
            stmt = i.site.stmt if isinstance(i, Do) and at > skipped else None
            match stmt:
                case kir.MBarrierInit() | None:
                    continue
                case kir.MBarrierArrive(cta=int(cta)):
                    there = {cta}
                case kir.MBarrierArrive(cta=cta) if cta is not None:
                    there = ctas
                case kir.TmaLoad(multicast=mask) if mask is not None:
                    there = ctas
                case _:
                    there = {kind.cta}
            barrier = getattr(stmt, "barrier", None)
            if isinstance(barrier, kir.MBarrier):
                out |= {(cta, barrier.name) for cta in there}
    return frozenset(out)


def most_registers(program: list[Instruction]) -> int:
    """Return the largest number of registers that threads ever ask for more to have."""
    asked = [i.site.stmt for i in program if isinstance(i, Do)]
    return max(
        (s.registers for s in asked if isinstance(s, kir.SetMaxNReg) and s.increase), default=0
    )

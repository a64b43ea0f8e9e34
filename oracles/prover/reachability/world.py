"""What is the same in every state of a kernel in one reading, worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fuser.expr import Expr, Kind, Op, variables
from fuser.kernel import ir as kir
from oracles.prover.reachability.canonical.rotation import Rotation, rotation_of
from oracles.prover.reachability.grid.groups import badly_joined, group_of
from oracles.prover.reachability.layout import Accesses, Layout
from oracles.prover.reachability.program.code import (
    Code,
    Do,
    Enter,
    last_deed,
    last_reads,
    most_registers,
    used_barriers,
)
from oracles.prover.sites import AMONG_CTAS, Threads


@dataclass(frozen=True, eq=False)
class World:
    """The facts about a kernel in one reading.

    `together` says whether the CTAs that share a semaphore are followed, and take their turns;
    `pinned` has the lengths of loops that are given, by unknown.
    """

    code: Code
    policy: str
    together: bool = False
    pinned: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def kernel(self) -> kir.Kernel:
        """The kernel."""
        return self.code.kernel

    @cached_property
    def kinds(self) -> tuple[Threads, ...]:
        """The kinds of threads of all its CTAs."""
        return self.code.kinds

    @cached_property
    def ctas(self) -> int:
        """How many CTAs are followed."""
        return self.code.kinds[-1].cta + 1

    @cached_property
    def layout(self) -> Layout:
        """Which pieces of memory lie where."""
        return Layout(self.code)

    @cached_property
    def accesses(self) -> Accesses:
        """How accesses by threads meet."""
        return Accesses(self.code, self.layout)

    @cached_property
    def rotation(self) -> Rotation:
        """The symmetry of its rings."""
        return rotation_of(self.code, self.layout.sharing)

    @cached_property
    def among_ctas(self) -> bool:
        """Whether CTAs take turns or meet."""
        return any(isinstance(stmt, AMONG_CTAS) for stmt in self.kernel.walk())

    @cached_property
    def walk(self) -> str | None:
        """The loop along which CTAs go from one integer of a semaphore to the next."""
        walk = group_of(self.kernel).walk if self.among_ctas else None
        return walk.name if walk is not None else None

    @cached_property
    def cumulative(self) -> bool:
        """Whether one thread of a role that starts products arrives at a barrier for all of it."""
        places = [s.place for s in self.code.sites if isinstance(s.stmt, kir.Wgmma)]
        return any(
            isinstance(s.stmt, kir.MBarrierArrive)
            and (s.place.per in (kir.Per.ROLE, kir.Per.WARPGROUP) or s.place.warps < 4)
            and any(p.first <= s.place.first < p.first + p.warps for p in places)
            for s in self.code.sites
        )

    @cached_property
    def awaits_copies(self) -> bool:
        """Whether groups of cp.async are ever awaited."""
        awaits = (s.kind for s in self.kernel.walk() if isinstance(s, kir.AsyncAwait))
        return kir.AsyncKind.CP_ASYNC in awaits

    @cached_property
    def fragments(self) -> frozenset[object]:
        """The registers that products use."""
        mmas = [s for s in self.kernel.walk() if isinstance(s, kir.Wgmma)]
        return frozenset(f for m in mmas for f in (m.acc, m.a) if isinstance(f, kir.Fragment))

    @cached_property
    def last_statements(self) -> tuple[int, ...]:
        """The last place of each program from which a statement may still be reached."""
        return tuple(map(last_deed, self.code.programs))

    @cached_property
    def last_reads(self) -> tuple[Mapping[str, int], ...]:
        """The last place of each program from which a variable may still be read."""
        return tuple(map(last_reads, self.code.programs))

    @cached_property
    def most_registers(self) -> tuple[int, ...]:
        """The most registers that each program ever asks for."""
        return tuple(map(most_registers, self.code.programs))

    @cached_property
    def used_barriers(self) -> frozenset[tuple[int, str]]:
        """The barriers that somebody uses, by CTA and name."""
        return used_barriers(self.code)

    @cached_property
    def waiters(self) -> Mapping[tuple[int, str], tuple[int, ...]]:
        """The kinds of threads that ever wait for a barrier of their CTA, by CTA and name."""
        found: dict[tuple[int, str], tuple[int, ...]] = {}
        for kind, program in zip(self.kinds, self.code.programs, strict=True):
            stmts = [i.site.stmt for i in program if isinstance(i, Do)]
            for name in {s.barrier.name for s in stmts if isinstance(s, kir.MBarrierWaitParity)}:
                found[kind.cta, name] = (*found.get((kind.cta, name), ()), kind.index)
        return found

    @cached_property
    def loop_names(self) -> Mapping[int, str]:
        """The index of the innermost loop around each statement, as numbered in the text."""
        found: dict[int, str] = {}

        def name(body: tuple[kir.Stmt, ...], loop: str) -> None:
            for stmt in body:
                found[len(found)] = loop
                inside = stmt.index.name if isinstance(stmt, kir.ForLoop) else loop
                for inner in kir.bodies(stmt):
                    name(inner, inside)

        name(self.kernel.body, "")
        return found

    @cached_property
    def spans(self) -> Mapping[tuple[int, str], tuple[tuple[int, int], ...]]:
        """Where a program has the loops of an index; two, for one that it comes back to."""
        out: dict[tuple[int, str], tuple[tuple[int, int], ...]] = {}
        for index, program in enumerate(self.code.programs):
            loops = [(at, i.end, i.name) for at, i in enumerate(program) if isinstance(i, Enter)]
            for at, end, name in loops:
                again = [(at, end) for first, last, _ in loops if first < at < last]
                out[index, name] = (*out.get((index, name), ()), (at, end), *again)
        return out

    @cached_property
    def badly_joined(self) -> Mapping[int, str]:
        """Why a statement does not join the threads of one role alone; empty where it does."""
        return badly_joined(self.code.sites)

    @cached_property
    def least(self) -> Mapping[int, int]:
        """The least value of each unknown."""
        return least(self.code)

    @cached_property
    def few(self) -> Mapping[int, int]:
        """Up to which value an unknown is decided for all its uses at once."""
        return few(self.code)

    @cached_property
    def depth(self) -> int:
        """More rounds than the longest ring has slots."""
        return rounds_of_a_ring(self.code)


# --- counts that no thread knows ------------------------------------------------------------------


def few(code: Code) -> dict[int, int]:
    """Return up to which number a count is decided for all its uses at once, by unknown.

    A count that several loops share, or that a loop inside another uses each time it is entered, is
    one number: a launch has it the same everywhere.  While it is small it is one here too; beyond,
    every use has a length of its own, which is more than launches can show.  Where one round of the
    longest ring fits into a loop, what loops before it have left is gone when it ends, so that
    states do not multiply by the lengths of earlier loops.
    """
    most = rounds_of_a_ring(code)
    meant = {number: atom for atom, number in code.atoms.found.items()}
    out: dict[int, int] = {}
    for program in code.programs:
        entered: set[int] = set()
        for i in program:
            if isinstance(i, Enter) and i.atom >= 0:
                given = {v.name for v in variables(meant[i.atom])} <= code.atoms.names
                if given and (i.depth or i.atom in entered):
                    out[i.atom] = most
                entered.add(i.atom)
    return out


def rounds_of_a_ring(code: Code) -> int:
    """Return more rounds than the longest ring has slots."""
    rings = [b.slots for b in code.kernel.buffers] + [m.slots for m in code.kernel.barriers]
    return max(rings, default=1) + 1


def least(code: Code) -> dict[int, int]:
    """Return the least values that the kernel requires of what no thread knows."""
    lows: dict[Expr, int] = {}
    for condition in code.kernel.requires:
        match condition:
            case Op(Kind.LE | Kind.LT as kind, int() as low, atom):
                lows[atom] = max(low + (kind is Kind.LT), lows.get(atom, 0))
            case _:
                pass
    for atom in lows:
        code.atoms.number(atom)
    found = {number: _lowest(atom, lows) for atom, number in code.atoms.found.items()}
    return {number: max(low, 0) for number, low in found.items() if low is not None}


def _lowest(expr: Expr, lows: Mapping[Expr, int]) -> int | None:
    """Return a number that an expression is never less than; None if that is not plain to see."""
    if isinstance(expr, int):
        return expr
    if expr in lows:
        return lows[expr]
    match expr:
        case Op(Kind.ADD, a, b):
            left, right = _lowest(a, lows), _lowest(b, lows)
            return None if left is None or right is None else left + right
        case Op(Kind.FLOORDIV, a, int() as by) if by > 0:
            left = _lowest(a, lows)
            return None if left is None else left // by
        case _:
            return None

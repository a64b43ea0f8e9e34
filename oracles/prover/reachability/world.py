"""What is the same in every state of a kernel in one reading, worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, variables
from fuser.kernel import ir as kir
from oracles.prover.reachability.canonical.rotation import Rotation, rotation_of
from oracles.prover.reachability.grid.groups import badly_joined, group_of
from oracles.prover.reachability.layout import Accesses, Layout
from oracles.prover.reachability.program.code import Code, Do, Enter, Site
from oracles.prover.reachability.program.controls import AMONG_CTAS
from oracles.prover.reachability.program.facts import (
    last_deed,
    last_reads,
    most_registers,
    used_barriers,
)
from oracles.prover.reachability.program.threads import Kind as Threads


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """The facts about a kernel in one reading.

    Parameters
    ----------
    together : bool
        Whether the CTAs that share a semaphore are followed, and take their turns.
    pinned : mapping
        Lengths of loops that are given, by unknown.
    among_ctas : bool
        Whether CTAs take turns or meet.
    walk : str or None
        The loop along which CTAs go from one integer of a semaphore to the next.
    cumulative : bool
        Whether one thread of a role that starts products arrives at a barrier for all of it.
    awaits_copies : bool
        Whether groups of cp.async are ever awaited.
    fragments : frozenset
        The registers that products use.
    last_statements, last_reads, most_registers : tuple
        By program: the last place from which a statement may still be reached, a variable be read;
        the most registers that are ever asked for.
    waiters : mapping
        The kinds of threads that ever wait for a barrier of their CTA, by CTA and name.
    used_barriers : frozenset
        Those that somebody uses, likewise.
    least, few : mapping
        The least value of an unknown; up to which it is decided for all its uses at once.
    depth : int
        More rounds than the longest ring has slots.
    loop_names : mapping
        The index of the innermost loop around each statement.
    spans : mapping
        Where a program has the loops of an index; two, for one that it comes back to.
    badly_joined : mapping
        Why a statement does not join the threads of one role alone, if so.
    """

    code: Code
    policy: str
    together: bool
    pinned: Mapping[int, int]
    layout: Layout
    accesses: Accesses
    rotation: Rotation
    among_ctas: bool
    walk: str | None
    cumulative: bool
    awaits_copies: bool
    fragments: frozenset[object]
    last_statements: tuple[int, ...]
    last_reads: tuple[Mapping[str, int], ...]
    most_registers: tuple[int, ...]
    waiters: Mapping[tuple[int, str], tuple[int, ...]]
    used_barriers: frozenset[tuple[int, str]]
    least: Mapping[int, int]
    few: Mapping[int, int]
    depth: int
    loop_names: Mapping[int, str]
    spans: Mapping[tuple[int, str], tuple[tuple[int, int], ...]]
    badly_joined: Mapping[int, str]

    @property
    def kernel(self) -> kir.Kernel:
        """The kernel."""
        return self.code.kernel

    @property
    def kinds(self) -> tuple[Threads, ...]:
        """The kinds of threads of all its CTAs."""
        return self.code.kinds

    @property
    def ctas(self) -> int:
        """How many CTAs are followed."""
        return self.code.kinds[-1].cta + 1


def world_of(
    code: Code, *, policy: str, together: bool = False, pinned: Mapping[int, int] | None = None
) -> World:
    """Return what is the same in every state of a kernel as it is read."""
    kernel = code.kernel
    among_ctas = any(isinstance(stmt, AMONG_CTAS) for stmt in kernel.walk())
    walk = group_of(kernel).walk if among_ctas else None
    mmas = [s for s in kernel.walk() if isinstance(s, kir.Wgmma)]
    layout = Layout(code)
    awaits = [s.kind for s in kernel.walk() if isinstance(s, kir.AsyncAwait)]
    waiters: dict[tuple[int, str], tuple[int, ...]] = {}
    for kind, program in zip(code.kinds, code.programs, strict=True):
        stmts = [i.site.stmt for i in program if isinstance(i, Do)]
        for name in {s.barrier.name for s in stmts if isinstance(s, kir.MBarrierWaitParity)}:
            waiters[kind.cta, name] = (*waiters.get((kind.cta, name), ()), kind.index)
    return World(
        code=code,
        policy=policy,
        together=together,
        pinned=pinned or {},
        layout=layout,
        accesses=Accesses(code, layout),
        rotation=rotation_of(code),
        among_ctas=among_ctas,
        walk=walk.name if walk is not None else None,
        cumulative=_released_by_one(code.sites),
        awaits_copies=kir.AsyncKind.CP_ASYNC in awaits,
        fragments=frozenset(f for m in mmas for f in (m.acc, m.a) if isinstance(f, kir.Fragment)),
        last_statements=tuple(map(last_deed, code.programs)),
        last_reads=tuple(map(last_reads, code.programs)),
        most_registers=tuple(map(most_registers, code.programs)),
        waiters=waiters,
        used_barriers=used_barriers(code),
        least=least(code),
        few=few(code),
        depth=rounds_of_a_ring(code),
        loop_names=_loop_names(kernel),
        spans=_spans(code),
        badly_joined=badly_joined(code.sites),
    )


def _released_by_one(sites: list[Site]) -> bool:
    """Whether one thread of a role that starts products arrives at a barrier for all of it."""
    places = [s.place for s in sites if isinstance(s.stmt, kir.Wgmma)]
    return any(
        isinstance(s.stmt, kir.MBarrierArrive)
        and (s.place.per in (kir.Per.ROLE, kir.Per.WARPGROUP) or s.place.warps < 4)
        and any(p.first <= s.place.first < p.first + p.warps for p in places)
        for s in sites
    )


def _loop_names(kernel: kir.Kernel) -> Mapping[int, str]:
    """Return the index of the innermost loop around each statement, as numbered in the text."""
    found: dict[int, str] = {}

    def name(body: tuple[kir.Stmt, ...], loop: str) -> None:
        for stmt in body:
            found[len(found)] = loop
            inside = stmt.index.name if isinstance(stmt, kir.ForLoop) else loop
            for inner in kir.bodies(stmt):
                name(inner, inside)

    name(kernel.body, "")
    return found


def _spans(code: Code) -> dict[tuple[int, str], tuple[tuple[int, int], ...]]:
    """Return where programs have the loops of an index; two, for one that they come back to."""
    out: dict[tuple[int, str], tuple[tuple[int, int], ...]] = {}
    for index, program in enumerate(code.programs):
        loops = [(at, i.end, i.name) for at, i in enumerate(program) if isinstance(i, Enter)]
        for at, end, name in loops:
            again = [(at, end) for first, last, _ in loops if first < at < last]
            out[index, name] = (*out.get((index, name), ()), (at, end), *again)
    return out


# --- counts that no thread knows ------------------------------------------------------------------


def few(code: Code) -> dict[int, int]:
    """Return up to which number a count is decided for all its uses at once, by unknown.

    A count that several loops share, or that a loop inside another uses each time it is entered, is
    one number: a launch has it the same everywhere.  Told apart while it is small, it is that here
    too; beyond, every use has a length of its own, which is more than launches can show.  Where one
    round of the longest ring fits into a loop, what loops before it have left is gone when it ends,
    so that states do not multiply by the lengths of earlier loops.
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

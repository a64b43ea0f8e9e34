"""What is the same in every state of a kernel in one reading, worked out once: loops and memory.

Shared memory is laid out once.  Boxes of global memory become known as statements reach them.  A
box is known by the place of its origin: on each axis a constant and multiples of what no thread
knows.  Two that differ by a constant only are compared; of others it is not known.  A box that
moves along a loop of unknown length is one *rolling* region, whose last place is kept: what the
same threads did at earlier places precedes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import linear
from oracles.prover.coverage.runs import nominal
from oracles.prover.reachability.code import Branch, Code, Do, Enter, Set, reaches
from oracles.prover.reachability.ctas import badly_joined, group_of
from oracles.prover.reachability.state import MAPS, Agent, Where
from oracles.prover.sites import (
    AMONG_CTAS,
    REGISTERS_ONLY,
    Overlap,
    Overlaps,
    Site,
    Spread,
    Threads,
    each_by_one,
    fragments,
    operand,
    ordinary,
    positive,
    shared_tensors,
    slots,
    storage,
    touches,
)


class Registers(NamedTuple):
    """The registers that a statement reads and writes, by name.

    As sets of the numbers of products' fragments: those that it `needs` a fence for, as a product
    itself, and those that need another one behind it.
    """

    read: frozenset[str]
    written: frozenset[str]
    needs: int
    spoils: int


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
    def ctas(self) -> int:
        """How many CTAs are followed."""
        return self.code.kinds[-1].cta + 1

    @cached_property
    def layout(self) -> Layout:
        """Which pieces of memory lie where."""
        return Layout(self.code)

    @cached_property
    def accesses(self) -> Accesses:
        """How accesses by threads overlap."""
        return Accesses(self.code, self.layout)

    # --- statements -----------------------------------------------------------------------------

    def expected(self, stmt: kir.MBarrierArriveExpectTx | kir.MBarrierExpectTx) -> int:
        """Return the bytes that a statement expects; whole boxes where copies may be clipped."""
        nbytes = self._nominal.get(id(stmt), stmt.nbytes)
        assert isinstance(nbytes, int), "those that are no number have another one"
        return nbytes

    @cached_property
    def _nominal(self) -> Mapping[int, int]:
        return nominal(self.kernel)

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
    def badly_joined(self) -> Mapping[int, str]:
        """Why a statement does not join the threads of one role alone; empty where it does."""
        joins = kir.BlockSerializeWait | kir.GridSync | kir.LastArriving
        sites = self.code.sites
        return {s.index: badly_joined(s, sites) for s in sites if isinstance(s.stmt, joins)}

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
    def fragments(self) -> tuple[kir.Fragment, ...]:
        """The registers that products use."""
        mmas = [s for s in self.kernel.walk() if isinstance(s, kir.Wgmma)]
        used = (f for m in mmas for f in (m.acc, m.a) if isinstance(f, kir.Fragment))
        return tuple(dict.fromkeys(used))

    @cached_property
    def registers(self) -> tuple[Registers, ...]:
        """The registers that each statement uses."""
        return tuple(self._registers(site.stmt) for site in self.code.sites)

    def _registers(self, stmt: kir.Stmt) -> Registers:
        reads, writes = fragments(stmt)
        read, written = frozenset(f.name for f in reads), frozenset(f.name for f in writes)
        own = (*reads, *writes) if isinstance(stmt, kir.Wgmma) else ()
        needs = spoils = 0
        for number, one in enumerate(self.fragments):
            needs |= (one in own) << number
            spoils |= (one.name in read | written and one not in own) << number
        return Registers(read, written, needs, spoils)

    @cached_property
    def warpgroups(self) -> Mapping[tuple[int, int], tuple[int, ...]]:
        """The kinds of threads that execute a product as one warpgroup, by statement and CTA."""
        places = [
            (s.index, s.place)
            for s in self.code.sites
            if isinstance(s.stmt, kir.Wgmma) and not s.elected
        ]
        return {
            (index, cta): tuple(k.index for k in self.code.kinds if k.cta == cta and place.has(k))
            for index, place in places
            for cta in range(self.ctas)
            if place.warps == 4 and place.first % 4 == 0
        }

    @cached_property
    def most_registers(self) -> tuple[int, ...]:
        """The largest number of registers that each program ever asks for more to have."""
        asked = [[i.site.stmt for i in p if isinstance(i, Do)] for p in self.code.programs]
        more = ([s for s in stmts if isinstance(s, kir.SetMaxNReg)] for stmts in asked)
        return tuple(max((s.registers for s in one if s.increase), default=0) for one in more)

    @cached_property
    def users(self) -> Mapping[tuple[int, str], tuple[int, ...]]:
        """The kinds of threads that ever use a barrier once it is initialised, by CTA and name.

        A second life of the same bytes is such a use, of this barrier or of another one, and so is
        an access of a buffer that lies on them: then anybody may ask about it.
        """
        layout, every = self.layout, range(len(self.code.kinds))
        shared = {name for (name, _), others in layout.barriers_beside.items() if others}
        shared |= {name for (name, _), others in layout.buffers_under.items() if others}
        lives: Counter[str] = Counter()
        for site in self.code.sites:
            if isinstance(site.stmt, kir.MBarrierInit):
                lives[site.stmt.barrier.name] += 2 if site.loops else 1
        shared |= {name for name, many in lives.items() if many > 1}
        found: dict[tuple[int, str], set[int]] = {
            (cta, name): set(every) for cta in range(self.ctas) for name in shared
        }
        for kind, program in zip(self.code.kinds, self.code.programs, strict=True):
            skipped = -1
            for at, i in enumerate(program):
                if isinstance(i, Branch) and i.expr == 0:
                    skipped = max(skipped, i.orelse - 1)
                stmt = i.site.stmt if isinstance(i, Do) and at > skipped else None
                barrier = getattr(stmt, "barrier", None)
                if not isinstance(barrier, kir.MBarrier) or isinstance(stmt, kir.MBarrierInit):
                    continue
                there: set[int] = {kind.cta}
                match stmt:
                    case kir.MBarrierArrive(cta=int(cta)):
                        there = {cta}
                    case kir.MBarrierArrive(cta=to) | kir.TmaLoad(multicast=to) if to is not None:
                        there = {*range(self.ctas)}
                    case kir.StAsync():
                        there = {*range(self.ctas)}
                    case _:
                        pass
                for cta in there:
                    found.setdefault((cta, barrier.name), set()).add(kind.index)
        return {barrier: tuple(sorted(by)) for barrier, by in found.items()}

    @cached_property
    def waiters(self) -> Mapping[tuple[int, str], tuple[int, ...]]:
        """The kinds of threads that ever wait for a barrier of their CTA, by CTA and name."""
        found: dict[tuple[int, str], tuple[int, ...]] = {}
        for kind, program in zip(self.code.kinds, self.code.programs, strict=True):
            stmts = [i.site.stmt for i in program if isinstance(i, Do)]
            for name in {s.barrier.name for s in stmts if isinstance(s, kir.MBarrierWaitParity)}:
                found[kind.cta, name] = (*found.get((kind.cta, name), ()), kind.index)
        return found

    # --- where programs are ---------------------------------------------------------------------

    @cached_property
    def last_statements(self) -> tuple[int, ...]:
        """The last place of each program from which a statement may still be reached."""
        return tuple(
            max((last for i, last in reaches(program) if isinstance(i, Do)), default=-1)
            for program in self.code.programs
        )

    @cached_property
    def idle(self) -> tuple[bool, ...]:
        """Which statements ask nothing and tell nobody: threads only go on behind them."""
        return tuple(self._idle(site.stmt) for site in self.code.sites)

    def _idle(self, stmt: kir.Stmt) -> bool:
        """Whether a statement touches nothing but registers of no product, or boxes of one CTA."""
        if self.fragments or self.kernel.dependent:
            return False
        match stmt:
            case kir.Load(_, kir.Box(tensor)) | kir.Store(kir.Box(tensor)):
                return tensor.name not in self.layout.tracked
            case _:
                return isinstance(stmt, REGISTERS_ONLY)

    @cached_property
    def last_reads(self) -> tuple[Mapping[str, int], ...]:
        """The last place of each program from which a variable may still be read."""
        found: list[dict[str, int]] = []
        for program in self.code.programs:
            out: dict[str, int] = {}
            for i, last in reaches(program):
                match i:
                    case Do(exprs=exprs, index=index, origin=origin, says=says):
                        read = (*exprs, *origin, *says, *(() if index is None else (index,)))
                    case Set(expr=expr) | Branch(expr=expr):
                        read = (expr,)
                    case Enter(name=name, stop=stop):
                        read = (Var(name), stop)
                    case _:
                        read = ()
                out |= {v.name: max(out.get(v.name, -1), last) for e in read for v in variables(e)}
            found.append(out)
        return tuple(found)

    @cached_property
    def copies_through(self) -> tuple[tuple[tuple[Do, int], ...], ...]:
        """The copies of each program through maps that the kernel writes.

        Each with the last place from which it may still be reached.
        """
        return tuple(
            tuple(
                (i, last)
                for i, last in reaches(program)
                if isinstance(i, Do)
                and i.says
                and not isinstance(i.site.stmt, kir.TensorMapReplace)
            )
            for program in self.code.programs
        )

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

    # --- counts that no thread knows ------------------------------------------------------------

    @cached_property
    def least(self) -> Mapping[int, int]:
        """The least value that the kernel requires of each unknown."""
        lows, _ = bounds(self.kernel)
        for atom in lows:
            self.code.atoms.number(atom)
        atoms = self.code.atoms
        found = {n: _lowest(atoms.meaning(n), lows) for n in list(atoms.found.values())}
        return {number: max(low, 0) for number, low in found.items() if low is not None}

    @cached_property
    def most(self) -> Mapping[int, int]:
        """The largest value of each unknown that has one, up to `BOUNDED`."""
        _, highs = bounds(self.kernel)
        found = {number: _highest(atom, highs) for atom, number in self.code.atoms.found.items()}
        return {n: high for n, high in found.items() if high is not None and 0 <= high <= BOUNDED}

    @cached_property
    def few(self) -> Mapping[int, int]:
        """Up to which value an unknown is decided for all its uses at once.

        A count that several loops share, or that a loop inside another uses each time it is
        entered, is one number: a launch has it the same everywhere.  While it is small it is one
        here too; beyond, every use has a length of its own, which is more than launches can show.
        Where one round of the longest ring fits into a loop, what loops before it have left is gone
        when it ends, so that states do not multiply by the lengths of earlier loops.
        """
        meant = {number: atom for atom, number in self.code.atoms.found.items()}
        out: dict[int, int] = {}
        for program in self.code.programs:
            entered: set[int] = set()
            again = 0  # where the loops of known lengths end that have begun
            for at, i in enumerate(program):
                if isinstance(i, Enter) and i.atom < 0:
                    again = max(again, i.end)
                if isinstance(i, Enter) and i.atom >= 0:
                    given = {v.name for v in variables(meant[i.atom])} <= self.code.atoms.names
                    if given and (i.depth or at < again or i.atom in entered):
                        out[i.atom] = self.depth
                    entered.add(i.atom)
        return out

    @cached_property
    def depth(self) -> int:
        """More rounds than the longest ring has slots; slots used by their numbers are no ring."""
        used = (one for stmt in self.kernel.walk() for one in slots(stmt))
        rings = [one.buffer.slots for one in used if not isinstance(one.index, int)]
        return max(rings + [m.slots for m in self.kernel.barriers], default=1) + 1


BOUNDED = 64
"""Largest bound of an unknown that is followed."""


def bounds(kernel: kir.Kernel) -> tuple[dict[Expr, int], dict[Expr, int]]:
    """Return what a kernel requires some expressions to be at least, and at most.

    How many CTAs there are is none of them.
    """
    lows: dict[Expr, int] = {}
    highs: dict[Expr, int] = {}
    todo = list(kernel.requires)
    while todo:
        asked = todo.pop()
        match asked:
            case Op(Kind.LE | Kind.LT as kind, a, b):
                constant, parts = linear(b - a)
                for atom, times in parts.items() if len(parts) == 1 else ():
                    least = (kind is Kind.LT) - constant  # times * atom is no less
                    if times > 0:
                        lows[atom] = max(-(-least // times), lows.get(atom, 0))
                    else:
                        most = -least // -times
                        highs[atom] = min(most, highs.get(atom, most))
            case _:
                pass
        match asked:
            case Op(Kind.AND, a, b):
                todo += [a, b]
            case Op(Kind.LE | Kind.LT as kind, int() as low, atom):
                lows[atom] = max(low + (kind is Kind.LT), lows.get(atom, 0))
            case Op(Kind.LE | Kind.LT as kind, atom, int() as high):
                highs[atom] = min(high - (kind is Kind.LT), highs.get(atom, high))
            case Op(Kind.EQ, kir.GRID, _) | Op(Kind.EQ, _, kir.GRID):
                pass
            case Op(Kind.EQ, atom, int() as value) | Op(Kind.EQ, int() as value, atom):
                lows[atom] = max(value, lows.get(atom, 0))
                highs[atom] = min(value, highs.get(atom, value))
            case _:
                pass
    return lows, highs


def _highest(expr: Expr, highs: Mapping[Expr, int]) -> int | None:
    """Return a number that an expression >= 0 never exceeds; None if that is not plain to see."""
    if isinstance(expr, int):
        return expr
    if expr in highs:
        return highs[expr]
    if not isinstance(expr, Op):
        return None
    left, right = _highest(expr.a, highs), _highest(expr.b, highs)
    known = [high for high in (left, right) if high is not None]
    match expr:
        case Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND):
            return 1
        case Op(Kind.MOD, _, int() as by) if by > 0:
            return by - 1
        case Op(Kind.FLOORDIV, _, int() as by) if by > 0 and left is not None:
            return left // by
        case Op(Kind.MIN):
            return min(known, default=None)
        case Op(Kind.ADD) if left is not None and right is not None:
            return left + right
        case Op(Kind.MUL) if left is not None and right is not None and left >= 0 <= right:
            return left * right
        case Op(Kind.MAX) if left is not None and right is not None:
            return max(left, right)
        case _:
            return None


def _lowest(expr: Expr, lows: Mapping[Expr, int]) -> int | None:
    """Return a number that an expression is never less than; None if that is not plain to see."""
    if isinstance(expr, int):
        return expr
    if expr in lows:
        return lows[expr]
    match expr:
        case Op(Kind.FLOORDIV, a, int() as by) if by > 0:
            left = _lowest(a, lows)
            return None if left is None else left // by
        case Op(Kind.MUL, a, b) if not isinstance(a, int) and not isinstance(b, int):
            left, right = _lowest(a, lows), _lowest(b, lows)
            return left * right if left and right else None
        case Op(Kind.ADD | Kind.SUB):
            total, of = linear(expr)
            parts = dict(of)
            for part, times in of.items():
                whole = part.b if isinstance(part, Op) and part.kind is Kind.MOD else None
                if whole is not None and 0 < -times <= parts.get(whole, 0) and lows.get(whole):
                    parts[whole] += times  # a remainder is less than what it is by
                    total -= parts.pop(part)
            for part, times in parts.items():
                low = _lowest(part, lows)
                if times and (low is None or times < 0):
                    return None
                total += times * (low or 0)
            return total if total >= 0 else None
        case _:
            return None


# --- boxes of global memory -----------------------------------------------------------------------

Form = tuple[int, frozenset[tuple[Expr, int]]]
"""A constant, and multiples of what is not known."""


class Share(Enum):
    """Whether two accesses touch the same elements."""

    SAME = "the same box"
    SOME = "boxes that overlap"
    MAYBE = "boxes that may overlap"


class Pair(NamedTuple):
    """How two regions share elements; `still`, where the same values have brought them.

    `alike` and `strides` are what `Region` says of them.
    """

    how: Share
    alike: bool
    still: Share | None
    strides: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a tensor; `rolls` is what moves it on each axis.

    `loop` is the loop along which it rolls, -1 if it stands: the one whose index moves it, or the
    innermost one where something else does.
    """

    tensor: str
    origin: tuple[Form, ...]
    shape: tuple[int, ...]
    rolls: tuple[frozenset[tuple[Expr, int]], ...]
    loop: int = -1

    def alike(self, other: Region) -> bool:
        """Whether two regions roll along one loop, in the same steps."""
        return any(self.rolls) and self.loop == other.loop and self.rolls == other.rolls

    def share(self, other: Region, *, still: bool = False) -> Share | None:
        """Return how two regions share elements, None if they do not.

        `still` says that both are where the same values of what moves them have brought them.
        """
        if self == other:
            return Share.MAYBE if any(self.rolls) and not still else Share.SAME
        how = Share.SOME
        for axis, ((low, parts), (start, others)) in enumerate(
            zip(self.origin, other.origin, strict=True)
        ):
            moves = (self.rolls[axis] or other.rolls[axis]) and not still
            if parts != others or moves:
                how = Share.MAYBE
            elif low >= start + other.shape[axis] or start >= low + self.shape[axis]:
                return None
            elif low != start and parts:
                how = Share.MAYBE
        return how

    def strides(self, other: Region, positive: frozenset[Expr]) -> bool:
        """Whether regions that roll alike share nothing while they are at different places.

        Along one axis they lie within less than the length of a step, which is a multiple of what
        one variable is multiplied with: a number, or one times something `positive`.
        """
        moving = [axis for axis, on in enumerate(self.rolls) if on]
        if len(moving) != 1 or len(self.rolls[moving[0]]) != 1:
            return False
        (axis,) = moving
        ((atom, times),) = self.rolls[axis]
        match atom:
            case Var():
                pass
            case Op(Kind.MUL, Var(), stride) if stride in positive:
                pass
            case _:
                return False
        (low, parts), (start, others) = self.origin[axis], other.origin[axis]
        ends = max(low + self.shape[axis], start + other.shape[axis])
        return parts == others and ends - min(low, start) <= abs(times)

    def filled(self, written: list[Region]) -> bool:
        """Whether boxes hold all elements of this one: one does, or several side by side.

        Those that roll along one loop are given where they are at the same time; others that roll
        are taken to.
        """
        rolling = [r for r in written if any((*r.rolls, *self.rolls)) and not r.alike(self)]
        if any(r.share(self) is not None for r in rolling):
            return True
        axes = range(len(self.shape))
        for axis in axes:
            start, parts = self.origin[axis]
            end = start + self.shape[axis]
            row = (
                (r.origin[axis][0], r.origin[axis][0] + r.shape[axis])
                for r in written
                if r.origin[axis][1] == parts and all(r._spans(self, n) for n in axes if n != axis)
            )
            for low, high in sorted(row):
                if low <= start < high:
                    start = high
            if start >= end:
                return True
        return False

    def _spans(self, inner: Region, axis: int) -> bool:
        """Whether the range of another box on an axis lies in that of this one."""
        (low, parts), (start, others) = self.origin[axis], inner.origin[axis]
        inside = low <= start and start + inner.shape[axis] <= low + self.shape[axis]
        return parts == others and inside


def rolling(code: Code) -> frozenset[str]:
    """Return the variables whose values follow a loop of unknown length, or an assignment."""
    names = {i.name for i in code.instructions if isinstance(i, Enter) and i.atom >= 0}
    sets = [[i for i in program if isinstance(i, Set)] for program in code.programs]
    for one in sets:
        given = [i.name for i in one]
        names |= {name for name in given if given.count(name) > 1}
    while True:
        found = {
            i.name for one in sets for i in one if any(v.name in names for v in variables(i.expr))
        }
        if found <= names:
            return frozenset(names)
        names |= found


# --- which pieces of memory lie where -------------------------------------------------------------


def map_name(maps: kir.TensorMaps) -> str:
    """Return the name of tensor maps as pieces of memory."""
    return MAPS + maps.name


User = tuple[int, int, str]
"""Who touches a buffer: a statement, a kind of threads, and the buffer's name."""


class Layout:
    """Which pieces of memory lie where.

    `spans` and `overlaps` say of each piece where it begins and ends, and with which it shares
    bytes; `barriers_on` and `buffers_under` which slots of mbarriers and buffers lie on each other,
    `barriers_beside` which slots of mbarriers share bytes; `storage` the one name by which buffers
    of one shape in one place go; `tracked` which tensors CTAs share, `rolling` what moves their
    boxes, and `regions` which boxes have been reached.
    """

    def __init__(self, code: Code) -> None:
        kernel = self.kernel = code.kernel
        self.spans: dict[Where, tuple[int, int]] = {}
        self.overlaps: dict[Where, tuple[Where, ...]] = {}
        self.barriers_on: dict[tuple[str, int], list[tuple[kir.MBarrier, int]]] = {}
        self.buffers_under: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self.barriers_beside: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self.storage = storage(kernel.buffers)
        self.tracked = shared_tensors(kernel)
        self.rolling = rolling(code) if self.tracked else frozenset()
        self.regions: list[Region] = []
        self._positive = positive(kernel)
        self._pairs: dict[tuple[int, int], Pair] = {}
        self._named: dict[Do, tuple[list[str], list[str]]] = {}
        self._empty: dict[tuple[object, ...], Expr | None] = {}
        self._boxes: dict[tuple[object, ...], Where] = {}
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        for b in kernel.buffers:
            for slot in range(b.slots):
                spans[b.name, slot] = b.start(slot), b.start(slot) + b.slot_nbytes
        for cta in range(code.kinds[-1].cta + 1):
            for (name, slot), (start, end) in spans.items():
                self.spans[cta, name, slot] = start, end
                self.overlaps[cta, name, slot] = tuple(
                    (cta, *other)
                    for other, (low, high) in spans.items()
                    if low < end and start < high
                )
            for maps in kernel.maps:
                for slot in range(maps.slots):
                    here = cta, map_name(maps), slot
                    self.spans[here], self.overlaps[here] = (0, 1), (here,)
        places = {
            (m.name, slot): kernel.barrier_at(m) + 8 * slot
            for m in kernel.barriers
            for slot in range(m.slots)
        }
        for m in kernel.barriers:
            for slot in range(m.slots):
                at = places[m.name, slot]
                self.barriers_beside[m.name, slot] = [
                    b for b, start in places.items() if b[0] != m.name and abs(start - at) < 8
                ]
                on = [b for b, (start, end) in spans.items() if start < at + 8 and at < end]
                self.buffers_under[m.name, slot] = on
                for other in on:
                    self.barriers_on.setdefault(other, []).append((m, slot))

    @property
    def sharing(self) -> set[tuple[str, str]]:
        """The buffers ("access") and barriers ("phase") that share bytes with anything else."""
        found = {("access", name) for name, _ in self.barriers_on}
        found |= {("phase", name) for (name, _), on in self.buffers_under.items() if on}
        for (cta, name, _), others in self.overlaps.items():
            if cta >= 0 and any(other[1] != name for other in others):
                found.add(("access", name))
        found |= {("phase", name) for (name, _), beside in self.barriers_beside.items() if beside}
        return found

    def box(self, do: Do, a: Agent) -> Where:
        """Return the piece of global memory that a statement accesses now."""
        loop = a.loops[-1].number if a.loops else -1
        ends = sorted({v.name for e in do.limit for v in variables(e)})
        key = do, loop, *(a.env[n] for n in (*self.names(do)[0], *ends) if n in a.env)
        if key not in self._boxes:
            self._boxes[key] = self._placed(self._region(do, a))
        return self._boxes[key]

    def names(self, do: Do) -> tuple[list[str], list[str]]:
        """Return the variables that place a statement's box: those that stand, and that roll."""
        if do not in self._named:
            names = sorted({v.name for e in do.origin for v in variables(e)})
            rolls = [name for name in names if name in self.rolling]
            self._named[do] = [name for name in names if name not in self.rolling], rolls
        return self._named[do]

    def empty(self, do: Do, a: Agent) -> Expr | None:
        """Return by what a statement's box begins at its limit or behind it for sure, if it does.

        Then it has no element.
        """
        ends = (*do.origin, *do.limit)
        key = do, *(a.env.get(v.name) for e in ends for v in variables(e))
        if key not in self._empty:
            known: Mapping[Var, Expr] = {Var(n): v for n, v in a.env.items()}
            sides = list(zip(do.origin, do.limit, strict=True))
            apart = [linear(substitute(s, known) - substitute(e, known)) for s, e in sides]
            over = (n for n, (least, parts) in enumerate(apart) if least >= 0 and not parts)
            tests = (fold(Kind.LE, sides[n][1], sides[n][0]) for n in over)
            self._empty[key] = next(tests, None)
        return self._empty[key]

    def _region(self, do: Do, a: Agent) -> Region:
        """Return the region of a statement's box, as these threads execute it now."""
        box = touches(do.site.stmt)
        assert box is not None, "asked of accesses of global memory only"
        known: Mapping[Var, Expr] = {Var(n): v for n, v in a.env.items() if n not in self.rolling}
        sums = [linear(substitute(expr, known)) for expr in do.origin]
        origin = tuple((constant, frozenset(parts.items())) for constant, parts in sums)
        rolls = tuple(
            frozenset((e, n) for e, n in parts if any(v.name in self.rolling for v in variables(e)))
            for _, parts in origin
        )
        by = {v.name for on in rolls for atom, _ in on for v in variables(atom)} & self.rolling
        loop = a.loops[-1].number if any(rolls) and a.loops else -1
        if len(by) == 1:
            loop = next((one.number for one in a.loops if one.name in by), loop)
        # What lies behind the limit is not accessed.
        left = [
            linear(substitute(end, known) - substitute(start, known))
            for start, end in zip(do.origin, do.limit, strict=True)
        ]
        shape = tuple(
            size if parts or many < 1 else min(size, many)
            for size, (many, parts) in zip(box.shape, left, strict=True)
        )
        return Region(box.tensor.name, origin, shape, rolls, loop)

    def _placed(self, found: Region) -> Where:
        """Return the piece of memory that a region is, which may be a new one."""
        if found in self.regions:
            return -1, found.tensor, self.regions.index(found)
        number = len(self.regions)
        self.regions.append(found)
        here = -1, found.tensor, number
        self.spans[here] = 2 * number, 2 * number + 1
        self.overlaps[here] = ()
        for at, other in enumerate(self.regions):
            how = found.share(other) if found.tensor == other.tensor else None
            if how is not None:
                there = -1, other.tensor, at
                self._pairs[number, at] = self._pair(found, other, how)
                self._pairs[at, number] = self._pair(other, found, how)
                self.overlaps[here] = (*self.overlaps[here], there)
                if at != number:
                    self.overlaps[there] = (*self.overlaps[there], here)
        return here

    def moved_by(self, where: Where) -> frozenset[str]:
        """Return the index of the loop along which a box rolls, if it is one alone."""
        on = self.regions[where[2]].rolls
        found = {v.name for by in on for atom, _ in by for v in variables(atom)} & self.rolling
        return frozenset(found) if len(found) == 1 else frozenset()

    def _pair(self, one: Region, other: Region, how: Share) -> Pair:
        alike = one.alike(other)
        still = one.share(other, still=True) if one == other or alike else how
        return Pair(how, alike, still, one.strides(other, self._positive))

    def alike(self, one: Where, other: Where) -> bool:
        """Whether two boxes that may overlap move along one loop, in the same steps."""
        return self._pairs[one[2], other[2]].alike

    def now(self, do: Do, a: Agent) -> tuple[int, ...]:
        """Return where a rolling box is now."""
        return tuple(a.env.get(name, -1) for name in self.names(do)[1])

    def shared(
        self, here: Where, now: tuple[int, ...], there: Where, then: tuple[int, ...] | None
    ) -> Share | None:
        """Return how a box shares elements with one accessed earlier, None if it does not."""
        pair = self._pairs[here[2], there[2]]
        if pair.how is Share.MAYBE and (here == there or pair.alike):
            if then == now:
                return pair.still
            if pair.strides:
                return None
        return pair.how


class Accesses:
    """How the ordinary accesses of a kernel spread over threads, and how they overlap.

    `spreads` has by statement how it spreads its tile over threads, None if it is no such access.
    """

    def __init__(self, code: Code, layout: Layout) -> None:
        self._code, self._layout = code, layout
        self._kinds = len(code.kinds) // (code.kinds[-1].cta + 1)
        self._overlaps = _overlaps(code.kinds[: self._kinds], code.kernel.threads)
        self.spreads = {site.index: ordinary(site, layout.storage) for site in code.sites}
        self._operands: dict[tuple[int, str], Spread] = {}
        self._levels: dict[tuple[User, User, int], Overlap] = {}
        self._holders: dict[int, frozenset[int]] = {}
        self._writers: dict[tuple[int, int], int] = {}
        self._colliding: dict[tuple[int, int], bool] = {}
        for site in code.sites:
            if (found := operand(site, layout.storage)) is not None:
                self._operands[site.index, found[0]] = found[1]
            spread, stmt = self.spreads[site.index], site.stmt
            if spread is not None and isinstance(stmt, kir.CpAsync):  # each thread reads its own
                name = stmt.src.tensor.name
                self._operands[site.index, name] = replace(spread, buffer=name)

    def overlap(self, first: User, second: User, apart: int = 0) -> Overlap:
        """Return how the accesses of two statements by two kinds of threads overlap.

        Slots of different buffers begin so many bytes `apart`.
        """
        level = self._levels.get((first, second, apart))
        if level is None:
            level = self._levels[first, second, apart] = self._level(first, second, apart)
        return level

    def _level(self, first: User, second: User, apart: int) -> Overlap:
        (one, agent, name), (two, other, called) = first, second
        a = self._operands.get((one, name)) or self.spreads[one]
        b = self._operands.get((two, called)) or self.spreads[two]
        many = self._kinds
        if a is None or b is None or agent // many != other // many:
            return Overlap.ANY
        found = self._overlaps.between(a, b, apart)
        if one == two and a.matrix:
            found = each_by_one(found)
        return found.get((agent % many, other % many), Overlap.NEVER)

    def collide(self, site: Site, agent: int) -> bool:
        """Whether threads of a kind touch one element together in one ordinary access."""
        key = site.index, agent
        if key not in self._colliding:
            spread, user = self.spreads[site.index], (site.index, agent, "")
            if spread is None or not spread.matrix:
                self._colliding[key] = self.overlap(user, user) > Overlap.THREAD
            else:
                self._colliding[key] = self._overlaps.collide(spread, agent % self._kinds)
        return self._colliding[key]

    def touch(self, site: Site, agent: int) -> bool:
        """Whether threads of a kind hold a part of an ordinary access's tile."""
        found = self._holders.get(site.index)
        if found is None:
            spread = self.spreads[site.index]
            assert spread is not None, "asked of ordinary accesses only"
            found = self._holders[site.index] = self._overlaps.touching(spread)
        return agent % self._kinds in found

    def count(self, site: Site, agent: int) -> int:
        """Return how many elements of a tile threads of a kind hold, each of one thread."""
        spread = self.spreads[site.index]
        assert spread is not None, "asked of accesses by threads only"
        return self._overlaps.count(spread, agent % self._kinds)

    def writers(self, site: Site, cta: int) -> int:
        """Return the kinds of threads that hold a part of an ordinary access's tile, as a set."""
        key = site.index, cta
        if key not in self._writers:
            mine = self._code.kinds[cta * self._kinds : (cta + 1) * self._kinds]
            held = (k.index for k in mine if site.place.has(k) and self.touch(site, k.index))
            self._writers[key] = sum(1 << index for index in held)
        return self._writers[key]

    def cover(self, site: Site, agent: int, where: Where, at: tuple[kir.MBarrier, int]) -> bool:
        """Whether threads of a kind access the bytes of a slot of a barrier that a buffer has."""
        spread = self.spreads[site.index]
        kernel, (barrier, slot) = self._code.kernel, at
        buffer = next(b for b in kernel.buffers if b.name == where[1])
        start = kernel.barrier_at(barrier) + 8 * slot - self._layout.spans[where][0]
        size = buffer.dtype.nbytes
        rows = range(max(start, 0) // size, -(-(start + 8) // size))
        if buffer.swizzle:  # any element of the slot may lie there
            rows = range(prod(buffer.shape))
        return spread is None or agent % self._kinds in self._overlaps.holding(spread, rows)


@lru_cache(maxsize=4)
def _overlaps(kinds: tuple[Threads, ...], threads: int) -> Overlaps:
    """Return how accesses by the kinds of threads of one CTA overlap, the same in every reading."""
    return Overlaps(kinds, threads)

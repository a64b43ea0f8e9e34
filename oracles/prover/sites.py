"""Every statement of a kernel where it stands: who executes it, and which elements they touch.

*Threads* that no `Role` and no `Elect` tells apart are one kind, followed as one.  Warps are alike
if they lie in the same roles and none of them leads one; in a warp, lane 0 stands apart from the
other lanes.

*Sites* are read off the Kernel itself, once for all of the prover.  Lets are inlined, `RANK` is
`BLOCK % cluster`, and each loop has an index of its own, so that an expression of a site is about
parameters, `BLOCK`, `GRID` and the indices of the loops around it.  A value that an `Assign` may
have changed is the variable `MOVING`: what depends on it is not known.

*Tiles*: two accesses under one layout touch each element from one thread.  Otherwise the owners of
every element are compared, and the least favourable pair of threads counts.  By `ldmatrix` and
`stmatrix` some lane of the warp that holds an element touches it: any lane may be the one.  A row
of `a` is read by the warpgroup that has it in the result, by all of its warps, each by its first
lane.

Notes
-----
Reachability keeps loops, branches and the variables of a thread as code (`reachability.code`), for
it executes them; it takes number, line and executors of a statement from here.

Source: PTX ISA, "wgmma.mma_async, register fragments", "mma.m16n8k16", "ldmatrix", "stmatrix".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from itertools import product
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover.arithmetic import UnsupportedError, linear, replace_tree

WARPS = kir.WARPGROUP // kir.WARP
"""Warps of a warpgroup."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of one CTA of the cluster that execute the same statements.

    `index` is their place in the list of all kinds of all CTAs of the cluster, `cta` the rank of
    their CTA; those that lead are lane 0 of each of their `warps`, else they are lanes 1 to 31.
    `role` is the name of the innermost role.
    """

    index: int
    cta: int
    warps: tuple[int, ...]
    leads: bool
    role: str

    @property
    def lanes(self) -> int:
        """How many of them a warp has."""
        return 1 if self.leads else kir.WARP - 1

    @property
    def count(self) -> int:
        """How many they are."""
        return self.lanes * len(self.warps)

    @property
    def alone(self) -> bool:
        """Whether they are one thread."""
        return self.count == 1

    @property
    def warpgroup(self) -> int | None:
        """The warpgroup that all of them are in; None if they are in several."""
        groups = {warp // WARPS for warp in self.warps}
        return groups.pop() if len(groups) == 1 else None

    def __str__(self) -> str:
        first, last = self.warps[0], self.warps[-1]
        lane = "lane 0" if self.leads else "lanes 1..31"
        warp = f"warp {first}" if first == last else f"warps {first}..{last}"
        cta = f" of CTA {self.cta}" if self.cta else ""
        return f"{lane} of {warp}{cta}" + (f" ({self.role})" if self.role else "")


@dataclass(frozen=True, slots=True)
class Place:
    """Who executes a statement: the warps of its innermost role, and the election around it."""

    first: int
    warps: int
    per: kir.Per | None = None

    def elect(self, per: kir.Per) -> Place:
        """Return the place inside an election; within another one, the narrower of the two."""
        order = (kir.Per.ROLE, kir.Per.WARPGROUP, kir.Per.WARP)
        return Place(self.first, self.warps, next(p for p in order if p in (per, self.per)))

    def has(self, kind: Threads) -> bool:
        """Whether threads of this kind execute it."""
        if not self.first <= kind.warps[0] < self.first + self.warps:
            return False
        match self.per:
            case None:
                return True
            case kir.Per.ROLE:
                return kind.leads and kind.warps[0] == self.first
            case kir.Per.WARP:
                return kind.leads
            case kir.Per.WARPGROUP:
                return kind.leads and (kind.warps[0] - self.first) % WARPS == 0

    @property
    def base(self) -> int:
        """The first thread of the role, from which layouts count."""
        return self.first * kir.WARP

    @property
    def threads(self) -> frozenset[int]:
        """The threads that execute it, counted in the CTA."""
        return _threads(self)


@lru_cache(maxsize=256)
def _threads(place: Place) -> frozenset[int]:
    step = {
        None: 1,
        kir.Per.WARP: kir.WARP,
        kir.Per.WARPGROUP: kir.WARPGROUP,
        kir.Per.ROLE: place.warps * kir.WARP,
    }[place.per]
    return frozenset(range(place.base, place.base + place.warps * kir.WARP, step))


def kinds(kernel: kir.Kernel, ctas: int = 0) -> tuple[Threads, ...]:
    """Return the kinds of threads of all CTAs of one cluster, or of so many CTAs."""
    many = kernel.threads // kir.WARP
    marks: list[list[str]] = [[] for _ in range(many)]
    names = [""] * many
    groups = any(isinstance(s, kir.Elect) and s.per is kir.Per.WARPGROUP for s in kernel.walk())

    def mark(role: kir.Role) -> None:
        """Note of every warp the roles it is in, and those it leads."""
        first, last = role.first_warp, min(role.first_warp + role.warps, many)
        tag = f"{first}+{role.warps}"
        if tag not in marks[first]:
            for warp in range(first, last):
                marks[warp].append(tag)
                names[warp] = role.name
            marks[first].append(f"first of {tag}")
            for warp in range(first, last, WARPS) if groups else ():
                marks[warp].append(f"leads in {tag}")
        for inner in _roles(role.body):
            mark(inner)

    mark(kir.Role("", 0, many, kernel.body))
    classes: dict[tuple[str, ...], list[int]] = {}
    for warp in range(many):
        classes.setdefault(tuple(marks[warp]), []).append(warp)
    out: list[Threads] = []
    for cta in range(ctas or kernel.cluster):
        for warps in sorted(classes.values()):
            for leads in (True, False):
                out.append(Threads(len(out), cta, tuple(warps), leads, names[warps[0]]))
    return tuple(out)


def _roles(body: tuple[kir.Stmt, ...]) -> Iterator[kir.Role]:
    for stmt in body:
        if isinstance(stmt, kir.Role):
            yield stmt
        else:
            for inner in kir.bodies(stmt):
                yield from _roles(inner)


MOVING = Var("a value that moves")
"""Stands for whatever a `Let` holds that some `Assign` changes."""
INDEX = Var("number of the CTAs that arrive at one integer")
AMONG_CTAS = kir.OnSemaphore

REGISTERS_ONLY = (
    kir.Compute | kir.Slice | kir.Unpack | kir.Reduce | kir.Scan | kir.Coordinate | kir.Mma
)
"""Statements that touch nothing but registers."""
_COPIES = kir.TmaLoad | kir.TmaStore | kir.TmaReduce | kir.CpAsync | kir.QueueCopy | kir.StAsync
_DATA = _COPIES | kir.Load | kir.Gather | kir.Store | kir.AtomicAdd | kir.Wgmma | REGISTERS_ONLY


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop around a site: an index of its own, its name in the kernel, and its end.

    `guards` are how many of the site's guards stand around it.
    """

    index: Var
    name: str
    stop: Expr
    guards: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One statement where it stands: its number in program order, its line, and who executes it.

    `loops` and `guards` (conditions under which it is executed) are outermost first; `lets` are the
    values of the variables that its expressions use.
    """

    index: int
    stmt: kir.Stmt
    line: int
    place: Place
    loops: tuple[Loop, ...]
    guards: tuple[Expr, ...]
    lets: Mapping[Var, Expr]

    @property
    def where(self) -> str:
        """Line number and text of the statement."""
        return f"line {self.line}: {line(self.stmt)}"

    @property
    def elected(self) -> bool:
        """Whether only elected threads execute it."""
        return self.place.per is not None

    def plain(self, expr: Expr) -> Expr:
        """Return an expression of the statement over parameters, BLOCK, GRID and own indices."""
        return substitute(expr, self.lets)

    def span(self, box: kir.Box) -> tuple[Expr, ...]:
        """Return where a box of the statement begins and is cut, in the same terms."""
        return tuple(self.plain(expr) for expr in (*box.origin, *box.limit))

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """Its guards, and the ends of its loops."""
        return (*self.guards, *(loop.stop for loop in self.loops))


def writes(stmt: kir.Stmt) -> kir.Box | None:
    """Return the box of global memory that a statement overwrites, if it does."""
    match stmt:
        case kir.TmaStore(box) | kir.Store(kir.Box() as box):
            return box
        case _:
            return None


def adds(stmt: kir.Stmt) -> kir.Box | None:
    """Return the box of global memory that a statement adds to, if it does."""
    match stmt:
        case kir.TmaReduce(box) | kir.AtomicAdd(box):
            return box
        case _:
            return None


def reads(stmt: kir.Stmt) -> kir.Box | None:
    """Return the box of global memory that a statement only reads, if it does."""
    match stmt:
        case kir.TmaLoad(_, box) | kir.CpAsync(_, box) | kir.QueueCopy(_, box):
            return box
        case kir.Load(_, kir.Box() as box):
            return box
        case _:
            return None


def touches(stmt: kir.Stmt) -> kir.Box | None:
    """Return the box of global memory that a statement accesses, if it does."""
    return writes(stmt) or adds(stmt) or reads(stmt)


def shared_tensors(kernel: kir.Kernel) -> frozenset[str]:
    """Return the tensors of which one access may have to be ordered after another.

    Those are the ones that the kernel both writes and reads, or adds to, and its workspaces.  That
    an output is written once is for `coverage` to show.
    """
    read: set[str] = set(kernel.workspaces)
    written: set[str] = set()
    for stmt in kernel.walk():
        box = touches(stmt)
        if box is not None:
            if writes(stmt) is None:
                read.add(box.tensor.name)
            if reads(stmt) is None:
                written.add(box.tensor.name)
    return frozenset(written & read)


def slots(stmt: kir.Stmt) -> tuple[kir.Slot, ...]:
    """Return the slots of shared buffers that a statement uses."""
    match stmt:
        case kir.Wgmma(_, a):
            return (*stmt.columns, *((a,) if isinstance(a, kir.Slot) else ()))
        case kir.Load(_, part) | kir.TmaStore(_, part) | kir.TmaReduce(_, part):
            return (part,) if isinstance(part, kir.Slot) else ()
        case kir.Store(part) | kir.TmaLoad(part) | kir.CpAsync(part) | kir.StAsync(part):
            return (part,) if isinstance(part, kir.Slot) else ()
        case kir.QueueCopy(part):
            return (part,)
        case _:
            return ()


def fragments(stmt: kir.Stmt) -> tuple[tuple[kir.Fragment, ...], tuple[kir.Fragment, ...]]:
    """Return the fragments that a statement reads, and the one it writes.

    That a product adds to what it writes is not said here.
    """
    match stmt:
        case kir.Load(dst) | kir.Coordinate(dst):
            return (), (dst,)
        case kir.Store(_, src) | kir.AtomicAdd(_, src) | kir.StAsync(_, src):
            return (src,), ()
        case kir.Slice(dst, src) | kir.Unpack(dst, src) | kir.Reduce(dst, src):
            return (src,), (dst,)
        case kir.Scan(dst, src, _, start):
            return (src, start), (dst,)
        case kir.Gather(dst, _, index):
            return index, (dst,)
        case kir.Compute(dst, _, args):
            return tuple(arg for arg in args if isinstance(arg, kir.Fragment)), (dst,)
        case kir.Wgmma(acc, a):
            return (a,) if isinstance(a, kir.Fragment) else (), (acc,)
        case kir.Mma(acc, a, b):
            return (a, b), (acc,)
        case _:
            return (), ()


def mbarrier(stmt: kir.Stmt) -> kir.MBarrier | None:
    """Return the mbarrier that a statement uses, if any."""
    found = getattr(stmt, "barrier", None)
    return found if isinstance(found, kir.MBarrier) else None


def says(stmt: kir.Stmt) -> tuple[kir.MapSlot, tuple[Expr, ...]] | None:
    """Return the map that a statement writes or copies through, and its limit, if it does."""
    match stmt:
        case kir.TensorMapReplace(ref, limit):
            return ref, limit
        case kir.TmaLoad(_, box, through=kir.MapSlot() as ref):
            return ref, box.limit
        case kir.TmaStore(box, _, kir.MapSlot() as ref):
            return ref, box.limit
        case kir.TmaReduce(box, _, kir.MapSlot() as ref):
            return ref, box.limit
        case _:
            return None


def controls(stmt: kir.Stmt) -> dict[str, Expr]:
    """Return the numbers that decide what a statement does: slots, parities, ranks."""
    used, told = slots(stmt), says(stmt)
    out: dict[str, Expr] = {"slot": used[0].index} if used else {}
    out |= {"map": told[0].index} if told is not None else {}
    match stmt:
        case kir.TmaLoad(_, _, _, slot, multicast):
            out["bar"] = slot
            if multicast is not None:
                out["cast"] = multicast
        case kir.StAsync(dst, _, _, slot):
            out["bar"] = slot
            if dst.cta is not None:
                out["cta"] = dst.cta
        case kir.Wgmma(_, a, _, accumulate):
            out["more"] = accumulate
            if isinstance(a, kir.Slot):
                out["a"] = a.index
        case kir.MBarrierArrive(_, slot, _, cta) if cta is not None:
            out |= {"bar": slot, "cta": cta}
        case kir.MBarrierWaitParity(_, slot, parity):
            out |= {"bar": slot, "parity": parity}
        case kir.TensorMapAcquire(_, index):
            out["map"] = index
        case _ if isinstance(stmt, kir.OnPhase):
            out["bar"] = stmt.slot
        case kir.BlockSerializeWait(_, _, turn) | kir.BlockSerializeRelease(_, _, turn):
            out["turn"] = turn
        case kir.GridSync(_, _, ctas) | kir.LastArriving(_, _, ctas):
            out["ctas"] = ctas
        case _ if used and used[0].cta is not None:
            out["cta"] = used[0].cta
        case _:
            pass
    return out


def outcomes(kernel: kir.Kernel) -> tuple[Var, ...]:
    """Return what is 1 in the last-arriving CTA, for every `LastArriving`."""
    many = sum(isinstance(stmt, kir.LastArriving) for stmt in kernel.walk())
    return tuple(Var(f"the last of election {n}") for n in range(many))


@dataclass(frozen=True, slots=True)
class _Around:
    place: Place
    loops: tuple[Loop, ...] = ()
    guards: tuple[Expr, ...] = ()


class _Reader:
    def __init__(self, kernel: kir.Kernel, followed: frozenset[Var]) -> None:
        self.sites: list[Site] = []
        self.lines = [number for number, _ in numbered(kernel)]
        self.kernel = kernel
        self.moving = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Assign)}
        self.followed = followed & self.moving
        self.loops = 0

    def body(self, body: tuple[kir.Stmt, ...], at: _Around, outer: Mapping[Var, Expr]) -> None:
        lets = dict(outer)
        here: Mapping[Var, Expr] = dict(lets)
        for stmt in body:
            number = len(self.sites)
            site = Site(number, stmt, self.lines[number], at.place, at.loops, at.guards, here)
            self.sites.append(site)
            match stmt:
                case kir.Let(var, value) | kir.Assign(var, value):
                    known = var not in self.moving or var in self.followed
                    lets[var] = substitute(value, lets) if known else MOVING
                    here = dict(lets)
                case kir.ForLoop(index, stop, inner):
                    self.loops += 1
                    own = Var(f"{index.name} {self.loops}")
                    loop = Loop(own, index.name, substitute(stop, lets), len(at.guards))
                    rises: dict[Var, Expr | None] = {}
                    for var in _assigned(inner):
                        known = var in self.followed and lets.get(var, MOVING) != MOVING
                        rises[var] = _rise(inner, var, lets) if known else None
                    for var, more in rises.items():
                        lets[var] = MOVING if more is None else lets[var] + own * more
                    self.body(inner, replace(at, loops=(*at.loops, loop)), {**lets, index: own})
                    for var, more in rises.items():
                        ended = {own: fold(Kind.MAX, loop.stop, 0)}
                        lets[var] = MOVING if more is None else substitute(lets[var], ended)
                    here = dict(lets)
                case kir.IfThenElse(condition, then, orelse):
                    test = substitute(condition, lets)
                    self._branch(then, at, lets, test)
                    self._branch(orelse, at, lets, eq(test, 0))
                case kir.Role(_, first, warps, inner):
                    self.body(inner, replace(at, place=Place(first, warps)), lets)
                case kir.Elect(per, inner):
                    self.body(inner, replace(at, place=at.place.elect(per)), lets)
                case kir.LastArriving():
                    self._last(stmt, at, lets)
                case _:
                    pass
            if not isinstance(stmt, kir.ForLoop | kir.Assign):
                # other threads, or another branch, may have other values
                inside = {var for inner in kir.bodies(stmt) for var in _assigned(inner)}
                lets |= dict.fromkeys(inside, MOVING)
                here = dict(lets) if inside else here

    def _last(self, stmt: kir.LastArriving, at: _Around, lets: Mapping[Var, Expr]) -> None:
        """Let one CTA of those that arrive at an integer stand for the last-arriving one.

        Where a box lies elsewhere for each of them, they are all taken to access it: nobody knows
        which one does, and so neither which part of an output is written.
        """
        index, ctas = substitute(stmt.index, lets), substitute(stmt.ctas, lets)
        one = eq(place_among(index, ctas) + 1, ctas)
        first = len(self.sites)
        self._branch(stmt.body, at, lets, one)
        for number, site in enumerate(self.sites[first:], first):
            box = touches(site.stmt)
            if box is None:
                continue
            apart = (e if index == 0 else replace_tree(e, index, INDEX) for e in site.span(box))
            if any(kir.BLOCK in variables(e) for e in apart):
                known = tuple(guard for guard in site.guards if guard != one)
                open_ = (eq(MOVING, 1),) if box.tensor.name in self.kernel.outputs else ()
                self.sites[number] = replace(site, guards=(*known, *open_))

    def _branch(
        self, body: tuple[kir.Stmt, ...], at: _Around, lets: Mapping[Var, Expr], test: Expr
    ) -> None:
        if not isinstance(test, int) or not test:
            at = replace(at, guards=(*at.guards, test))
        self.body(body, at, lets)


def _placing(kernel: kir.Kernel) -> frozenset[Var]:
    """Return the variables that boxes, ends of loops and conditions depend on."""
    found: set[Var] = set()
    lets: list[tuple[Var, Expr]] = []
    for stmt in kernel.walk():
        box = touches(stmt)
        exprs: tuple[Expr, ...] = () if box is None else (*box.origin, *box.limit)
        if box is not None and box.index is not None:
            exprs = (*exprs, *box.index.src.origin, *box.index.src.limit)
        match stmt:
            case kir.ForLoop(_, stop):
                exprs = (stop,)
            case kir.IfThenElse(test):
                exprs = (test,)
            case kir.Let(var, value) | kir.Assign(var, value):
                lets.append((var, value))
            case _:
                pass
        found.update(*map(variables, exprs))
    for _ in lets:
        found.update(*(variables(value) for var, value in lets if var in found))
    return frozenset(found)


def _assigned(body: tuple[kir.Stmt, ...]) -> list[Var]:
    """Return the variables that a body assigns, each once."""
    return list(dict.fromkeys(s.var for s in kir.walk(body) if isinstance(s, kir.Assign)))


def _rise(body: tuple[kir.Stmt, ...], var: Var, lets: Mapping[Var, Expr]) -> Expr | None:
    """Return by how much a body raises a variable, the same each time; None if not known."""
    moved = {s.var for s in kir.walk(body) if isinstance(s, kir.Assign | kir.Let)}
    moved |= {s.index for s in kir.walk(body) if isinstance(s, kir.ForLoop)}
    total: Expr = 0
    for stmt in body:
        more: Expr | None = 0
        match stmt:
            case kir.Assign(to, value) if to == var:
                constant, parts = linear(value)
                more = None
                if parts.pop(var, 0) == 1:
                    more = sum((n * part for part, n in parts.items()), start=constant)
            case kir.ForLoop(_, stop, inner) if var in _assigned(inner):
                once = _rise(inner, var, lets)
                more = None if once is None else once * fold(Kind.MAX, stop, 0)
            case _ if any(var in _assigned(inner) for inner in kir.bodies(stmt)):
                more = None
            case _:
                pass
        if more is None or variables(more) & moved:
            return None
        total = total + substitute(more, lets)
    return None if MOVING in variables(total) else total


def place_among(index: Expr, ctas: Expr) -> Expr:
    """Return the number of a CTA among those that arrive at an integer."""
    match index:
        case Op(Kind.MOD, kir.BLOCK, others):
            return kir.BLOCK // others
        case _:
            return kir.BLOCK % ctas


def every(kernel: kir.Kernel) -> tuple[Site, ...]:
    """Return every statement, in program order; one that never runs has a guard that is 0."""
    return _sites(kernel, frozenset())


def read(kernel: kir.Kernel) -> tuple[Site, ...]:
    """Return every data statement that may run, in program order.

    A position that places boxes, and goes on by the same in every iteration, is a sum here.
    """
    found = _sites(kernel, _placing(kernel))
    return tuple(s for s in found if isinstance(s.stmt, _DATA) and 0 not in s.guards)


_READ: dict[tuple[int, frozenset[Var]], tuple[kir.Kernel, tuple[Site, ...]]] = {}
"""What was read last, by object: a statement of an equal kernel is another one."""
KEPT = 16


def _sites(kernel: kir.Kernel, followed: frozenset[Var]) -> tuple[Site, ...]:
    key = id(kernel), followed
    if key not in _READ:
        reader = _Reader(kernel, followed)
        rank = fold(Kind.MOD, kir.BLOCK, kernel.cluster)
        whole = Place(0, kernel.threads // kir.WARP)
        reader.body(kernel.body, _Around(whole), {kir.RANK: rank})
        if len(_READ) >= KEPT:
            _READ.pop(next(iter(_READ)))
        _READ[key] = kernel, tuple(reader.sites)
    return _READ[key][1]


def facts(kernel: kir.Kernel) -> tuple[Expr, ...]:
    """Return what holds in every launch, for every CTA; variables are >= 0 anyway."""
    whole: tuple[Expr, ...] = (kir.BLOCK < kir.GRID,)
    if kernel.cluster > 1:
        whole = (*whole, eq(kir.GRID % kernel.cluster, 0))
    return (*whole, *kernel.requires)


def dealt(kernel: kir.Kernel) -> Iterator[Expr]:
    """Yield what `BLOCK < GRID` says of quotients and remainders, where the grid is a product."""
    for condition in kernel.requires:
        match condition:
            case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)):
                for part, rest in ((a, b), (b, a)):
                    yield fold(Kind.LE, 1, part)
                    yield kir.BLOCK % part < part
                    yield kir.BLOCK // part < rest
            case Op(Kind.EQ, Op(Kind.MOD, kir.GRID, part), 0):
                yield kir.BLOCK % part < part
            case _:
                pass


def positive(kernel: kir.Kernel) -> frozenset[Expr]:
    """Return what is at least 1 in any launch, as far as that is required or makes up the grid."""
    found: set[Expr] = set()
    for condition in kernel.requires:
        match condition:
            case Op(Kind.LE, 1, many) | Op(Kind.LT, 0, many):
                found.add(many)
            case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)):
                found |= {a, b}
            case Op(Kind.EQ, Op(Kind.MOD, kir.GRID, of), 0):
                found.add(kir.GRID // of)
            case _:
                pass
    return frozenset(found)


def fixed_grid(kernel: kir.Kernel) -> Expr | None:
    """Return what `Kernel.requires` says the number of CTAs is, if it says so."""
    for condition in kernel.requires:
        match condition:
            case Op(Kind.EQ, a, b) if kir.GRID in (a, b):
                number = b if a == kir.GRID else a
                if kir.GRID not in variables(number):
                    return number
            case _:
                pass
    return None


def unknown(exprs: Iterable[Expr]) -> bool:
    """Whether some expression depends on a value that moves."""
    return any(MOVING in variables(expr) for expr in exprs)


Owners = NDArray[np.int64]
Storage = Mapping[str, str]
"""The one name by which buffers of one shape in one place go."""


class Overlap(IntEnum):
    """How two accesses may touch one byte: by one thread, within a warp, by any two threads."""

    NEVER = -1
    THREAD = 0
    WARP = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Spread:
    """How a statement spreads a tile of a buffer over threads; `base` is their first.

    Buffers of one shape in one place go by one name: under one layout they are one to threads.
    `matrix` is whether lanes of a warp are not distinguished; `operand` whether a wgmma reads it as
    its `a`, for a result of this layout, and `turned` whether as (K, M).  `nbytes` is the size of
    an element where these lie one behind the other in shared memory, else 0.  `first` is whether of
    threads that hold an element in `Deal.ROWS` the first alone touches it.  Where it is `crossed`,
    the last two axes of the layout's tile are those of the slot in the other order.
    """

    buffer: str
    layout: kir.Layout
    shape: tuple[int, ...]
    base: int
    matrix: bool = False
    operand: bool = False
    turned: bool = False
    nbytes: int = 0
    first: bool = False
    crossed: bool = False


def storage(buffers: Iterable[kir.Buffer]) -> Storage:
    """Return one name for all buffers whose elements lie in the same places."""
    first: dict[object, str] = {}
    return {
        b.name: first.setdefault((b.offset, b.dtype, b.shape, b.swizzle, b.pitch), b.name)
        for b in buffers
    }


def ordinary(site: Site, storage: Storage) -> Spread | None:
    """Return how an ordinary or asynchronous access by threads spreads its tile, if it is one."""
    matrix = crossed = False
    if isinstance(site.stmt, kir.Load | kir.Store):
        matrix, crossed = site.stmt.matrix, site.stmt.transposed
    match site.stmt:
        case kir.Load(fragment, tile) | kir.Store(tile, fragment) | kir.AtomicAdd(tile, fragment):
            layout = fragment.layout
        case kir.StAsync(tile, fragment):
            layout = fragment.layout
        case kir.CpAsync(tile, _, layout):
            pass
        case _:
            return None
    if isinstance(tile, kir.Slot):
        name, shape = storage[tile.buffer.name], tile.buffer.shape
        nbytes = 0 if tile.buffer.swizzle else tile.buffer.dtype.nbytes
    else:
        name, shape, nbytes = tile.tensor.name, tile.shape, 0
    stores = kir.Store | kir.AtomicAdd | kir.StAsync
    first = layout.deal is kir.Deal.ROWS and isinstance(site.stmt, stores)
    # What does not fit is read as it lies, and refuted as part of the coverage.
    crossed = crossed and len(shape) > 1 and layout.shape == (*shape[:-2], *shape[:-3:-1])
    base = site.place.base
    return Spread(name, layout, shape, base, matrix, nbytes=nbytes, first=first, crossed=crossed)


def operand(site: Site, storage: Storage) -> tuple[str, Spread] | None:
    """Return the `a` of a wgmma, and how warpgroups read their rows; None where each reads all."""
    match site.stmt:
        case kir.Wgmma(acc, kir.Slot(a)) if all(a != b.buffer for b in site.stmt.columns):
            layout, turned = acc.layout, site.stmt.a_transposed
            whole = layout.threads == site.place.warps * kir.WARP
            fits = len(a.shape) > 1 and a.shape[-1 if turned else -2] == prod(layout.shape[:-1])
            if not (whole and fits) or layout.threads % kir.WARPGROUP:
                return None
            first, name = site.place.base, storage[a.name]
            return a.name, Spread(name, layout, a.shape, first, operand=True, turned=turned)
        case _:
            return None


def each_by_one(found: Mapping[tuple[int, int], Overlap]) -> dict[tuple[int, int], Overlap]:
    """Return how executions of one matrix access overlap.

    In one execution no two lanes touch an element, and kinds of lanes are compared there first.  Of
    one kind it is always an earlier execution, which a join of the warp orders for the other kind
    too.
    """
    return {(x, y): how for (x, y), how in found.items() if x == y or how is not Overlap.WARP}


def owners(spread: Spread) -> Owners:
    """Return the threads of each element of a slot, a row per element, padded by repetition."""
    tile, shape = spread.layout.shape, spread.shape
    if spread.operand:
        return _readers(spread)
    if len(tile) != len(shape):
        raise UnsupportedError(f"{spread.buffer} and its fragment differ in rank")
    element = np.arange(prod(tile)).reshape(tile)
    if spread.crossed:
        element, tile = np.swapaxes(element, -1, -2), shape
    held = _held(spread.layout, element)
    if spread.first:
        held = held[..., :1]
    place = np.zeros(tile, dtype=np.int64)
    pitch = 1
    for axis in range(len(tile) - 1, -1, -1):
        if shape[axis] > 1:
            along = np.arange(tile[axis]).reshape(
                [-1 if i == axis else 1 for i in range(len(tile))]
            )
            place = place + along * pitch
        pitch *= shape[axis]
    rows = prod(shape)
    if rows == prod(tile):
        return spread.base + held.reshape(rows, -1)
    flat, who = place.reshape(-1), held.reshape(len(element.reshape(-1)), -1)
    sets: list[set[int]] = [set() for _ in range(rows)]
    for at, threads in zip(flat.tolist(), who.tolist(), strict=True):
        sets[at].update(threads)
    most = max(1, *(len(s) for s in sets))
    padded = [[*s, *([next(iter(s))] * (most - len(s)))] if s else [-1] * most for s in sets]
    return np.asarray(padded, dtype=np.int64) + spread.base


def _readers(spread: Spread) -> Owners:
    element = np.arange(prod(spread.shape))
    last = spread.shape[-1]
    row = element % last if spread.turned else element // last
    group = row // 16 % (spread.layout.threads // kir.WARP) // 4
    first: Owners = spread.base + group * kir.WARPGROUP
    return first[:, None] + np.arange(4) * kir.WARP


def _held(layout: kir.Layout, element: Owners) -> Owners:
    if layout.folded > 1:  # each where the first of its neighbours lies
        columns = layout.shape[-1] * layout.folded
        wide = replace(layout, shape=(*layout.shape[:-1], columns), folded=1)
        return _held(wide, element * layout.folded)
    match layout.deal:
        case kir.Deal.ROUND:
            return element // layout.vector % layout.threads
        case kir.Deal.ROWS:
            return _sharing(layout, element)
        case kir.Deal.STRIPS | kir.Deal.EACH_WARP:
            columns = layout.shape[-1]
            row, column = element // columns, element % columns
            lane = row % 8 * 4 + column // layout.vector % 4
            warps = layout.threads // kir.WARP
            if layout.deal is kir.Deal.STRIPS:
                return row // 16 % warps * kir.WARP + lane
            return lane[..., None] + np.arange(warps) * kir.WARP


def _sharing(layout: kir.Layout, element: Owners) -> Owners:
    """Return the threads that hold elements of rows which neighbours share, the first one first."""
    columns, across = layout.shape[-1], layout.across
    row, column = element // columns, element % columns
    groups = layout.threads // across
    parts = across // layout.alike
    place = column // layout.vector % parts * layout.alike
    same = np.arange(layout.alike)
    if prod(layout.shape) > columns:
        return (row % groups * across + place)[..., None] + same
    every = (np.arange(groups)[:, None] * across + same).reshape(-1)
    return place[..., None] + every


def _leaders(spread: Spread) -> Owners:
    """Return the owners of each element; one for its warp where lanes are not distinguished."""
    found = owners(spread)
    return np.where(found < 0, found, found // kir.WARP * kir.WARP) if spread.matrix else found


def _beside(a: Spread, b: Spread, apart: int) -> tuple[Owners, Owners]:
    """Return the owners of the bytes that slots have in common which begin so far apart."""
    unit = gcd(a.nbytes, b.nbytes, apart)
    left, right = (np.repeat(_leaders(s), s.nbytes // unit, axis=0) for s in (a, b))
    start = apart // unit
    low, high = max(0, start), min(len(left), start + len(right))
    return left[low:high], right[low - start : high - start]


def _lanes(spread: Spread, thread: int) -> range:
    """Return the threads for which an owner stands."""
    return range(thread, thread + (kir.WARP if spread.matrix else 1))


class Overlaps:
    """How ordinary accesses overlap, worked out once for each pair of spreads."""

    def __init__(self, kinds: tuple[Threads, ...], threads: int) -> None:
        self.of = np.zeros(threads, dtype=np.int64)
        for kind in kinds:
            if kind.cta == 0:
                for warp in kind.warps:
                    start = warp * kir.WARP
                    lanes = slice(start, start + 1) if kind.leads else slice(start + 1, start + 32)
                    self.of[lanes] = kind.index
        self._kinds = kinds
        self._known: dict[tuple[Spread, Spread, int], dict[tuple[int, int], Overlap]] = {}
        self._touching: dict[Spread, frozenset[int]] = {}

    def touching(self, spread: Spread) -> frozenset[int]:
        """Return the kinds of threads (of CTA 0) that hold a part of the tile."""
        if spread not in self._touching:
            self._touching[spread] = self.holding(spread, range(prod(spread.shape)))
        return self._touching[spread]

    def holding(self, spread: Spread, rows: range) -> frozenset[int]:
        """Return the kinds of threads (of CTA 0) that hold some elements of a slot."""
        found = np.unique(_leaders(spread)[rows.start : rows.stop])
        held = (t for one in found[found >= 0].tolist() for t in _lanes(spread, one))
        return frozenset(int(self.of[t]) for t in held)

    def count(self, spread: Spread, kind: int) -> int:
        """Return how many elements threads of a kind (of CTA 0) hold, where each has one thread."""
        return int(np.count_nonzero(self.of[owners(spread)[:, 0]] == kind))

    def collide(self, spread: Spread, kind: int) -> bool:
        """Whether threads of one kind touch an element together in one execution."""
        once = replace(spread, matrix=False)
        return self.between(once, once).get((kind, kind), Overlap.NEVER) > Overlap.THREAD

    def between(self, a: Spread, b: Spread, apart: int = 0) -> dict[tuple[int, int], Overlap]:
        """Return how kinds of threads of CTA 0 overlap: (of `a`, of `b`) to the worst case.

        Slots of different buffers begin so many bytes `apart`.
        """
        if (a, b, apart) in self._known:
            return self._known[a, b, apart]
        found: dict[tuple[int, int], Overlap] = {}
        alike = a.buffer == b.buffer and a.shape == b.shape
        if not alike and not (a.nbytes and b.nbytes):
            for x in self.touching(a):
                for y in self.touching(b):
                    found[x, y] = self._anywhere(x, y)
        elif a == b and self._private(a):
            found = {(x, x): Overlap.THREAD for x in self.touching(a)}
        else:
            left, right = (_leaders(a), _leaders(b)) if alike else _beside(a, b, apart)
            many = len(self.of)
            both = (left[:, :, None] >= 0) & (right[:, None, :] >= 0)
            pairs = np.unique((left[:, :, None] * many + right[:, None, :])[both])
            for one, two in zip((pairs // many).tolist(), (pairs % many).tolist(), strict=True):
                for x, y in product(_lanes(a, one), _lanes(b, two)):
                    how = (
                        Overlap.ANY
                        if x // 32 != y // 32
                        else Overlap.WARP
                        if x != y
                        else Overlap.THREAD
                    )
                    key = int(self.of[x]), int(self.of[y])
                    found[key] = max(found.get(key, how), how)
        self._known[a, b, apart] = found
        return found

    def _anywhere(self, x: int, y: int) -> Overlap:
        """Return how two kinds overlap whose threads may touch any element."""
        if len({*self._kinds[x].warps, *self._kinds[y].warps}) > 1:
            return Overlap.ANY
        return Overlap.THREAD if x == y and self._kinds[x].alone else Overlap.WARP

    @staticmethod
    def _private(spread: Spread) -> bool:
        """Whether each element has one thread, the same one in every execution."""
        layout = spread.layout
        several = layout.deal is kir.Deal.EACH_WARP
        if layout.deal is kir.Deal.ROWS and not spread.first:
            several = layout.alike > 1 or (
                prod(layout.shape) == layout.shape[-1] and layout.threads > layout.across
            )
        one = (spread.crossed or layout.shape == spread.shape) and not several
        return one and not (spread.matrix or spread.operand)

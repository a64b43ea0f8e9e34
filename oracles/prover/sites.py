"""Every statement of a kernel with where it stands: loops, guards, and who executes it.

Read off the Kernel itself, once for all of the prover.  Lets are inlined, `RANK` is
`BLOCK % cluster`, and each loop has an index of its own, so that an expression of a site speaks of
parameters, `BLOCK`, `GRID` and the indices of the loops around it.  A value that an `Assign` may
have changed is the variable `MOVING`: what depends on it is not known.

Notes
-----
The engines need two things of it that no single form serves.  Reachability keeps loops, branches
and the variables of a thread as code (`reachability.code`), for it executes them; it takes
number, line and executors of a statement from here.  The invariants want every statement once for
each way to come to it (`invariants.trace`): loops of constant length written out, the one of
unknown length by its iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover.arithmetic import replace_tree
from oracles.prover.threads import Place

MOVING = Var("a value that moves")
"""Stands for whatever a `Let` holds that some `Assign` changes."""
INDEX = Var("number of the CTAs that come to one integer")
AMONG_CTAS = kir.BlockSerializeWait | kir.BlockSerializeRelease | kir.GridSync | kir.LastArriving
"""Statements by which CTAs that share a semaphore take turns or meet."""

_DATA = (
    kir.TmaLoad
    | kir.TmaStore
    | kir.TmaReduce
    | kir.CpAsync
    | kir.Load
    | kir.Store
    | kir.AtomicAdd
    | kir.Wgmma
    | kir.Mma
    | kir.Compute
    | kir.Slice
    | kir.Reduce
    | kir.Coordinate
)


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
    """One statement where it stands.

    Parameters
    ----------
    index : int
        Its number in program order.
    stmt : Stmt
        The statement.
    line : int
        Its line in the kernel's text.
    place : Place
        Who executes it.
    loops : tuple of Loop
        The loops around it, outermost first.
    guards : tuple of Expr
        Conditions under which it is executed, outermost first.
    lets : mapping
        Values of the variables that its expressions use.
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
        case kir.TmaLoad(_, box) | kir.Load(_, kir.Box() as box) | kir.CpAsync(_, box):
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
        case kir.Store(part) | kir.TmaLoad(part) | kir.CpAsync(part):
            return (part,) if isinstance(part, kir.Slot) else ()
        case _:
            return ()


def mbarrier(stmt: kir.Stmt) -> kir.MBarrier | None:
    """Return the mbarrier that a statement uses, if any."""
    found = getattr(stmt, "barrier", None)
    return found if isinstance(found, kir.MBarrier) else None


def controls(stmt: kir.Stmt) -> dict[str, Expr]:
    """Return the numbers that decide what a statement does: slots, parities, ranks, turns."""
    used = slots(stmt)
    out: dict[str, Expr] = {"slot": used[0].index} if used else {}
    match stmt:
        case kir.TmaLoad(_, _, _, slot, multicast):
            out["bar"] = slot
            if multicast is not None:
                out["cast"] = multicast
        case kir.Wgmma(_, a, _, accumulate):
            out["more"] = accumulate
            if isinstance(a, kir.Slot):
                out["a"] = a.index
        case kir.MBarrierArrive(_, slot, _, cta):
            out["bar"] = slot
            if cta is not None:
                out["cta"] = cta
        case kir.MBarrierWaitParity(_, slot, parity):
            out |= {"bar": slot, "parity": parity}
        case (
            kir.MBarrierArriveExpectTx(_, slot)
            | kir.MBarrierExpectTx(_, slot)
            | kir.CpAsyncMBarrierArrive(_, slot)
        ):
            out["bar"] = slot
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
    """Return what is 1 in the CTA that comes last, for every `LastArriving`."""
    many = sum(isinstance(stmt, kir.LastArriving) for stmt in kernel.walk())
    return tuple(Var(f"the last of election {n}") for n in range(many))


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a body."""

    place: Place
    loops: tuple[Loop, ...] = ()
    guards: tuple[Expr, ...] = ()


class _Reader:
    def __init__(self, kernel: kir.Kernel) -> None:
        self.sites: list[Site] = []
        self.lines = [number for number, _ in numbered(kernel)]
        self.kernel = kernel
        self.moving = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Assign)}
        self.loops = 0

    def body(self, body: tuple[kir.Stmt, ...], at: _Around, outer: Mapping[Var, Expr]) -> None:
        lets = dict(outer)
        here: Mapping[Var, Expr] = dict(lets)
        for stmt in body:
            number = len(self.sites)
            site = Site(number, stmt, self.lines[number], at.place, at.loops, at.guards, here)
            self.sites.append(site)
            match stmt:
                case kir.Let(var, value):
                    lets[var] = MOVING if var in self.moving else substitute(value, lets)
                    here = dict(lets)
                case kir.ForLoop(index, stop, inner):
                    self.loops += 1
                    own = Var(f"{index.name} {self.loops}")
                    loop = Loop(own, index.name, substitute(stop, lets), len(at.guards))
                    self.body(inner, replace(at, loops=(*at.loops, loop)), {**lets, index: own})
                case kir.IfThenElse(condition, then, orelse):
                    test = substitute(condition, lets)
                    self._branch(then, at, lets, test)
                    self._branch(orelse, at, lets, negated(test))
                case kir.Role(_, first, warps, inner):
                    self.body(inner, replace(at, place=Place(first, warps)), lets)
                case kir.Elect(per, inner):
                    self.body(inner, replace(at, place=at.place.elect(per)), lets)
                case kir.LastArriving():
                    self._last(stmt, at, lets)
                case _:
                    pass

    def _last(self, stmt: kir.LastArriving, at: _Around, lets: Mapping[Var, Expr]) -> None:
        """Let one CTA of those that come to an integer stand for the last-arriving one.

        Where a box lies elsewhere for each of them, they are all taken to access it: nobody knows
        which one does, and so neither which part of an output is written.
        """
        index, ctas = substitute(stmt.index, lets), substitute(stmt.ctas, lets)
        one = eq(place_among(index, ctas) + 1, ctas)
        first = len(self.sites)
        self._branch(stmt.body, at, lets, one)
        for number, site in enumerate(self.sites[first:], first):
            box = touches(site.stmt)
            exprs = [] if box is None else [site.plain(e) for e in (*box.origin, *box.limit)]
            apart = (e if index == 0 else replace_tree(e, index, INDEX) for e in exprs)
            if box is not None and any(kir.BLOCK in variables(e) for e in apart):
                known = tuple(guard for guard in site.guards if guard != one)
                open_ = (eq(MOVING, 1),) if box.tensor.name in self.kernel.outputs else ()
                self.sites[number] = replace(site, guards=(*known, *open_))

    def _branch(
        self, body: tuple[kir.Stmt, ...], at: _Around, lets: Mapping[Var, Expr], test: Expr
    ) -> None:
        if not isinstance(test, int) or not test:
            at = replace(at, guards=(*at.guards, test))
        self.body(body, at, lets)


def place_among(index: Expr, ctas: Expr) -> Expr:
    """Return the number of a CTA among those that come to an integer."""
    match index:
        case Op(Kind.MOD, kir.BLOCK, others):
            return kir.BLOCK // others
        case _:
            return kir.BLOCK % ctas


def negated(test: Expr) -> Expr:
    """Return the opposite condition."""
    return eq(test, 0)


def every(kernel: kir.Kernel) -> tuple[Site, ...]:
    """Return every statement, in program order; one that never runs has a guard that is 0."""
    reader = _Reader(kernel)
    rank = fold(Kind.MOD, kir.BLOCK, kernel.cluster)
    whole = Place(0, kernel.threads // kir.WARP)
    reader.body(kernel.body, _Around(whole), {kir.RANK: rank})
    return tuple(reader.sites)


def read(kernel: kir.Kernel) -> tuple[Site, ...]:
    """Return every data statement that may run, in program order."""
    return tuple(s for s in every(kernel) if isinstance(s.stmt, _DATA) and 0 not in s.guards)


def facts(kernel: kir.Kernel) -> tuple[Expr, ...]:
    """Return what holds in every launch, for every CTA; variables are >= 0 anyway."""
    whole: tuple[Expr, ...] = (kir.BLOCK < kir.GRID,)
    if kernel.cluster > 1:
        whole = (*whole, eq(kir.GRID % kernel.cluster, 0))
    return (*whole, *kernel.requires)


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


def unknown(exprs: tuple[Expr, ...]) -> bool:
    """Whether some expression depends on a value that moves."""
    return any(MOVING in variables(expr) for expr in exprs)

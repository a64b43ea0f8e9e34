"""Every access of a kernel's tiles with where it stands: loops, guards, and who executes it.

Read off the Kernel itself.  Lets are inlined, `RANK` is `BLOCK % cluster`, and each loop has an
index of its own, so that an expression of a site speaks of parameters, `BLOCK`, `GRID` and the
indices of the loops around it.  A value that an `Assign` may have changed is the variable
`MOVING`: what depends on it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover.arithmetic import replace_tree

MOVING = Var("a value that moves")
"""Stands for whatever a `Let` holds that some `Assign` changes."""
INDEX = Var("number of the CTAs that come to one integer")
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
class Turn:
    """A loop around a site: an index of its own, its name in the kernel, and its end."""

    index: Var
    name: str
    stop: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One data statement where it stands.

    Parameters
    ----------
    stmt : Stmt
        The statement.
    line : int
        Its line in the kernel's text.
    loops : tuple of Turn
        The loops around it, outermost first.
    guards : tuple of Expr
        Conditions under which it is executed.
    threads : frozenset of int
        The threads of the CTA that execute it.
    base : int
        First thread of the innermost role, from which layouts count.
    lets : mapping
        Values of the variables that its expressions use.
    """

    stmt: kir.Stmt
    line: int
    loops: tuple[Turn, ...]
    guards: tuple[Expr, ...]
    threads: frozenset[int]
    base: int
    lets: Mapping[Var, Expr]

    @property
    def where(self) -> str:
        """Line number and text of the statement."""
        return f"line {self.line}: {line(self.stmt)}"

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
    read: set[str] = set()
    written: set[str] = set()
    for stmt in kernel.walk():
        box = touches(stmt)
        if box is None:
            continue
        name = box.tensor.name
        match stmt:
            case kir.Load() | kir.TmaLoad() | kir.CpAsync():
                read.add(name)
            case kir.TmaReduce() | kir.AtomicAdd():
                read.add(name)
                written.add(name)
            case _:
                written.add(name)
    return frozenset(written & (read | set(kernel.workspaces)))


@dataclass(frozen=True, slots=True)
class _Place:
    loops: tuple[Turn, ...]
    guards: tuple[Expr, ...]
    threads: frozenset[int]
    role: frozenset[int]
    base: int


class _Reader:
    def __init__(self, kernel: kir.Kernel) -> None:
        self.sites: list[Site] = []
        self.kernel = kernel
        self.lines = {id(stmt): number for number, stmt in numbered(kernel)}
        self.moving = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Assign)}
        self.loops = 0

    def body(self, body: tuple[kir.Stmt, ...], place: _Place, outer: Mapping[Var, Expr]) -> None:
        lets = dict(outer)
        for stmt in body:
            match stmt:
                case kir.Let(var, value):
                    lets[var] = MOVING if var in self.moving else substitute(value, lets)
                case kir.ForLoop(index, stop, inner):
                    self.loops += 1
                    own = Var(f"{index.name} {self.loops}")
                    turn = Turn(own, index.name, substitute(stop, lets))
                    inside = replace(place, loops=(*place.loops, turn))
                    self.body(inner, inside, {**lets, index: own})
                case kir.IfThenElse(condition, then, orelse):
                    test = substitute(condition, lets)
                    self._branch(then, place, lets, test)
                    self._branch(orelse, place, lets, negated(test))
                case kir.Role(_, first, warps, inner):
                    mine = frozenset(range(first * kir.WARP, (first + warps) * kir.WARP))
                    inside = replace(
                        place, threads=place.threads & mine, role=mine, base=first * kir.WARP
                    )
                    self.body(inner, inside, lets)
                case kir.Elect(per, inner):
                    self.body(inner, replace(place, threads=_elected(place, per)), lets)
                case kir.LastArriving():
                    self._last(stmt, place, lets)
                case _ if isinstance(stmt, _DATA) and place.threads:
                    self.sites.append(
                        Site(
                            stmt,
                            self.lines[id(stmt)],
                            place.loops,
                            place.guards,
                            place.threads,
                            place.base,
                            dict(lets),
                        )
                    )
                case _:
                    pass

    def _last(self, stmt: kir.LastArriving, place: _Place, lets: Mapping[Var, Expr]) -> None:
        """Let one CTA of those that come to an integer stand for whichever is the last.

        Where a box lies elsewhere for each of them, they are all taken to access it: nobody knows
        which one does, and so neither which part of an output is written.
        """
        index, ctas = substitute(stmt.index, lets), substitute(stmt.ctas, lets)
        one = eq(place_among(index, ctas) + 1, ctas)
        first = len(self.sites)
        self._branch(stmt.body, place, lets, one)
        for at, site in enumerate(self.sites[first:], first):
            box = touches(site.stmt)
            exprs = [] if box is None else [site.plain(e) for e in (*box.origin, *box.limit)]
            apart = (e if index == 0 else replace_tree(e, index, INDEX) for e in exprs)
            if box is not None and any(kir.BLOCK in variables(e) for e in apart):
                told = tuple(guard for guard in site.guards if guard != one)
                open_ = (eq(MOVING, 1),) if box.tensor.name in self.kernel.outputs else ()
                self.sites[at] = replace(site, guards=(*told, *open_))

    def _branch(
        self, body: tuple[kir.Stmt, ...], place: _Place, lets: Mapping[Var, Expr], test: Expr
    ) -> None:
        if isinstance(test, int):
            if test:
                self.body(body, place, lets)
            return
        self.body(body, replace(place, guards=(*place.guards, test)), lets)


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


def _elected(place: _Place, per: kir.Per) -> frozenset[int]:
    match per:
        case kir.Per.ROLE:
            return place.threads & {place.base}
        case kir.Per.WARP:
            return frozenset(t for t in place.threads if t % kir.WARP == 0)
        case kir.Per.WARPGROUP:
            return frozenset(t for t in place.threads if (t - place.base) % kir.WARPGROUP == 0)


def read(kernel: kir.Kernel) -> tuple[Site, ...]:
    """Return every data statement that some thread executes, in program order."""
    reader = _Reader(kernel)
    everyone = frozenset(range(kernel.threads))
    rank = fold(Kind.MOD, kir.BLOCK, kernel.cluster)
    reader.body(kernel.body, _Place((), (), everyone, everyone, 0), {kir.RANK: rank})
    return tuple(reader.sites)


def facts(kernel: kir.Kernel) -> tuple[Expr, ...]:
    """Return what holds in every launch, for every CTA; variables are >= 0 anyway."""
    whole: tuple[Expr, ...] = (kir.BLOCK < kir.GRID,)
    if kernel.cluster > 1:
        whole = (*whole, eq(kir.GRID % kernel.cluster, 0))
    return (*whole, *kernel.requires)


def unknown(exprs: tuple[Expr, ...]) -> bool:
    """Whether some expression depends on a value that moves."""
    return any(MOVING in variables(expr) for expr in exprs)

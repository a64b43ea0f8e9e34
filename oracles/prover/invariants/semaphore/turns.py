"""CTAs that take turns on a semaphore: which of them meet, and what a turn is as a kernel.

The CTAs of one semaphore are numbered by their turn, T = 0 ... n - 1, and n is unknown.  `split`
cuts a kernel behind its loops: what precedes the cut has nothing to do with turns and is judged
like any other kernel, what follows is executed once by each CTA and judged there
for one turn and a later one.

Notes
-----
Both parts lack statements of the other, so that their events require less than those of the whole:
what is proved of a part holds in the kernel.  They may share no shared memory, no mbarrier, no bulk
group, and no tensor that either writes; then every two accesses that may conflict are in one part.
A CTA comes to its wait whatever other CTAs do, for the part before waits for nothing of theirs.

Source: PTX ISA, "Memory consistency model" (release and acquire patterns).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fuser.expr import Expr, Kind, Op, Var, eq, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import K, N, UnsupportedError, replace_tree
from oracles.prover.coverage import partition
from oracles.prover.invariants.rules import Obligation, RefusedError, Without
from oracles.prover.solver import Known

RLIMIT = 2_000_000
"""Work limit of a question about extents, in z3's units."""
Serial = kir.BlockSerializeWait | kir.BlockSerializeRelease
BULK = kir.AsyncKind.BULK
TILE = Var("tile of the turns")
"""Which semaphore, where there are several."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The CTA groups of semaphores: `BLOCK` is (`tile`, `turn`), each pair once.

    `tiles` semaphores are in use, each by `turns` CTAs.
    """

    tile: Expr
    turn: Expr
    tiles: Expr
    turns: Expr


@dataclass(frozen=True, slots=True)
class Parts:
    """A kernel without its turns, and what each CTA does in its turn.

    `turn` is a kernel over the turn `K` of `N`; `lets` are the values of its names.
    """

    rest: kir.Kernel
    turn: kir.Kernel
    sharing: Sharing
    lets: Mapping[Var, Expr]

    def plain(self, expr: Expr) -> Expr:
        """Return an expression of the kernel over `K`, `N` and `TILE`."""
        return _plain(substitute(expr, self.lets), self.sharing)


def split(kernel: kir.Kernel, without: Without) -> Parts | None:
    """Return the parts of a kernel whose CTAs take turns; None if they do not.

    Raises
    ------
    RefusedError
        If a CTA waits for one that may never run.
    UnsupportedError
        If CTAs meet in another way than described here.
    """
    if any(isinstance(s, kir.GridSync | kir.LastArriving) for s in kernel.walk()):
        raise UnsupportedError("CTAs that meet")
    waits = [s for s in kernel.walk() if isinstance(s, kir.BlockSerializeWait)]
    releases = [s for s in kernel.walk() if isinstance(s, kir.BlockSerializeRelease)]
    if not waits and not releases:
        return None
    if kernel.cluster != 1:
        raise UnsupportedError("a semaphore in a kernel of clusters")
    lets = _lets(kernel)
    sharing = _sharing(kernel, (*waits, *releases), lets)
    if kernel.residency == "any" and Obligation.RESIDENT not in without:
        raise RefusedError("residency", None, "nothing says that the turn before its own ever runs")
    cut = 1 + max((i for i, s in enumerate(kernel.body) if _before(s)), default=-1)
    head, tail = kernel.body[:cut], kernel.body[cut:]
    if any(isinstance(s, Serial) for s in kir.walk(head)):
        raise UnsupportedError("a semaphore before the end of the loops")
    _apart(head, tail)

    def turned(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Let():
                return []
            case kir.IfThenElse(test, then, orelse):
                ways = kir.rewrite(then, turned), kir.rewrite(orelse, turned)
                return [kir.IfThenElse(_plain(substitute(test, lets), sharing), *ways)]
            case _:
                return None

    kept = (s for s in tail if isinstance(s, kir.AsyncAwait | kir.AsyncCommit))
    rest = replace(kernel, body=(*head, *(s for s in kept if s.kind is not BULK)))
    turn = replace(kernel, body=kir.rewrite(tail, turned), barriers=())
    return Parts(rest, turn, sharing, lets)


def _lets(kernel: kir.Kernel) -> Mapping[Var, Expr]:
    """Return the values of names that no loop changes."""
    lets: dict[Var, Expr] = {}
    moving = {s.var for s in kernel.walk() if isinstance(s, kir.Assign)}
    for stmt in kernel.body:
        if isinstance(stmt, kir.Let) and stmt.var not in moving:
            lets[stmt.var] = substitute(stmt.value, lets)
    return lets


def _sharing(
    kernel: kir.Kernel,
    users: tuple[Serial, ...],
    lets: Mapping[Var, Expr],
) -> Sharing:
    """Return who shares a semaphore, read off the waits.

    Without a wait, every CTA is thought to have the turn of its number.
    """
    if len({user.semaphore.name for user in users}) > 1:
        raise UnsupportedError("several semaphores")
    places = {substitute(user.index, lets) for user in users}
    own = {substitute(u.turn, lets) for u in users if isinstance(u, kir.BlockSerializeWait)}
    if len(places) > 1 or len(own) > 1:
        raise UnsupportedError("a CTA uses several semaphores, or waits for several turns")
    (tile,), turn = places, next(iter(own), kir.BLOCK)
    sharing = _dealt(kernel, tile, turn)
    if sharing is None:
        raise UnsupportedError(f"the turns {turn} of semaphore {tile}: which CTAs share them")
    known = Known(sites.facts(kernel), RLIMIT)
    name = users[0].semaphore.name
    if not any(s.name == name and known.at_most(sharing.tiles, s.count) for s in kernel.semaphores):
        raise UnsupportedError(f"{name} has too few semaphores")
    return sharing


def _dealt(kernel: kir.Kernel, tile: Expr, turn: Expr) -> Sharing | None:
    """Return the CTAs of a semaphore if `BLOCK` has each pair of tile and turn once."""
    sides = [(t.a, t.b) for t in kernel.requires if isinstance(t, Op) and t.kind is Kind.EQ]
    grids = [b if a == kir.GRID else a for a, b in sides if kir.GRID in (a, b)]
    if tile == 0 and turn == kir.BLOCK:
        return Sharing(0, turn, 1, next((g for g in grids if isinstance(g, Var)), kir.GRID))
    match tile, turn:
        case Op(Kind.FLOORDIV, kir.BLOCK, s), Op(Kind.MOD, kir.BLOCK, again) if s == again:
            tiles = _cofactor(grids, s)
            return None if tiles is None else Sharing(tile, turn, tiles, s)
        case Op(Kind.MOD, kir.BLOCK, t), Op(Kind.FLOORDIV, kir.BLOCK, again) if t == again:
            turns = _cofactor(grids, t)
            return None if turns is None else Sharing(tile, turn, t, turns)
        case _:
            return None


def _cofactor(grids: list[Expr], factor: Expr) -> Expr | None:
    for grid in grids:
        match grid:
            case Op(Kind.MUL, a, b) if factor in (a, b):
                return a if b == factor else b
            case _:
                pass
    return None


def _plain(expr: Expr, sharing: Sharing) -> Expr:
    if isinstance(sharing.tile, Op):
        expr = replace_tree(expr, sharing.tile, TILE)
    expr = replace_tree(expr, sharing.turn, K)
    if sharing.tiles == 1 and sharing.tile == 0:
        expr = replace_tree(expr, kir.GRID, N)
    return replace_tree(expr, sharing.turns, N)


def _before(stmt: kir.Stmt) -> bool:
    """Whether a statement of the kernel's body belongs to what precedes the turns."""
    for inner in kir.walk((stmt,)):
        match inner:
            case kir.ForLoop(_, stop) if not isinstance(stop, int):
                return True
            case kir.Role() | kir.TmaLoad() | kir.CpAsync() | kir.Wgmma():
                return True
            case _ if sites.mbarrier(inner) is not None:
                return True
            case _:
                pass
    return False


def _apart(head: tuple[kir.Stmt, ...], tail: tuple[kir.Stmt, ...]) -> None:
    """Check that turns and what precedes them share no memory that either writes."""
    here, there = set(_used(head)), set(_used(tail))
    both = {name for name, _ in here} & {name for name, _ in there}
    shared = {name for name, writes in here | there if writes and name in both}
    if shared:
        raise UnsupportedError(f"turns and what precedes them share {', '.join(sorted(shared))}")


def _used(body: tuple[kir.Stmt, ...]) -> Iterator[tuple[str, bool]]:
    """Yield what statements use, and whether they write it."""
    for stmt in kir.walk(body):
        box = sites.touches(stmt)
        if box is not None:
            yield f"tensor {box.tensor.name}", sites.reads(stmt) is None
        yield from ((f"buffer {slot.buffer.name}", True) for slot in sites.slots(stmt))
        groups = isinstance(stmt, kir.AsyncCommit | kir.AsyncAwait) and stmt.kind is BULK
        if groups or isinstance(stmt, kir.TmaStore | kir.TmaReduce):
            yield "bulk groups", True


def alone(parts: Parts, box: kir.Box) -> bool:
    """Whether CTAs of different semaphores touch different bytes of a tensor by this box.

    The boxes of all semaphores are a partition of the tensor, or there is only one semaphore.
    """
    sharing = parts.sharing
    origin = tuple(parts.plain(x) for x in box.origin)
    if any({K, kir.BLOCK} & variables(x) for x in origin):
        return False
    if sharing.tiles == 1:
        return True
    source = kir.Buffer("source", box.tensor.dtype, box.shape, 1, 0)
    moved = replace(box, origin=tuple(substitute(x, {TILE: kir.BLOCK}) for x in origin))
    made = replace(
        parts.rest,
        tensors=(box.tensor,),
        body=(kir.Elect(kir.Per.ROLE, (kir.TmaStore(moved, kir.Slot(source, 0)),)),),
        outputs=(box.tensor.name,),
        workspaces=(),
        requires=(eq(kir.GRID, sharing.tiles),),
    )
    known = Known(sites.facts(made), RLIMIT)
    return not partition.judge(made, sites.read(made), box.tensor, known)

"""Small kernels as people write them: loops cut in parts, limits of many forms, CTAs in pairs.

A kernel is drawn from a grammar.  `deals` say which tiles a CTA has, `walk` how a role goes through
them (a prologue and the rest, two at a time, in chunks, ...), `same` writes a number in another
way, and each family is a protocol around them.  Without a fault all are right by construction;
whether judges can follow them is the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import product
from random import Random
from typing import Any

from fuser.cookbook.ring import BULK, CP_ASYNC, ELECT, emptied, filled, ring, start
from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, Var, ceildiv, eq, fold, maximum, minimum, substitute
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuzz.kernels.template import FILLS, Body, amount, filled_by, freed
from fuzz.kernels.tile import (
    COLS,
    NBYTES,
    ROWS,
    Start,
    Template,
    add,
    fragment,
    layout,
    slots,
)
from fuzz.mutation.site import Mutant, redeclared, sites
from oracles.prover.sites import fixed_grid

n, m, s = (Var(name) for name in "nms")
PAIR = 2 * kir.WARP
PLAIN = 0.5
"""How often each part of a kernel is nothing special."""
Part = Callable[[Expr], Body]
"""The statements for item number so-and-so, new objects each time."""


# --- numbers, and ways through them -------------------------------------------------------------

FACTS: tuple[tuple[tuple[Expr, ...], tuple[Expr, ...]], ...] = (
    ((n <= 8,), (minimum(n, 8),)),
    ((n >= 1,), (maximum(n, 1),)),
    ((eq(n, 3),), (3, minimum(n, 3), maximum(n, 3))),
    ((eq(m, n),), (m, minimum(n, m), maximum(n, m))),
    ((eq(n % 2, 0),), (n // 2 * 2, n + n % 2)),
    ((eq(n, m * 2),), (m * 2, m + m, maximum(n, m))),
    ((n <= m,), (minimum(n, m), maximum(n, n + n - m))),
)
"""What a launch may require, and what `n` is then equal to."""


def facts(rng: Random) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Draw what a launch requires."""
    return ((), ()) if rng.random() < PLAIN else rng.choice(FACTS)


def same(rng: Random, total: Expr, others: tuple[Expr, ...] = ()) -> Expr:
    """Write a number that is never negative in another way."""
    if rng.random() < PLAIN:
        return total
    few = rng.choice((1, 2, 3, m))
    ways = (
        minimum(total, total + few),
        minimum(total, few) + maximum(total - few, 0),
        total // 2 * 2 + total % 2,
        total // 2 + (total + 1) // 2,
        *others,
        *others,
    )
    return rng.choice(ways)


def walk(rng: Random, total: Expr, part: Part, name: str) -> Body:
    """Do a part for 0, 1, ..., total - 1, in one or several loops."""
    i, j, at = (Var(f"{name}{letter}") for letter in "ija")
    few = rng.randint(1, 3)
    some: Expr = rng.choice((few, few, m))

    def loop(index: Var, stop: Expr, number: Expr) -> kir.Stmt:
        return kir.ForLoop(index, stop, part(number))

    match "plain" if rng.random() < PLAIN else rng.choice(WALKS):
        case "plain":
            return (loop(i, total, i),)
        case "prologue":
            first = minimum(total, some)
            return loop(i, first, i), loop(j, maximum(total - some, 0), j + some)
        case "epilogue":
            most = maximum(total - some, 0)
            return loop(i, most, i), loop(j, minimum(total, some), most + j)
        case "three parts":
            ahead, rest = minimum(total, few), maximum(total - few, 0)
            most = maximum(rest - 1, 0)
            last = loop(Var(f"{name}e"), minimum(rest, 1), ahead + most)
            return loop(i, ahead, i), loop(j, most, ahead + j), last
        case "by two":
            second = kir.IfThenElse(fold(Kind.LT, i * 2 + 1, total), part(i * 2 + 1))
            return (kir.ForLoop(i, ceildiv(total, 2), (*part(i * 2), second)),)
        case "pairs":
            pairs = kir.ForLoop(i, total // 2, (*part(i * 2), *part(i * 2 + 1)))
            return pairs, kir.IfThenElse(eq(total % 2, 1), part(total - 1))
        case "nested":
            inner = loop(j, minimum(total - i * few, few), i * few + j)
            return (kir.ForLoop(i, ceildiv(total, few), (inner,)),)
        case "peeled":
            return kir.IfThenElse(fold(Kind.LT, 0, total), part(0)), loop(
                i, maximum(total - 1, 0), i + 1
            )
        case "counted":
            step = kir.Assign(at, at + 1)
            return kir.Let(at, 0), kir.ForLoop(i, total, (*part(at), step))
        case _:  # guarded
            return (
                kir.IfThenElse(
                    fold(Kind.LE, total, few), (loop(i, total, i),), (loop(j, total, j),)
                ),
            )


WALKS = (
    "prologue", "epilogue", "three parts", "by two", "pairs", "nested", "peeled",
    "counted", "guarded",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deal:
    """The tiles of a CTA: how many, where each lies, and how many CTAs there are."""

    total: Expr
    place: Callable[[Expr], Expr]
    grid: Expr


def deals(rng: Random) -> Deal:
    """Draw which of `n` tiles a CTA has, and in which order."""
    few = rng.randint(1, 3)
    match "all" if rng.random() < PLAIN else rng.choice(("reversed", "chunks", "strided")):
        case "all":
            return Deal(n, lambda at: at, 1)
        case "reversed":
            return Deal(n, lambda at: n - 1 - at, 1)
        case "chunks":
            mine = minimum(n - kir.BLOCK * few, few)
            return Deal(mine, lambda at: kir.BLOCK * few + at, ceildiv(n, few))
        case _:
            mine = ceildiv(n - kir.BLOCK, few)
            return Deal(mine, lambda at: kir.BLOCK + at * few, minimum(n, few))


def tensor(name: str, tiles: Expr) -> kir.Tensor:
    """Return a tensor of tiles, one below the other."""
    return kir.Tensor(name, DType.F32, (tiles * ROWS, COLS), (COLS, 1), 4)


def box(of: kir.Tensor, number: Expr) -> kir.Box:
    """Tile `number` of a tensor."""
    return kir.Box(of, (number * ROWS, 0), (ROWS, COLS), of.extents)


X, Y, W = tensor("X", n), tensor("Y", n), tensor("W", s)


def made(
    name: str,
    warps: int,
    body: Body,
    *,
    tensors: tuple[kir.Tensor, ...] = (X, Y),
    requires: tuple[Expr, ...] = (),
    grid: Expr = 1,
    buffers: tuple[kir.Buffer, ...] = (),
    barriers: tuple[kir.MBarrier, ...] = (),
    slots: int = 2,
) -> Template:
    """Return a kernel with its launches, which keep what it requires."""
    requires = (*requires, eq(kir.GRID, grid))
    outputs = tuple(one.name for one in tensors if one.name.startswith("Y"))
    kernel = kir.Kernel(
        name, (n, m), tensors, (), buffers, barriers, warps * kir.WARP, body, outputs,
        requires=requires,
    )  # fmt: skip
    return Template(kernel, slots, launches(kernel))


def launches(kernel: kir.Kernel) -> Callable[[int], tuple[Start, ...]]:
    """Return launches in which a parameter has a given value: few that keep what is required."""

    def at(count: int) -> tuple[Start, ...]:
        found: list[Start] = []
        some = dict.fromkeys((count, 0, 1, 2, 3))
        # The first one is dealt out to up to three CTAs.
        for values in product(
            dict.fromkeys((3 * count, *some)), *(some,) * (len(kernel.params) - 1)
        ):
            given: dict[Var, Expr] = dict(zip(kernel.params, values, strict=True))
            grid = substitute(fixed_grid(kernel) or 1, given)
            given[kir.GRID] = grid
            kept = all(substitute(one, given) == 1 for one in kernel.requires)
            asked = count in values or 3 * count in values
            if asked and kept and isinstance(grid, int) and 1 <= grid <= MOST_CTAS:
                start = {v.name: x for v, x in zip(kernel.params, values, strict=True)}
                found.append((grid, start))
        return tuple(found[:: -(-len(found) // SAME) or 1])

    return at


MOST_CTAS, SAME = 6, 3
"""CTAs of a launch, and launches for one count, at most."""


# --- families -----------------------------------------------------------------------------------


def walked(rng: Random) -> Template:
    """Hand tiles from warp to warp around a ring; each side walks in its own way.

    Barriers lie behind the buffers or among them; tiles are read through the buffer or a view of
    it.  Sometimes a second ring of another length follows, on the bytes of the first one.
    """
    requires, others = facts(rng)
    deal = deals(rng)
    lives = rng.random() < 0.25
    one, barriers, buffers = _stream(rng, deal, others, X, Y, "", lives)
    if not lives:
        body = (*start(*barriers, threads=PAIR), *one)
        return made("walked", 2, body, requires=requires, grid=deal.grid, buffers=buffers,
                    barriers=barriers, slots=buffers[0].slots)  # fmt: skip
    x, y = tensor("X2", m), tensor("Y2", m)
    second = Deal(m, lambda at: at, 1)
    two, more, again = _stream(rng, second, (), x, y, "2", lives)
    only = two if deal.grid == 1 else (kir.IfThenElse(eq(kir.BLOCK, 0), two),)
    body = (
        *start(*barriers, threads=PAIR),
        *one,
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSync(0, PAIR),
        kir.Elect(ELECT, tuple(kir.MBarrierInvalidate(one) for one in barriers)),
        kir.BlockSync(0, PAIR),
        *start(*more, threads=PAIR),
        *only,
    )
    return made(
        "walked", 2, body, tensors=(X, Y, x, y), requires=requires, grid=maximum(deal.grid, 1),
        buffers=(*buffers, *again), barriers=(*barriers, *more), slots=buffers[0].slots,
    )  # fmt: skip


def _stream(
    rng: Random,
    deal: Deal,
    others: tuple[Expr, ...],
    x: kir.Tensor,
    y: kir.Tensor,
    mark: str,
    lives: bool,
) -> tuple[Body, tuple[kir.MBarrier, ...], tuple[kir.Buffer, ...]]:
    way, arrivals = rng.choice(tuple(FILLS.items()))
    stages, each = rng.randint(1, 3), rng.random() < 0.5
    ring_ = slots(f"S{mark}", stages)
    view = replace(ring_, name=f"V{mark}") if rng.random() < 0.2 else ring_
    full = ring(f"full{mark}", arrivals, stages)
    empty = ring(f"empty{mark}", kir.WARP if each else 1, stages)
    buffers = dict.fromkeys((ring_, view))
    if lives or rng.random() < 0.3:
        room = kir.Buffer(f"B{mark}", DType.I64, (8,), 1, 3 * NBYTES)
        full, empty = replace(full, offset=room.offset), replace(empty, offset=room.offset + 24)
        buffers |= {room: None}
    vector = rng.choice((1, 2))
    got = kir.Fragment(f"x{mark}", DType.F32, layout(1, vector))
    sum_ = replace(got, name=f"y{mark}")
    elected = way in ("loaded", "expected")

    def give(at: Expr) -> Body:
        fills = filled_by(way, ring_, full, at % stages, box(x, deal.place(at)))
        room_ = emptied(empty, at, stages)
        match fills:
            case (kir.Elect(per, inner),) if elected:
                return (kir.Elect(per, (room_, *inner)),)
            case _:
                return room_, *fills

    def take(at: Expr) -> Body:
        return (
            filled(full, at, stages),
            kir.Load(got, kir.Slot(view, at % stages), vector),
            *freed(empty, at % stages, each_thread=each),
            kir.Compute(sum_, "add", (got, got)),
            kir.Store(box(y, deal.place(at)), sum_, vector),
        )

    total = deal.total
    others = others if total == n else ()
    giver = walk(rng, same(rng, total, others), give, f"g{mark}")
    taker = walk(rng, same(rng, total, others), take, f"t{mark}")
    roles = kir.Role(f"give{mark}", 0, 1, giver), kir.Role(f"take{mark}", 1, 1, taker)
    return roles, (full, empty), tuple(buffers)


def ahead(rng: Random) -> Template:
    """One role loads some tiles ahead, and ends its loop with a guard or with an epilogue."""
    requires, others = facts(rng)
    deal = deals(rng)
    total, warps, stages = deal.total, rng.randint(1, 2), rng.randint(2, 4)
    by_tma = rng.random() < 0.5
    early = rng.randint(1, stages - 1)
    ring_, full = slots("S", stages), ring("full", 1, stages)

    def issue(at: Expr) -> Body:
        slot, src = kir.Slot(ring_, at % stages), box(X, deal.place(at))
        if not by_tma:
            return (kir.CpAsync(slot, src, layout(warps, 2), 2),)
        expect = kir.MBarrierArriveExpectTx(full, at % stages, NBYTES)
        return (kir.Elect(ELECT, (expect, kir.TmaLoad(slot, src, full, at % stages))),)

    def close() -> Body:
        return () if by_tma else (kir.AsyncCommit(CP_ASYNC),)

    def use(at: Expr, *more: kir.Stmt) -> Body:
        wait = filled(full, at, stages) if by_tma else kir.AsyncAwait(CP_ASYNC, early - 1)
        sync = () if by_tma else (kir.BlockSync(0, kir.WARP * warps),)
        end = (kir.BlockSync(1, kir.WARP * warps),) if by_tma or early == stages - 1 else ()
        return (
            wait,
            *sync,
            kir.Load(fragment("x", warps), kir.Slot(ring_, at % stages), 1),
            add(warps),
            kir.Store(box(Y, deal.place(at)), fragment("y", warps), 1),
            *(end if by_tma else ()),
            *more,
            *close(),
        )

    i, k, e = Var("i"), Var("k"), Var("e")
    total = same(rng, total, others if total == n else ())
    rest = maximum(total - early, 0)
    if rng.random() < 0.5:
        first = kir.ForLoop(i, minimum(total, early), (*issue(i), *close()))
        empty = kir.ForLoop(Var("z"), early - minimum(total, early), close())
        ahead_: Body = (first,) if by_tma else (first, empty)
    else:
        ahead_ = (kir.ForLoop(i, early, (kir.IfThenElse(i < total, issue(i)), *close())),)
    if rng.random() < 0.5:
        loops: Body = (
            kir.ForLoop(k, rest, use(k, *issue(k + early))),
            kir.ForLoop(e, minimum(total, early), use(rest + e)),
        )
    else:
        more = kir.IfThenElse(k + early < total, issue(k + early))
        loops = (kir.ForLoop(k, total, use(k, more)),)
    barriers = (full,) if by_tma else ()
    begin = start(full, threads=kir.WARP * warps) if by_tma else ()
    return made("ahead", warps, (*begin, *ahead_, *loops), requires=requires, grid=deal.grid,
                buffers=(ring_,), barriers=barriers, slots=stages)  # fmt: skip


def joined(rng: Random) -> Template:
    """Hand a tile on by named barriers: one or two warps arrive with their count, one waits."""
    requires, others = facts(rng)
    deal = deals(rng)
    givers = rng.randint(1, 2)
    threads = (givers + 1) * kir.WARP
    tiles = slots("S", givers)

    def give(number: int) -> Part:
        def part(at: Expr) -> Body:
            x = fragment("x", 1)
            return (
                kir.IfThenElse(at >= 1, (kir.BlockSync(2, threads),)),
                kir.Load(x, box(X, deal.place(at)), 1),
                kir.Store(kir.Slot(tiles, number), x, 1),
                kir.NamedArrive(1, threads),
            )

        return part

    total = deal.total
    others = others if total == n else ()

    def take(at: Expr) -> Body:
        loads = tuple(kir.Load(fragment(f"x{i}", 1), kir.Slot(tiles, i), 1) for i in range(givers))
        y = fragment("y", 1)
        return (
            kir.BlockSync(1, threads),
            *loads,
            kir.IfThenElse(at + 1 < total, (kir.NamedArrive(2, threads),)),
            kir.Compute(y, "add", (fragment("x0", 1), fragment(f"x{givers - 1}", 1))),
            kir.Store(box(Y, deal.place(at)), y, 1),
        )

    roles = [
        kir.Role(f"give{i}", i, 1, walk(rng, same(rng, total, others), give(i), f"g{i}"))
        for i in range(givers)
    ]
    taker = walk(rng, same(rng, total, others), take, "t")
    body = (*roles, kir.Role("take", givers, 1, taker))
    return made("joined", givers + 1, body, requires=requires, grid=deal.grid, buffers=(tiles,))


def drained(rng: Random) -> Template:
    """Send tiles by TMA from a ring of slots; the last reads are awaited, or the writes as well."""
    requires, others = facts(rng)
    deal = deals(rng)
    stages, warps = rng.randint(1, 3), rng.randint(1, 2)
    ring_, threads = slots("S", stages), warps * kir.WARP

    def part(at: Expr) -> Body:
        slot = kir.Slot(ring_, at % stages)
        return (
            kir.Load(fragment("x", warps), box(X, deal.place(at)), 1),
            add(warps),
            kir.Elect(ELECT, (kir.AsyncAwait(BULK, stages - 1, read_only=True),)),
            kir.BlockSync(0, threads),
            kir.Store(slot, fragment("y", warps), 1),
            kir.FenceAsyncProxy(kir.Space.SHARED),
            kir.BlockSync(1, threads),
            kir.Elect(ELECT, (kir.TmaStore(box(Y, deal.place(at)), slot), kir.AsyncCommit(BULK))),
        )

    loops = walk(rng, same(rng, deal.total, others if deal.total == n else ()), part, "w")
    end = kir.Elect(ELECT, (kir.AsyncAwait(BULK, 0, read_only=rng.random() < 0.5),))
    return made("drained", warps, (*loops, end), requires=requires, grid=deal.grid,
                buffers=(ring_,), slots=stages)  # fmt: skip


def always(rng: Random, name: Var, end: Expr) -> Expr:
    """Draw a condition that holds for every `0 <= name < end`."""
    few, by = rng.randint(2, 3), rng.randint(2, 3)
    numbers = (name * few, name // by, name % by, name // by % few, minimum(name, few), name)
    limits = (
        (end - 1) * few, (end - 1) // by, by - 1, few - 1, minimum(end, few), end + 7 - few
    )  # fmt: skip
    some = rng.randrange(len(numbers))
    return fold(Kind.LE, numbers[some], limits[some])


def turns(rng: Random) -> Template:
    """`s` CTAs add to a tile in order, where conditions on their numbers say how they are joined.

    Conditions that hold always, or others with a join on either side.
    """
    x, y, w = (fragment(name, 2) for name in "xyw")
    one = tensor("Y", 1), tensor("W", 1)
    test = always(rng, kir.BLOCK, s) if rng.random() < 0.5 else (
        fold(rng.choice((Kind.LT, Kind.LE, Kind.EQ)),
             amount(rng, (kir.BLOCK,), 2), rng.choice((1, 2, 3, m, m + 7, s // 2)))
    )  # fmt: skip
    other = (kir.BlockSync(1, PAIR),)
    mine = rng.choice((kir.BLOCK, minimum(kir.BLOCK, s), maximum(kir.BLOCK, minimum(kir.BLOCK, m))))
    semaphore = kir.Semaphore("turns", 1)
    last = rng.choice(((kir.BLOCK + 1) % s, (kir.BLOCK + 1) * (s > kir.BLOCK + 1)))
    body = (
        kir.Load(x, box(replace(X, extents=(s * ROWS, COLS)), kir.BLOCK), 1),
        kir.BlockSerializeWait(semaphore, 0, mine),
        kir.IfThenElse(
            eq(kir.BLOCK, 0),
            (kir.Compute(y, "cast", (x,)),),
            (kir.Load(w, box(one[1], 0), 1), kir.Compute(y, "add", (x, w))),
        ),
        kir.IfThenElse(
            s > kir.BLOCK + 1,
            (kir.Store(box(one[1], 0), y, 1),),
            (kir.Store(box(one[0], 0), y, 1),),
        ),
        kir.IfThenElse(test, (kir.BlockSync(0, PAIR),), other),
        kir.Elect(ELECT, (kir.BlockSerializeRelease(semaphore, 0, last),)),
    )
    kernel = kir.Kernel(
        "turns", (s, m), (replace(X, extents=(s * ROWS, COLS)), *one), (), (), (), PAIR, body,
        ("Y",), ("W",), (semaphore,), (s >= 1, eq(kir.GRID, s)),
        residency=rng.choice(("ticket", "co-resident")),
    )  # fmt: skip
    return Template(kernel, 2, launches(kernel))


def met(rng: Random) -> Template:
    """CTAs in pairs, or all, meet in each of some rounds and read what the neighbour has stored."""
    pairs = rng.random() < 0.5
    x, y, w = (fragment(name, 2) for name in "xyw")
    grid = s * 2 if pairs else s
    xs, ys, ws = (tensor(name, grid) for name in "XYW")
    semaphore = kir.Semaphore("meet", s if pairs else 1)
    index, ctas = (kir.BLOCK // 2, 2) if pairs else (0, s)
    neighbour = kir.BLOCK // 2 * 2 + (1 - kir.BLOCK % 2) if pairs else (kir.BLOCK + 1) % s
    rounds = rng.choice((1, 2, minimum(m, 2), m, same(rng, m)))
    everybody = always(rng, kir.BLOCK, grid)
    guarded = rng.random() < 0.4

    def meet() -> Body:
        one = kir.GridSync(semaphore, index, ctas)
        return (kir.IfThenElse(everybody, (one,)),) if guarded else (one,)

    def part(at: Expr) -> Body:
        return (
            kir.Store(box(ws, kir.BLOCK), x, 1),
            *meet(),
            kir.Load(w, box(ws, neighbour), 1),
            kir.Compute(y, "add", (y, w)),
            *meet(),
        )

    body = (
        kir.Load(x, box(xs, kir.BLOCK), 1),
        kir.Compute(y, "cast", (x,)),
        *walk(rng, rounds, part, "r"),
        kir.Store(box(ys, kir.BLOCK), y, 1),
    )
    kernel = kir.Kernel(
        "met", (s, m), (xs, ws, ys), (), (), (), PAIR, body, ("Y",), ("W",), (semaphore,),
        (s >= 1, eq(kir.GRID, grid)), residency="co-resident",
    )  # fmt: skip
    return Template(kernel, 2, launches(kernel))


def moved(rng: Random) -> Template:
    """Move tiles by vectors of a drawn width, through tensors of a drawn alignment and pitch."""
    aligned, vector = rng.choice((1, 2, 4)), rng.choice((1, 2, 4))
    width = min(vector, aligned, rng.choice((1, 2, 4)))
    wide = COLS + rng.choice((0, aligned, 4))
    column = rng.choice((0, width, wide - COLS))
    column -= column % width
    x, y = (
        kir.Tensor(name, DType.F32, (n * ROWS, w), (w, 1), aligned)
        for name, w in (("X", wide), ("Y", COLS))
    )
    column = min(column, wide - COLS)
    part = kir.Fragment("x", DType.F32, layout(1, vector))
    deal = deals(rng)

    def move(at: Expr) -> Body:
        src = kir.Box(x, (deal.place(at) * ROWS, column), (ROWS, COLS), x.extents)
        return kir.Load(part, src, width), kir.Store(box(y, deal.place(at)), part, width)

    loops = walk(rng, deal.total, move, "w")
    return made("moved", 1, loops, tensors=(x, y), grid=deal.grid)


WIDE: dict[str, Callable[[Random], Template]] = {
    family.__name__: family
    for family in (walked, ahead, joined, drained, turns, met, moved)
}  # fmt: skip
"""Every family, with what draws a variant of it."""


# --- faults -------------------------------------------------------------------------------------


NUMBERS = frozenset(
    ("value", "stop", "condition", "slot", "parity", "turn", "ctas", "threads", "keep", "nbytes",
     "width", "src", "dst", "origin", "limit", "barrier", "index")
)  # fmt: skip
"""Fields of statements and places that hold numbers; declarations are no places."""


def shift(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Change a number by one, an operator, a parameter, or a place by a few bytes."""
    for site in sites(kernel):
        for stmt in _changed(site.stmt):
            yield site.instead("shift", f"`{line(stmt)}` for", (), stmt)
    places: tuple[kir.MBarrier | kir.Buffer, ...] = (*kernel.barriers, *kernel.buffers)
    for one in places:
        for by in (-128, -8, 8, 128):
            if one.offset is not None and one.offset + by >= 0:
                other = redeclared(kernel, one, replace(one, offset=one.offset + by))
                yield Mutant(f"{one.name} lies {by:+d} bytes on", other, "shift", ())
    for fact in kernel.requires:
        rest = tuple(other for other in kernel.requires if other != fact)
        yield Mutant(f"{fact} is not required", replace(kernel, requires=rest), "shift", ())


def _changed(node: Any) -> Iterator[Any]:
    """Yield a statement, or a part of one, with one number changed."""
    match node:
        case int() | Var() | Op():
            yield from _shifted(node)
        case (int() | Var() | Op(), *_):
            for place, part in enumerate(node):
                yield from ((*node[:place], one, *node[place + 1 :]) for one in _changed(part))
        case kir.MBarrier() | kir.Buffer() | kir.Fragment():
            pass
        case _ if is_dataclass(node) and not isinstance(node, type):
            loop = isinstance(node, kir.ForLoop)
            for name in (f.name for f in fields(node) if f.name in NUMBERS):
                if not (loop and name == "index"):
                    yield from (
                        replace(node, **{name: one}) for one in _changed(getattr(node, name))
                    )
        case _:
            pass


def _shifted(expr: Expr) -> Iterator[Expr]:
    """Yield an expression with one of its numbers, operators or parameters changed."""
    match expr:
        case int():
            yield from (expr + 1, expr - 1)
        case Op(kind, a, b):
            yield expr + 1
            if kind in _OTHER:
                yield Op(_OTHER[kind], a, b)
            yield from (fold(kind, other, b) for other in _shifted(a))
            yield from (fold(kind, a, other) for other in _shifted(b))
        case Var("n" | "s"):
            yield m
        case Var("m"):
            yield 2
        case _:
            yield expr + 1


_OTHER = {
    Kind.MIN: Kind.MAX, Kind.MAX: Kind.MIN, Kind.LT: Kind.LE, Kind.LE: Kind.LT, Kind.ADD: Kind.SUB,
}  # fmt: skip

"""Kernels that go wrong at odd sizes only: a remainder, a tail, loops and sizes that differ."""

from __future__ import annotations

from fuser.expr import Expr, Var, both, ceildiv, eq, minimum
from fuser.kernel import ir as kir
from litmus.parts import (
    ONE_CTA,
    X1,
    XN,
    Y1,
    YN,
    Body,
    Litmus,
    Run,
    box,
    broken,
    fragment,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    s,
    slots,
    store,
    trips,
)
from litmus.rings import FULL, RING, SLOT, ring

S, R = slots("S"), Var("R")
XR = kir.Tensor("XR", S.dtype, (R, 32), (32, 1), 4)
WIDE, THIN = fragment("x", 64), fragment("x", 64, 1)
EXCHANGED = kir.BlockSync(0, 64)


def halves(*, together: bool) -> kir.Kernel:
    """Two warps read every other tile each, and join after each: with the other, or alone."""

    def half(w: int) -> kir.Role:
        x = fragment("x")
        join = kir.BlockSync(1, 64) if together else kir.WarpSync()
        loop = kir.ForLoop(k, ceildiv(R // 4 - w, 2), (load(x, box(XR, 2 * k + w)), join))
        out = (store(box(Y1), x),) if w else ()
        return kir.Role(f"half {w}", w, 1, (load(x, box(X1)), loop, *out))

    return kernel(
        (half(0), half(1)),
        threads=64,
        tensors=(X1, XR, Y1),
        params=(R,),
        requires=(ONE_CTA, eq(R % 4, 0)),
    )


TILE, LENGTH = 64, Var("L")
XL, YL = (kir.Tensor(name, S.dtype, (LENGTH,), (1,), 2) for name in "XY")


def tail(end: Expr) -> kir.Kernel:
    """Copy a row by tiles, up to some end of it."""
    row = kir.Fragment("x", S.dtype, kir.Layout((TILE,), 2, 32))
    src, dst = (kir.Box(of, (k * TILE,), (TILE,), (end,)) for of in (XL, YL))
    loop = kir.ForLoop(k, ceildiv(LENGTH, TILE), (kir.Load(row, src, 1), kir.Store(dst, row, 1)))
    return kernel((loop,), tensors=(XL, YL), params=(LENGTH,))


def exchange(*between: kir.Stmt) -> Body:
    """Hand a tile to the other warp, with something between its store and its load."""
    x1, y1 = load(WIDE, box(X1)), store(box(Y1), THIN)
    return (x1, store(kir.Slot(S, 0), WIDE), *between, load(THIN, kir.Slot(S, 0)), y1)


def unless(condition: Expr, *params: Var) -> kir.Kernel:
    """Join the two warps unless some condition holds."""
    body = exchange(kir.IfThenElse(condition, (), (EXCHANGED,)))
    return kernel(body, threads=64, buffers=(S,), tensors=(X1, Y1), params=params)


def joined(*params: Var) -> kir.Kernel:
    """Join the two warps in any case."""
    return kernel(exchange(EXCHANGED), threads=64, buffers=(S,), tensors=(X1, Y1), params=params)


def met(turns: Expr) -> kir.Kernel:
    """Two warps join in each of their turns, `n` and `turns` of them."""

    def join(count: Expr) -> kir.ForLoop:
        return kir.ForLoop(k, count, (kir.BlockSync(1, 64),))

    x = fragment("x")
    copy = (load(x, box(X1)), store(box(Y1), x))
    roles = kir.Role("first", 0, 1, (join(n),)), kir.Role("second", 1, 1, (*copy, join(turns)))
    return kernel(roles, threads=64, tensors=(X1, Y1), params=(n, m))


def run(**params: int) -> Run:
    """Return a launch of one CTA."""
    return Run(1, tuple(params.items()))


def backwards(last: Expr) -> kir.Kernel:
    """Copy tiles of which the sources go backwards, from tile `last` on."""
    x = fragment("x")
    return kernel((kir.ForLoop(k, n, (load(x, box(XN, last - k)), store(box(YN, k), x))),))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "copies_that_begin_before_their_tensor",
        "H75",
        ring(fill=kir.TmaLoad(kir.Slot(RING, SLOT), box(XN, k - 1), FULL, SLOT)),
        "The engine writes zeros for what lies before the tensor (PTX ISA, tensor copies).",
    ),
    legal("tiles_read_backwards", "H75", backwards(n - 1), "The last round reads tile 0."),
    broken(
        "tiles_read_backwards_and_one_more",
        "H75",
        backwards(n - 2),
        "bounds",
        "tiles_read_backwards",
        "The last round reads before the tensor; only what is past a limit is left out.",
    ),
    legal(
        "halves_that_join_alone",
        "H65 H71",
        halves(together=False),
        "Neither warp reads what the other one writes, and of an odd number of tiles one has more.",
        launches=(run(R=0), run(R=8), run(R=12)),
    ),
    broken(
        "halves_that_join_each_other",
        "H65 H71",
        halves(together=True),
        "deadlock",
        "halves_that_join_alone",
        "Of an odd number of tiles the last one is a tile of one warp.",
        launches=(run(R=4), run(R=12)),
    ),
    legal(
        "a_tail_of_any_length",
        "H71",
        tail(LENGTH),
        "The last tile holds whatever the others leave.",
        launches=(run(L=0), run(L=62), run(L=64), run(L=126)),
    ),
    broken(
        "a_tail_of_almost_any_length",
        "H71",
        tail(minimum(LENGTH, LENGTH // TILE * TILE + TILE - 4)),
        "coverage",
        "a_tail_of_any_length",
        "Of a last tile that lacks two elements of a whole one two are lost.",
        launches=(run(L=62), run(L=126)),
    ),
    legal(
        "loops_of_one_length_that_join",
        "H65 H71",
        met(n),
        "Both warps come as often, whatever the other parameter is.",
        launches=(run(n=0, m=0), run(n=1, m=3), run(n=4, m=0)),
    ),
    broken(
        "loops_of_two_lengths_that_join",
        "H65 H71",
        met(m),
        "deadlock",
        "loops_of_one_length_that_join",
        "The loops are of equal length only where both counts are.",
        launches=(run(n=1, m=3), run(n=4, m=0)),
    ),
    legal(
        "a_join_whatever_a_parameter_is",
        "H70 H71",
        joined(n),
        "The parameter says nothing of the join.",
    ),
    broken(
        "a_join_but_for_one_remainder",
        "H70 H71",
        unless(eq(n % 11, 7), n),
        "RAW",
        "a_join_whatever_a_parameter_is",
        "The parameter stands in a guard only, and one value in eleven leaves the join out.",
        launches=trips(7, 18),
    ),
    legal(
        "a_join_however_three_sizes_lie",
        "H70 H71",
        joined(n, m, s),
        "The sizes say nothing of the join.",
        launches=(run(n=1, m=2, s=3), run(n=3, m=2, s=1)),
    ),
    broken(
        "a_join_but_for_three_sizes_in_order",
        "H70 H71",
        unless(both(n < m, m < s), n, m, s),
        "RAW",
        "a_join_however_three_sizes_lie",
        "Where the second of three sizes lies between the others there is no join.",
        launches=(run(n=1, m=2, s=3),),
    ),
)

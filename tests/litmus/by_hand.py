"""Pipelines as engineers write them: states that flip, rings of several rates, attention.

Each has faults that show late: after a lap, in the peeled step, for odd `n` only.
"""

from __future__ import annotations

from fuser.dtype import DType
from fuser.expr import Expr, Var, both, eq, minimum
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    NBYTES,
    ONE_CTA,
    PER_WARP,
    SHARED,
    WGMMA,
    XN,
    YN,
    Body,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fill,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    q,
    said,
    slots,
    store,
    t,
    tensor,
    trips,
    wait,
    zero,
)

X, Z, SUM = fragment("x"), fragment("z"), fragment("sum")
ZN = tensor("Z", n)
slot, phase, a, b = Var("slot"), Var("phase"), Var("a"), Var("b")


def full(of: kir.MBarrier, at: Expr) -> kir.Stmt:
    """Wait until position `at` is filled."""
    return wait(of, at % of.slots, at // of.slots)


def room(of: kir.MBarrier, at: Expr) -> kir.Stmt:
    """Wait until the slot of position `at` is free."""
    return wait(of, at % of.slots, at // of.slots + 1)


def free(of: kir.MBarrier, at: Expr, times: int = 1) -> kir.Elect:
    """Arrive by one thread."""
    return elect(*(kir.MBarrierArrive(of, at) for _ in range(times)))


def pair(name: str, stages: int, arrivals: int = 1) -> tuple[kir.MBarrier, kir.MBarrier]:
    """Return the barriers of a ring."""
    return kir.MBarrier(f"full_{name}", arrivals, stages), kir.MBarrier(f"empty_{name}", 1, stages)


def roles(*bodies: Body) -> Body:
    """Give each body a warp."""
    return tuple(kir.Role(f"role{i}", i, 1, body) for i, body in enumerate(bodies))


def moves(var: Var) -> kir.Assign:
    """Go on by one."""
    return kir.Assign(var, var + 1)


# --- how a ring is walked -----------------------------------------------------------------------


def flipped(wraps: int = 3, flips: str = "wrap flip") -> kir.Kernel:
    """Slot and phase are variables: the slot wraps and the phase flips; `wraps` is the load's."""
    buffer, (filled, empty) = slots("S", 3), pair("s", 3)

    def on(end: int, then: str) -> Body:
        words: dict[str, kir.Stmt] = {
            "wrap": kir.Assign(slot, 0),
            "flip": kir.Assign(phase, 1 - phase),
            "flip_later": kir.IfThenElse(k > 3, (kir.Assign(phase, 1 - phase),)),
        }
        return moves(slot), kir.IfThenElse(eq(slot, end), said(then, words))

    at = kir.Slot(buffer, slot)
    use = (
        kir.MBarrierWaitParity(filled, slot, phase),
        load(X, at),
        kir.WarpSync(),
        free(empty, slot),
    )
    seen = kir.MBarrierWaitParity(empty, slot, phase)
    feed = elect(seen, *fill(at, box(XN, k), filled, slot))
    body = roles(
        (kir.Let(slot, 0), kir.Let(phase, 0),
         kir.ForLoop(k, n, (*use, *on(3, flips), store(box(YN, k), X)))),
        (kir.Let(slot, 0), kir.Let(phase, 1),
         kir.ForLoop(k, n, (feed, *on(wraps, "wrap flip")))),
    )  # fmt: skip
    start = init(filled, empty), kir.BlockSync(0, 64)
    return kernel((*start, *body), threads=64, buffers=(buffer,), barriers=(filled, empty))


def two_rates(release: str = "odd_or_last") -> kir.Kernel:
    """A tile of Z serves two steps, and rests of one; m times, in rings of 3 and of 2 slots."""
    xs, zs = slots("SX", 3), slots("SZ", 2, 3 * NBYTES)
    (full_x, empty_x), (full_z, empty_z) = pair("x", 3), pair("z", 2)
    x, z, y = (tensor(name, m * n) for name in "XZY")
    number, even = t * n + k, eq(k % 2, 0)
    done: dict[str, Expr] = {
        "odd_or_last": (eq(k % 2, 1) + eq(k, n - 1)) > 0, "odd": eq(k % 2, 1), "even": even,
    }  # fmt: skip
    use = (
        full(full_x, a), kir.IfThenElse(even, (full(full_z, b),)),
        load(X, kir.Slot(xs, a % 3)), load(Z, kir.Slot(zs, b % 2)),
        kir.WarpSync(), free(empty_x, a % 3), moves(a),
        kir.IfThenElse(done[release], (free(empty_z, b % 2), moves(b))),
        kir.Compute(SUM, "add", (X, Z)), store(box(y, number), SUM),
    )  # fmt: skip
    feed_z = elect(room(empty_z, b), *fill(kir.Slot(zs, b % 2), box(z, number), full_z, b % 2))
    feed = (
        elect(room(empty_x, a), *fill(kir.Slot(xs, a % 3), box(x, number), full_x, a % 3)),
        moves(a),
        kir.IfThenElse(even, (feed_z, moves(b))),
    )
    bars = full_x, empty_x, full_z, empty_z
    start = kir.Let(a, 0), kir.Let(b, 0), init(*bars), kir.BlockSync(0, 64)
    body = roles(*((kir.ForLoop(t, m, (kir.ForLoop(k, n, part),)),) for part in (use, feed)))
    return kernel((*start, *body), threads=64, buffers=(xs, zs), barriers=bars,
                  tensors=(x, z, y), params=(n, m))  # fmt: skip


def three_rings(*, late: bool = False) -> kir.Kernel:
    """Rings of 5, 7 and 3 slots through one loop: the same place of all comes after 105 steps."""
    made = [(slots("SX", 5), XN), (slots("SZ", 7, 5 * NBYTES), ZN)]
    made.append((slots("SV", 3, 12 * NBYTES), tensor("V", n)))
    bars = [pair(buffer.name, buffer.slots) for buffer, _ in made]
    held, use, feed = [X, Z, fragment("v")], [], []
    for (buffer, of), (filled, empty), tile in zip(made, bars, held, strict=True):
        at = k % buffer.slots
        use += [full(filled, k), load(tile, kir.Slot(buffer, at))]
        use += [kir.WarpSync(), free(empty, at)]
        ask = room(empty, k)
        if late and buffer.slots == 3:
            ask = kir.IfThenElse(eq(k % 35, 34), (), (ask,))
        feed.append(elect(ask, *fill(kir.Slot(buffer, at), box(of, k), filled, at)))
    use += [kir.Compute(SUM, "add", (X, Z)), store(box(YN, k), SUM)]
    body = roles((kir.ForLoop(k, n, tuple(use)),), (kir.ForLoop(k, n, tuple(feed)),))
    every = tuple(bar for two in bars for bar in two)
    return kernel(
        (init(*every), kir.BlockSync(0, 64), *body), threads=64, barriers=every,
        buffers=tuple(buffer for buffer, _ in made), tensors=(*(of for _, of in made), YN),
    )  # fmt: skip


# --- who fills, and on which barrier ------------------------------------------------------------


def in_turn(second: str = "room_after_x") -> kir.Kernel:
    """One barrier is X's in even phases and Z's in odd ones, and so is the other way round."""
    xs, zs, (filled, empty) = slots("SX"), slots("SZ", 1, NBYTES), pair("s", 1)
    ways: dict[str, Body] = {
        "room_after_x": (wait(empty, 0, k * 2),),
        "room_a_step_before": (kir.IfThenElse(k > 0, (wait(empty, 0, k * 2 - 2),)),),
    }
    use = (
        wait(filled, 0, k * 2), load(X, kir.Slot(xs, 0)), kir.WarpSync(), free(empty, 0),
        wait(filled, 0, k * 2 + 1), load(Z, kir.Slot(zs, 0)), kir.WarpSync(), free(empty, 0),
        kir.Compute(SUM, "add", (X, Z)), store(box(YN, k), SUM),
    )  # fmt: skip
    feed = elect(
        kir.IfThenElse(k > 0, (wait(empty, 0, k * 2 - 1),)),
        *fill(kir.Slot(xs, 0), box(XN, k), filled),
        *ways[second],
        *fill(kir.Slot(zs, 0), box(ZN, k), filled),
    )
    body = roles((kir.ForLoop(k, n, use),), (kir.ForLoop(k, n, (feed,)),))
    return kernel((init(filled, empty), kir.BlockSync(0, 64), *body), threads=64,
                  buffers=(xs, zs), barriers=(filled, empty), tensors=(XN, ZN, YN))  # fmt: skip


def two_engines(copies: str = "room copy arrive") -> kir.Kernel:
    """A phase is over when a TMA load and the cp.async of 32 threads of another role are."""
    xs, zs = slots("SX", 2), slots("SZ", 2, 2 * NBYTES)
    (filled, empty), at = pair("s", 2, 33), k % 2
    words: dict[str, kir.Stmt] = {
        "room": room(empty, k),
        "copy": kir.CpAsync(kir.Slot(zs, at), box(ZN, k), Z.layout, 4),
        "arrive": kir.CpAsyncMBarrierArrive(filled, at, noinc=True),
        "plain": kir.MBarrierArrive(filled, at),
    }
    use = (
        full(filled, k), load(X, kir.Slot(xs, at)), load(Z, kir.Slot(zs, at)),
        kir.WarpSync(), free(empty, at),
        kir.Compute(SUM, "add", (X, Z)), store(box(YN, k), SUM),
    )  # fmt: skip
    feed = elect(room(empty, k), *fill(kir.Slot(xs, at), box(XN, k), filled, at))
    body = roles(*((kir.ForLoop(k, n, part),) for part in (use, (feed,), said(copies, words))))
    return kernel((init(filled, empty), kir.BlockSync(0, 96), *body), threads=96,
                  buffers=(xs, zs), barriers=(filled, empty), tensors=(XN, ZN, YN))  # fmt: skip


def refilled(engine: str = "ready send commit read refill", keep: int = 1) -> kir.Kernel:
    """A tile is doubled in its slot and leaves from there; who sends it refills the one before."""
    buffer, at, later = slots("S", 3), k % 3, k + 2
    filled, ready = kir.MBarrier("filled", 1, 3), kir.MBarrier("ready", 32, 3)
    again = fill(kir.Slot(buffer, later % 3), box(XN, later), filled, later % 3)
    words: dict[str, kir.Stmt] = {
        "ready": full(ready, k),
        "send": kir.TmaStore(box(YN, k), kir.Slot(buffer, at)),
        "commit": kir.AsyncCommit(BULK),
        "commit_later": kir.IfThenElse(k >= 1, (kir.AsyncCommit(BULK),)),
        "read": kir.AsyncAwait(BULK, keep, read_only=True),
        "refill": kir.IfThenElse(both(k >= 1, later < n), again),
    }
    use = (
        full(filled, k), load(X, kir.Slot(buffer, at)), kir.Compute(SUM, "add", (X, X)),
        store(kir.Slot(buffer, at), SUM), kir.FenceAsyncProxy(SHARED),
        kir.MBarrierArrive(ready, at),
    )  # fmt: skip
    first = elect(*fill(kir.Slot(buffer, q), box(XN, q), filled, q))
    send = (
        kir.ForLoop(q, minimum(n, 3), (first,)),
        kir.ForLoop(k, n, (elect(*said(engine, words)),)),
        elect(kir.AsyncAwait(BULK, 0, read_only=True)),
    )
    body = roles((kir.ForLoop(k, n, use),), send)
    return kernel((init(filled, ready), kir.BlockSync(0, 64), *body), threads=64,
                  buffers=(buffer,), barriers=(filled, ready))  # fmt: skip


# --- attention ----------------------------------------------------------------------------------

PIPELINED = "scores values done_1 free_k done free_v weights"


def attention(
    step: str = PIPELINED, last: str = "values_end done_end out", v: int = 3
) -> kir.Kernel:
    """Q once, rings of K and V; scores of a step are in flight with the values of the one before.

    The weights are a register operand; V's slots are counted by `v` where the product reads them.
    """
    strips = kir.Layout((64, 16), 2, 128, kir.Deal.STRIPS)
    s, o = kir.Fragment("s", DType.F32, strips), kir.Fragment("o", DType.F32, strips)
    w = kir.Fragment("w", DType.BF16, strips)
    tensors = tuple(
        kir.Tensor(name, dtype, (rows, 16), (16, 1), 8)
        for name, dtype, rows in (
            ("Q", DType.BF16, 64), ("K", DType.BF16, n * 16), ("V", DType.BF16, n * 16),
            ("Y", DType.F32, 64),
        )
    )  # fmt: skip
    sq = kir.Buffer("SQ", DType.BF16, (64, 16), 1, 0, 32)
    sk = kir.Buffer("SK", DType.BF16, (16, 16), 2, sq.end, 32)
    sv = kir.Buffer("SV", DType.BF16, (16, 16), 3, sk.end, 32)
    full_q, full_k, full_v = (kir.MBarrier(f"full{b.name}", 1, b.slots) for b in (sq, sk, sv))
    empty_k, empty_v = (kir.MBarrier(f"empty{b.name}", 4, b.slots) for b in (sk, sv))

    def scores(at: Expr) -> Body:
        of = kir.Wgmma(s, kir.Slot(sq, 0), kir.Slot(sk, at % 2), 0)
        return full(full_k, at), kir.WgmmaFence(), of, kir.AsyncCommit(WGMMA)

    def values(at: Expr) -> Body:
        of = kir.Wgmma(o, w, kir.Slot(sv, at % v), b_transposed=True)
        return full(full_v, at), kir.WgmmaFence(), of, kir.AsyncCommit(WGMMA)

    def say(sentence: str, at: Expr) -> Body:
        def freed(of: kir.MBarrier, number: Expr) -> kir.Elect:
            return kir.Elect(PER_WARP, (kir.MBarrierArrive(of, number % of.slots),))

        words: dict[str, Body] = {
            "first": scores(0), "scores": scores(at + 1), "values": values(at),
            "values_end": values(n - 1),
            "done": (kir.AsyncAwait(WGMMA, 0),), "done_1": (kir.AsyncAwait(WGMMA, 1),),
            "done_end": (kir.AsyncAwait(WGMMA, 0),),
            "free_first": (freed(empty_k, 0),), "free_k": (freed(empty_k, at + 1),),
            "free_v": (freed(empty_v, at),),
            "weights": (kir.Compute(w, "cast", (s,)),),
            "out": (kir.Store(tile(tensors[3], 0, 64), o, 2),),
        }  # fmt: skip
        return tuple(stmt for word in sentence.split() for stmt in words[word])

    def tile(of: kir.Tensor, at: Expr, rows: int = 16) -> kir.Box:
        return kir.Box(of, (at * rows, 0), (rows, 16), of.extents)

    use = (
        zero(o), wait(full_q, 0, 0), *say("first done free_first weights", 0),
        kir.ForLoop(k, n - 1, say(step, k)), *say(last, 0),
    )  # fmt: skip
    feed = (
        elect(*fill(kir.Slot(sq, 0), tile(tensors[0], 0, 64), full_q)),
        kir.ForLoop(k, n, (
            elect(room(empty_k, k), *fill(kir.Slot(sk, k % 2), tile(tensors[1], k), full_k, k % 2)),
            elect(room(empty_v, k), *fill(kir.Slot(sv, k % 3), tile(tensors[2], k), full_v, k % 3)),
        )),
    )  # fmt: skip
    bars = full_q, full_k, full_v, empty_k, empty_v
    body = kir.Role("mma", 0, 4, use), kir.Role("load", 4, 1, feed)
    return kernel((init(*bars), kir.BlockSync(0, 160), *body), threads=160, buffers=(sq, sk, sv),
                  barriers=bars, tensors=tensors, requires=(ONE_CTA, n >= 1))  # fmt: skip


def of(*sizes: tuple[int, int]) -> tuple[Run, ...]:
    """Return launches by n and m."""
    return tuple(Run(1, (("n", one), ("m", other))) for one, other in sizes)


LITMUS: tuple[Litmus, ...] = (
    legal(
        "phase_that_flips",
        "H03 H15",
        flipped(),
        "the phase flips whenever the slot wraps, in both roles after three steps",
    ),
    broken(
        "phase_that_flips_a_step_early",
        "H03",
        flipped(wraps=2),
        "deadlock",
        "phase_that_flips",
        "the load wraps after two of three slots and waits for a slot that nobody has used",
    ),
    broken(
        "phase_that_flips_from_the_second_lap",
        "H03 H15",
        flipped(flips="wrap flip_later"),
        "RAW parity",
        "phase_that_flips",
        "in the second lap the reader waits for a phase that is long over",
    ),
    legal(
        "rings_of_two_rates",
        "H12 H13",
        two_rates(),
        "a slot of Z is freed by the second step that reads it, or by the last of an odd number",
        launches=of((0, 2), (1, 1), (2, 2), (3, 3), (5, 2)),
    ),
    broken(
        "rings_of_two_rates_and_odd_rests",
        "H12 H13",
        two_rates("odd"),
        "deadlock exit RAW parity",
        "rings_of_two_rates",
        "for odd n the last slot of Z is not freed, and the position stays behind the load's",
        launches=of((3, 3), (5, 3)),
    ),
    broken(
        "rings_of_two_rates_freed_at_once",
        "H05",
        two_rates("even"),
        "RAW WAR parity",
        "rings_of_two_rates",
        "the odd step reads the next slot of Z, for which nobody waited",
        launches=of((3, 3), (5, 2)),
    ),
    legal(
        "rings_of_five_seven_and_three",
        "H05 H16",
        three_rings(),
        "every ring is asked for room by its own position",
        launches=trips(0, 1, 3, 8, 15),
    ),
    broken(
        "no_room_at_the_35th_step",
        "H05",
        three_rings(late=True),
        "WAR WAW parity arrivals",
        "rings_of_five_seven_and_three",
        "a slot is overwritten that may be unread, for the first time where n is 35",
        launches=trips(35, 36),
    ),
    legal(
        "one_barrier_for_two_tensors_in_turn",
        "H04",
        in_turn(),
        "the second load waits until the first one's phase has been seen",
    ),
    broken(
        "one_barrier_for_two_tensors_at_once",
        "H04",
        in_turn("room_a_step_before"),
        "parity arrivals deadlock",
        "one_barrier_for_two_tensors_in_turn",
        "the phase of Z may be over before a thread has seen that of X",
        launches=trips(1, 5),
    ),
    legal(
        "tma_and_cp_async_on_one_barrier",
        "H09 H52",
        two_engines(),
        "one arrival and 512 bytes by the load, 32 arrivals by copies",
    ),
    broken(
        "cp_async_arrival_before_the_copy",
        "H52",
        two_engines("room arrive copy"),
        "RAW",
        "tma_and_cp_async_on_one_barrier",
        "the arrival is for copies before it",
    ),
    broken(
        "plain_arrival_beside_a_copy",
        "H52",
        two_engines("room copy plain"),
        "RAW",
        "tma_and_cp_async_on_one_barrier",
        "the phase may be over while the copy is in flight",
    ),
    legal(
        "slot_refilled_by_who_sent_it",
        "H30 H40 H44",
        refilled(),
        "one store is kept in flight, and the slot refilled is that of the store before it",
    ),
    broken(
        "slot_refilled_under_two_stores",
        "H40 H44",
        refilled(keep=2),
        "WAR",
        "slot_refilled_by_who_sent_it",
        "the store that reads the slot is one of the two that are kept",
    ),
    broken(
        "slot_refilled_before_the_await",
        "H40",
        refilled("ready send commit refill read"),
        "WAR",
        "slot_refilled_by_who_sent_it",
        "the await of an iteration before has kept the store that reads the slot",
    ),
    legal(
        "scores_in_flight_with_values",
        "H06 H22 H23",
        attention(),
        "scores are awaited by keeping the values, and weights rewritten when both are over",
        launches=trips(1, 2, 5),
    ),
    broken(
        "weights_rewritten_in_flight",
        "H23",
        attention("scores values done_1 free_k weights done free_v"),
        "WAR",
        "scores_in_flight_with_values",
        "the product with V reads the weights from registers until its group is over",
        launches=trips(2, 5),
    ),
    broken(
        "values_freed_in_flight",
        "H06",
        attention("scores values done_1 free_k free_v done weights"),
        "WAR",
        "scores_in_flight_with_values",
        "the group that is kept is the one that reads the slot of V",
        launches=trips(5, 6),
    ),
    broken(
        "values_by_the_slots_of_keys",
        "H02",
        attention(v=2),
        "RAW WAR",
        "scores_in_flight_with_values",
        "from the third step on the product reads another slot than the one that was waited for",
        launches=trips(3, 5),
    ),
    broken(
        "values_of_the_last_step_not_awaited",
        "H22 H13",
        attention(last="values_end out done_end"),
        "RAW",
        "scores_in_flight_with_values",
        "the result is stored while the peeled last product is in flight",
        launches=trips(1, 5),
    ),
)

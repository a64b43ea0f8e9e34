"""Kernels written by hand, with a switch for each sync, so that their truth is known.

All of them compute `out = in + in` over a 2-D tensor of `R` rows and `C` columns.  CTA `BLOCK`
takes the tiles `BLOCK + k * GRID`; `trips` is how many that are.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import Expr, Kind, Var, ceildiv, fold
from fuser.kernel import ir as kir

ROWS, COLS = 4, 64
"""Tile of every kernel here; 4 x 64 f32 are 1024 bytes."""
NBYTES = ROWS * COLS * 4
R, C, PITCH = Var("R"), Var("C"), Var("pitch")
K, TRIPS, TILE = Var("k"), Var("trips"), Var("tile")
WARPS = 4
"""Computing warps."""
LAYOUT = kir.Layout((ROWS, COLS), 4, 32 * WARPS)
X = kir.Fragment("x", DType.F32, LAYOUT)
Y = kir.Fragment("y", DType.F32, LAYOUT)
T0 = kir.Tensor("T0", DType.F32, (R, C), (PITCH, 1), 4)
T1 = kir.Tensor("T1", DType.F32, (R, C), (PITCH, 1), 4)


def box(tensor: kir.Tensor, k: Expr = K) -> kir.Box:
    """Tile number k of this CTA."""
    tiles_c = ceildiv(C, COLS)
    tile = kir.BLOCK + k * kir.GRID
    return kir.Box(
        tensor, ((tile // tiles_c) * ROWS, (tile % tiles_c) * COLS), (ROWS, COLS), (R, C)
    )


def trips() -> kir.Let:
    """How many tiles this CTA takes."""
    tiles = ceildiv(R, ROWS) * ceildiv(C, COLS)
    return kir.Let(TRIPS, ceildiv(tiles - kir.BLOCK, kir.GRID))


def kernel(
    name: str,
    body: list[kir.Stmt],
    *,
    buffers: tuple[kir.Buffer, ...] = (),
    barriers: tuple[kir.MBarrier, ...] = (),
    threads: int = 32 * WARPS,
) -> kir.Kernel:
    """A kernel over T0 and T1 with this body."""
    return kir.Kernel(
        name=name,
        params=(R, C, PITCH),
        tensors=(T0, T1),
        scalars=(),
        buffers=buffers,
        barriers=barriers,
        threads=threads,
        body=(trips(), *body),
        outputs=("T1",),
    )


def add() -> kir.Compute:
    """Y = x + x."""
    return kir.Compute(Y, "add", (X, X))


def direct() -> kir.Kernel:
    """No asynchronous copy at all."""
    loop = kir.ForLoop(K, TRIPS, (kir.Load(X, box(T0), 4), add(), kir.Store(box(T1), Y, 4)))
    return kernel("direct", [loop])


def pipelined(
    stages: int,
    prefetch: int,
    *,
    init_sync: bool = True,
    expect: bool = True,
    nbytes: int = NBYTES,
    full: bool = True,
    war_sync: bool = True,
    parity: int = 0,
    slots: int | None = None,
) -> kir.Kernel:
    """One role: thread 0 loads tile k + prefetch while all compute tile k, a BlockSync for WAR."""
    ring = kir.Buffer("S0", DType.F32, (ROWS, COLS), slots or stages, 0)
    bar = kir.MBarrier("full", 1, stages)

    def issue(k: Expr) -> kir.Stmt:
        load: list[kir.Stmt] = []
        if expect:
            load.append(kir.MBarrierArriveExpectTx(bar, k % stages, nbytes))
        load.append(kir.TmaLoad(kir.Slot(ring, k % (slots or stages)), box(T0, k), bar, k % stages))
        return kir.Elect(kir.Per.ROLE, tuple(load))

    j = Var("j")
    body: list[kir.Stmt] = [
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(bar), kir.FenceMBarrierInit()))
    ]
    if init_sync:
        body.append(kir.BlockSync(0, 32 * WARPS))
    if prefetch:
        first = (kir.IfThenElse(j < TRIPS, (issue(j),)),)
        body.append(kir.ForLoop(j, prefetch, first))
    main: list[kir.Stmt] = [kir.IfThenElse(K + prefetch < TRIPS, (issue(K + prefetch),))]
    if full:
        main.append(kir.MBarrierWaitParity(bar, K % stages, (K // stages + parity) % 2))
    main += [
        kir.Load(X, kir.Slot(ring, K % (slots or stages)), 4),
        add(),
        kir.Store(box(T1), Y, 4),
    ]
    if war_sync:
        main.append(kir.BlockSync(0, 32 * WARPS))
    body.append(kir.ForLoop(K, TRIPS, tuple(main)))
    return kernel("pipelined", body, buffers=(ring,), barriers=(bar,))


def specialized(
    stages: int,
    *,
    init_sync: bool = True,
    empty_wait: bool = True,
    empty_parity: int = 1,
    full: bool = True,
    arrive: bool = True,
    warp_sync: bool = True,
    arrive_early: bool = False,
    nbytes: int = NBYTES,
    arrivals: int = WARPS,
    extra_load: int = 0,
) -> kir.Kernel:
    """A load role of one warp and a compute role of four; an arrival per warp frees a slot."""
    ring = kir.Buffer("S0", DType.F32, (ROWS, COLS), stages, 0)
    full_bar = kir.MBarrier("full", 1, stages)
    empty_bar = kir.MBarrier("empty", arrivals, stages)
    slot = K % stages
    load: list[kir.Stmt] = []
    if empty_wait:
        load.append(kir.MBarrierWaitParity(empty_bar, slot, (K // stages + empty_parity) % 2))
    load += [
        kir.MBarrierArriveExpectTx(full_bar, slot, nbytes),
        kir.TmaLoad(kir.Slot(ring, slot), box(T0), full_bar, slot),
    ]
    use: list[kir.Stmt] = []
    free: list[kir.Stmt] = []
    if full:
        use.append(kir.MBarrierWaitParity(full_bar, slot, (K // stages) % 2))
    if warp_sync:
        free.append(kir.WarpSync())
    if arrive:
        free.append(kir.Elect(kir.Per.WARP, (kir.MBarrierArrive(empty_bar, slot),)))
    read: list[kir.Stmt] = [kir.Load(X, kir.Slot(ring, slot), 4)]
    use += free + read if arrive_early else read + free
    use += [add(), kir.Store(box(T1), Y, 4)]
    init = (kir.MBarrierInit(full_bar), kir.MBarrierInit(empty_bar), kir.FenceMBarrierInit())
    body: list[kir.Stmt] = [kir.Elect(kir.Per.ROLE, init)]
    if init_sync:
        body.append(kir.BlockSync(0, 32 * (WARPS + 1)))
    produce = kir.ForLoop(K, TRIPS + extra_load, tuple(load))
    body += [
        kir.Role("load", WARPS, 1, (kir.Elect(kir.Per.ROLE, (produce,)),)),
        kir.Role("compute", 0, WARPS, (kir.ForLoop(K, TRIPS, tuple(use)),)),
    ]
    return kernel(
        "specialized",
        body,
        buffers=(ring,),
        barriers=(full_bar, empty_bar),
        threads=32 * (WARPS + 1),
    )


def staged(
    slots: int,
    *,
    await_reads: bool = True,
    keep: int | None = None,
    free_sync: bool = True,
    fence: bool = True,
    ready_sync: bool = True,
    commit: bool = True,
    final_await: bool = True,
    fence_late: bool = False,
) -> kir.Kernel:
    """Direct loads; the result leaves through `slots` shared slots and TMA stores."""
    ring = kir.Buffer("S1", DType.F32, (ROWS, COLS), slots, 0)
    slot = kir.Slot(ring, K % slots)
    left = slots - 1 if keep is None else keep
    main: list[kir.Stmt] = [kir.Load(X, box(T0), 4), add()]
    if await_reads:
        main.append(
            kir.Elect(kir.Per.ROLE, (kir.AsyncAwait(kir.AsyncKind.BULK, left, read_only=True),))
        )
    if free_sync:
        main.append(kir.BlockSync(0, 32 * WARPS))
    main.append(kir.Store(slot, Y, 4))
    if fence and not fence_late:
        main.append(kir.FenceAsyncProxy(kir.Space.SHARED))
    if ready_sync:
        main.append(kir.BlockSync(0, 32 * WARPS))
    if fence and fence_late:
        main.append(kir.FenceAsyncProxy(kir.Space.SHARED))
    out: list[kir.Stmt] = [kir.TmaStore(box(T1), slot)]
    if commit:
        out.append(kir.AsyncCommit(kir.AsyncKind.BULK))
    main.append(kir.Elect(kir.Per.ROLE, tuple(out)))
    body: list[kir.Stmt] = [kir.ForLoop(K, TRIPS, tuple(main))]
    if final_await:
        body.append(
            kir.Elect(kir.Per.ROLE, (kir.AsyncAwait(kir.AsyncKind.BULK, 0, read_only=True),))
        )
    return kernel("staged", body, buffers=(ring,))


def handed(
    stages: int,
    *,
    fence: str = "writer",
    ready: bool = True,
    free: bool = True,
    warp_sync: bool = True,
    final_await: bool = True,
) -> kir.Kernel:
    """Fill slots by computing warps, send them away by a store role; mbarriers both ways.

    `fence` is "writer" (every writing thread, before its arrive), "late" (the same threads,
    after it), "observer" (the storing thread, after its wait), "leader" (only the arriving
    lane of each warp, after the WarpSync) or "none".
    """
    ring = kir.Buffer("S1", DType.F32, (ROWS, COLS), stages, 0)
    ready_bar = kir.MBarrier("ready", WARPS, stages)
    free_bar = kir.MBarrier("free", 1, stages)
    slot, turn = K % stages, K // stages
    shared = kir.Space.SHARED
    fill: list[kir.Stmt] = [kir.Load(X, box(T0), 4), add()]
    if free:
        fill.append(kir.MBarrierWaitParity(free_bar, slot, (turn + 1) % 2))
    fill.append(kir.Store(kir.Slot(ring, slot), Y, 4))
    if fence == "writer":
        fill.append(kir.FenceAsyncProxy(shared))
    if warp_sync:
        fill.append(kir.WarpSync())
    hand: list[kir.Stmt] = [kir.FenceAsyncProxy(shared)] if fence == "leader" else []
    fill.append(kir.Elect(kir.Per.WARP, (*hand, kir.MBarrierArrive(ready_bar, slot))))
    if fence == "late":
        fill.append(kir.FenceAsyncProxy(shared))
    send: list[kir.Stmt] = []
    if ready:
        send.append(kir.MBarrierWaitParity(ready_bar, slot, turn % 2))
    if fence == "observer":
        send.append(kir.FenceAsyncProxy(shared))
    send += [
        kir.TmaStore(box(T1), kir.Slot(ring, slot)),
        kir.AsyncCommit(kir.AsyncKind.BULK),
        kir.AsyncAwait(kir.AsyncKind.BULK, 0, read_only=True),
        kir.MBarrierArrive(free_bar, slot),
    ]
    if not final_await:
        send.pop(-2)
    init = (kir.MBarrierInit(ready_bar), kir.MBarrierInit(free_bar), kir.FenceMBarrierInit())
    body: list[kir.Stmt] = [
        kir.Elect(kir.Per.ROLE, init),
        kir.BlockSync(0, 32 * (WARPS + 1)),
        kir.Role("compute", 0, WARPS, (kir.ForLoop(K, TRIPS, tuple(fill)),)),
        kir.Role(
            "store", WARPS, 1, (kir.Elect(kir.Per.ROLE, (kir.ForLoop(K, TRIPS, tuple(send)),)),)
        ),
    ]
    return kernel(
        "handed", body, buffers=(ring,), barriers=(ready_bar, free_bar), threads=32 * (WARPS + 1)
    )


def relaid(*, sync: str = "block", same: bool = False, free: bool = True) -> kir.Kernel:
    """Take a tile through shared memory from one layout to another.

    `sync` stands between write and read: "block", "warp" or "none".  Under the `same` layout
    every thread reads what it wrote itself, so that none is needed.
    """
    tile = kir.Buffer("S0", DType.F32, (ROWS, COLS), 1, 0)
    scattered = kir.Layout((ROWS, COLS), 2, 32 * WARPS)
    z = kir.Fragment("z", DType.F32, LAYOUT if same else scattered)
    between: dict[str, list[kir.Stmt]] = {
        "block": [kir.BlockSync(0, 32 * WARPS)],
        "warp": [kir.WarpSync()],
        "none": [],
    }
    main: list[kir.Stmt] = [
        kir.Load(X, box(T0), 4),
        add(),
        kir.Store(kir.Slot(tile, 0), Y, 4),
        *between[sync],
        kir.Load(z, kir.Slot(tile, 0), 2),
        kir.Store(box(T1), z, 2),
    ]
    if free:
        main.append(kir.BlockSync(0, 32 * WARPS))
    return kernel("relaid", [kir.ForLoop(K, TRIPS, tuple(main))], buffers=(tile,))


def combined(
    stages: int,
    prefetch: int,
    store_slots: int,
    *,
    inputs: int = 2,
    specialized: bool = False,
    store_sync: bool = True,
    await_reads: bool = True,
    fence: bool = True,
    ready_sync: bool = True,
    read_fence: bool = False,
    nbytes: int | None = None,
) -> kir.Kernel:
    """Several rings behind one full barrier a stage, and a ring of stores, in one loop.

    All inputs are tiles of T0.  `prefetch` counts for the kernel of one role only; there the sync
    before the stores also frees the slots of the inputs.
    """
    size = ROWS * COLS * 4
    rings = [
        kir.Buffer(f"S{i}", DType.F32, (ROWS, COLS), stages, i * stages * size)
        for i in range(inputs)
    ]
    out = kir.Buffer("S_out", DType.F32, (ROWS, COLS), store_slots, inputs * stages * size)
    full = kir.MBarrier("full", 1, stages)
    empty = kir.MBarrier("empty", WARPS, stages)
    threads = 32 * (WARPS + specialized)
    group = kir.BlockSync(1, 32 * WARPS) if specialized else kir.BlockSync(0, threads)
    elect = kir.Per.ROLE

    def issue(k: Expr) -> list[kir.Stmt]:
        s = k % stages
        total = inputs * size if nbytes is None else nbytes
        loads = [kir.TmaLoad(kir.Slot(r, s), box(T0, k), full, s) for r in rings]
        return [kir.MBarrierArriveExpectTx(full, s, total), *loads]

    frags = [kir.Fragment(f"x{i}", DType.F32, LAYOUT) for i in range(inputs)]
    slot = K % stages
    use: list[kir.Stmt] = [kir.MBarrierWaitParity(full, slot, (K // stages) % 2)]
    use += [kir.Load(f, kir.Slot(r, slot), 4) for f, r in zip(frags, rings, strict=True)]
    if read_fence:
        use.append(kir.FenceAsyncProxy(kir.Space.SHARED))
    if specialized:
        use += [kir.WarpSync(), kir.Elect(kir.Per.WARP, (kir.MBarrierArrive(empty, slot),))]
    use.append(kir.Compute(Y, "add", (frags[0], frags[-1])))
    if await_reads:
        wait = kir.AsyncAwait(kir.AsyncKind.BULK, store_slots - 1, read_only=True)
        use.append(kir.Elect(elect, (wait,)))
    if store_sync:
        use.append(kir.BlockSync(group.barrier, group.threads))
    use.append(kir.Store(kir.Slot(out, K % store_slots), Y, 4))
    if fence:
        use.append(kir.FenceAsyncProxy(kir.Space.SHARED))
    if ready_sync:
        use.append(kir.BlockSync(group.barrier, group.threads))
    send = (
        kir.TmaStore(box(T1), kir.Slot(out, K % store_slots)),
        kir.AsyncCommit(kir.AsyncKind.BULK),
    )
    use.append(kir.Elect(elect, send))
    last = kir.Elect(elect, (kir.AsyncAwait(kir.AsyncKind.BULK, 0, read_only=True),))
    init: list[kir.Stmt] = [kir.MBarrierInit(full)]
    if specialized:
        init.append(kir.MBarrierInit(empty))
    body: list[kir.Stmt] = [kir.Elect(elect, tuple(init)), kir.BlockSync(0, threads)]
    if specialized:
        free = kir.MBarrierWaitParity(empty, slot, (K // stages + 1) % 2)
        produce = kir.ForLoop(K, TRIPS, (free, *issue(K)))
        body += [
            kir.Role("load", WARPS, 1, (kir.Elect(elect, (produce,)),)),
            kir.Role("compute", 0, WARPS, (kir.ForLoop(K, TRIPS, tuple(use)), last)),
        ]
    else:
        j = Var("j")
        ahead = K + prefetch
        if prefetch:
            first = kir.IfThenElse(j < TRIPS, (kir.Elect(elect, tuple(issue(j))),))
            body.append(kir.ForLoop(j, prefetch, (first,)))
        more = kir.IfThenElse(fold(Kind.LT, ahead, TRIPS), (kir.Elect(elect, tuple(issue(ahead))),))
        body += [kir.ForLoop(K, TRIPS, (more, *use)), last]
    barriers = (full, empty) if specialized else (full,)
    return kernel("combined", body, buffers=(*rings, out), barriers=barriers, threads=threads)


def unaligned(of: kir.Kernel) -> kir.Kernel:
    """Return the kernel with an output whose rows may end anywhere."""
    loose = replace(T1, aligned=1)

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.TmaStore):
            return [replace(stmt, dst=replace(stmt.dst, tensor=loose))]
        return None

    return replace(of.rewrite(rule), tensors=(T0, loose))

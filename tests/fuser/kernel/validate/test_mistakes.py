"""Every error that a person can make when writing a kernel by hand gets a message and a way out.

Here: the launch, names, memory, variables, roles, elections and syncs.  Each case is a legal kernel
with one thing wrong; the message quotes the line, or the declaration.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_parts import (
    ACC,
    BAR,
    BULK,
    FRAG_A,
    FRAG_B,
    GROUP,
    INDEX,
    LEGAL,
    LOST,
    SA,
    SB,
    SY,
    TURNS,
    WARP,
    WGMMA,
    X_BOX,
    Y_BOX,
    J,
    M,
    N,
    X,
    Y,
    alone,
    clustered,
    declared,
    kernel,
    load,
    loop,
    mapped,
    one,
    refused,
    role,
)

from fuser.dtype import DType
from fuser.expr import Var, eq
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import problems, validate

NUMBER = kir.Buffer("NUMBER", DType.I32, (1,), 1, 1 << 16)


def drawing(*body: kir.Stmt) -> kir.Kernel:
    """A kernel that draws numbers."""
    made = kernel(*body)
    return replace(made, buffers=(*made.buffers, NUMBER), semaphores=(), counters=("next",))


MISTAKES: dict[str, tuple[str, kir.Kernel]] = {
    # --- the launch ---
    "threads": ("k has 100 threads; use a multiple of 32, at most 1024", kernel(threads=100)),
    "too many threads": ("k has 1056 threads", kernel(threads=1056, registers=0)),
    "no cluster": ("clusters of 0 CTAs; use 1 to 16", kernel(cluster=0)),
    "large cluster": ("clusters of 17 CTAs; use 1 to 16", kernel(cluster=17)),
    "residency": (
        "residency 'all'; pick one of any, ticket, co-resident",
        kernel(residency="all"),
    ),
    "determinism": (
        "determinism 'maybe'; pick one of bitwise, unordered",
        kernel(determinism="maybe"),
    ),
    "early output": (
        "lists Y as early and writes it; early tensors are only read",
        kernel(dependent=True, early=("Y",)),
    ),
    "maps of an undeclared tensor": (
        "maps is of Q, which the kernel does not declare; add it to Kernel.tensors",
        mapped(replace(X, name="Q")),
    ),
    "maps that begin anywhere": (
        "maps is of X, aligned to 1 elements of 2 bytes; a map begins at a multiple of 16 bytes",
        mapped(replace(X, aligned=1), tensors=(replace(X, aligned=1), Y)),
    ),
    "no maps": ("maps has 0 tensor maps; use one or more", mapped(X, slots=0)),
    "maps named as a tensor": (
        "k has a tensor and tensor maps named X; rename one",
        mapped(X, name="X"),
    ),
    "maps of no copy": (
        r"TensorMaps\(maps\): copies of 0 forms go through them; a map has one box",
        kernel(maps=(kir.TensorMaps("maps", X, 2),)),
    ),
    "undeclared maps": (
        "uses tensor maps that the kernel does not declare; add maps to Kernel.maps",
        kernel(one(kir.TensorMapAcquire(kir.TensorMaps("maps", X, 2), 0))),
    ),
    "a map that there is not": (
        "uses map 2; maps has 0..1: take the position % 2",
        mapped(X, kir.TensorMapAcquire(kir.TensorMaps("maps", X, 2), 2)),
    ),
    "a map that begins inside of 16 bytes": (
        "a map from or to column 4, of 2 bytes each; rows of a map begin and end at multiples of",
        mapped(X, origin=(0, 4)),
    ),
    "a map of another rank": (
        "TensorMapReplace of maps: 1 numbers of an origin and 2 of a limit, 2 extents; give",
        mapped(X, origin=(0,)),
    ),
    "a map written by all": (
        "is executed by 160 threads; it must be issued by one thread",
        mapped(
            X,
            kir.TensorMapReplace(kir.MapSlot(kir.TensorMaps("maps", X, 2), 0, (0, 0)), (M, N)),
        ),
    ),
    "unknown early tensor": (
        "lists early Q, which is no tensor of it",
        kernel(dependent=True, early=("Q",)),
    ),
    "registers of a launch": (
        "100 registers per thread; use a multiple of 8",
        kernel(registers=100),
    ),
    "too many registers": (
        "wants 256 registers for each of 512 threads, the SM has 65536",
        kernel(threads=512, registers=256),
    ),
    "unknown in requires": (
        r"`requires \(lost == 1\)` uses lost, .*Kernel.params",
        kernel(requires=(eq(LOST, 1),)),
    ),
    "a CTA in requires": (
        "uses blockIdx, which is neither a parameter",
        kernel(requires=(eq(kir.BLOCK, 1),)),
    ),
    "unknown in a semaphore": (
        "`semaphore s` uses lost",
        kernel(semaphores=(kir.Semaphore("s", LOST),)),
    ),
    "empty semaphore": (
        "semaphore s has 0 integers; declare at least 1",
        kernel(semaphores=(kir.Semaphore("s", 0),)),
    ),
    # --- names ---
    "two tensors": ("two tensors or scalars named X; rename one", kernel(tensors=(X, Y, X))),
    "tensor and scalar": (
        "two tensors or scalars named X",
        kernel(scalars=(kir.ScalarParam("X", DType.F32),)),
    ),
    "two buffers": ("two shared buffers or mbarriers named SA", kernel(buffers=(SA, SA))),
    "buffer and mbarrier": (
        "two shared buffers or mbarriers named SA",
        kernel(barriers=(replace(BAR, name="SA"),)),
    ),
    "two semaphores": ("two semaphores named turns", kernel(semaphores=(TURNS, TURNS))),
    "two parameters": ("two parameters named M", kernel(params=(M, N, M))),
    "two outputs": ("two outputs named Y", kernel(outputs=("Y", "Y"))),
    "a parameter of the launch": (
        "has a parameter gridDim, which the launch gives",
        kernel(params=(M, N, kir.GRID)),
    ),
    "output": ("lists output Z, which is no tensor of it; add it", kernel(outputs=("Z",))),
    "workspace": ("lists workspace Z, which is no tensor of it", kernel(workspaces=("Z",))),
    "both": ("lists Y as output and as workspace; keep one", kernel(workspaces=("Y",))),
    "two roles": (
        "have one name; rename one",
        kernel(role(), role(first=4, warps=1)),
    ),
    "same object": (
        "is the same object twice; build it anew",
        kernel(*[kir.WarpSync()] * 2),
    ),
    # --- tensors, buffers, barriers ---
    "strides": (
        "tensor X has 2 extents and 1 strides",
        kernel(tensors=(replace(X, strides=(1,)), Y)),
    ),
    "alignment of a tensor": (
        "aligned to 0 elements; use 1",
        kernel(tensors=(replace(X, aligned=0), Y)),
    ),
    "unknown extent": (
        "tensor X has lost in its shape, which is no parameter; add it to Kernel.params",
        kernel(tensors=(replace(X, extents=(LOST, N)), Y)),
    ),
    "negative extent": (
        "tensor X has -1 in its shape",
        kernel(tensors=(replace(X, extents=(-1, N)), Y)),
    ),
    "buffer offset": (
        "2 slots at byte 64; need >= 1 at a multiple of 128",
        declared(replace(SA, offset=64)),
    ),
    "negative buffer": ("2 slots at byte -128", declared(replace(SA, offset=-128))),
    "no slots": ("0 slots at byte 0; need >= 1", declared(replace(SA, slots=0))),
    "empty buffer": (r"buffer SA has shape \(64, 0\)", declared(replace(SA, shape=(64, 0)))),
    "odd slots": (
        "slots of 10 bytes, 24 apart; copies need multiples of 16",
        declared(replace(SA, shape=(5,), pitch=24)),
    ),
    "too much shared memory": (
        "buffer SA ends at byte 409600 of shared memory, a CTA has 232448; use fewer slots",
        declared(replace(SA, slots=200)),
    ),
    "mbarriers past the end": (
        "mbarrier bar ends at byte 246656 of shared memory",
        kernel(barriers=(replace(BAR, slots=30_000),)),
    ),
    "mbarrier past what is allocated": (
        "mbarrier bar lies at bytes 6648..6663, the CTA has 6656 bytes of shared memory; lay it "
        "onto a buffer",
        kernel(barriers=(replace(BAR, offset=SY.end - 8),)),
    ),
    "mbarrier on one that is laid out": (
        r"mbarrier own lies at bytes 6656..6663, those without an offset \(bar\) from byte 6656 on",
        kernel(barriers=(BAR, kir.MBarrier("own", 1, 1, SY.end))),
    ),
    "barrier offset": (
        "mbarrier bar lies at byte 12; use a multiple of 8",
        kernel(barriers=(replace(BAR, offset=12),)),
    ),
    "negative barrier": (
        "mbarrier bar lies at byte -8",
        kernel(barriers=(replace(BAR, offset=-8),)),
    ),
    "no arrivals": (
        "2 slots of 0 arrivals; need at least one slot, of 1..1048575",
        kernel(barriers=(replace(BAR, arrivals=0),)),
    ),
    "too many arrivals": (
        "2 slots of 1048576 arrivals",
        kernel(barriers=(replace(BAR, arrivals=1 << 20),)),
    ),
    "no slots of a barrier": ("0 slots of 1 arrivals", kernel(barriers=(replace(BAR, slots=0),))),
    # --- variables ---
    "undefined": (
        r"`let i = \(lost \+ 1\)` uses lost, which nothing defines before it; make it a parameter",
        kernel(kir.Let(INDEX, LOST + 1)),
    ),
    "undefined slot": (
        "uses lost, which nothing defines",
        kernel(kir.MBarrierArrive(BAR, LOST % 2)),
    ),
    "undefined parity": (
        "uses lost, which nothing defines",
        kernel(kir.MBarrierWaitParity(BAR, 0, LOST % 2)),
    ),
    "undefined origin": (
        "uses lost, which nothing defines",
        kernel(one(load(src=replace(X_BOX, origin=(LOST, 0))))),
    ),
    "out of scope": (
        "uses i, which nothing defines",
        kernel(loop(), kir.MBarrierArrive(BAR, INDEX % 2)),
    ),
    "let of a body": (
        "uses j, which nothing defines",
        kernel(kir.IfThenElse(M, (kir.Let(J, 1),)), kir.MBarrierArrive(BAR, J % 2)),
    ),
    "assigned without let": (
        r"`lost = 1`: no let above defines lost; write Let\(lost, ...\) first",
        kernel(kir.Assign(LOST, 1)),
    ),
    "assigned index": (
        "i is the index of a loop; count in a Let of its own",
        kernel(loop(kir.Assign(INDEX, INDEX + 1))),
    ),
    "assigned parameter": (
        "M is fixed by the launch; copy it into a Let first",
        kernel(kir.Assign(M, M + 1)),
    ),
    "let again": ("M has a value here already; rename it", kernel(kir.Let(M, 1))),
    "index again": ("i has a value here already; rename the index", kernel(loop(loop()))),
    "moving end": (
        "ends at i, and its body assigns to i; copy it into a Let before",
        kernel(
            kir.Let(INDEX, M),
            kir.ForLoop(Var("q"), INDEX, (kir.Assign(INDEX, INDEX - 1),)),
        ),
    ),
    "negative loop": ("ends at -1; count from 0", kernel(loop(stop=-1))),
    "rank without clusters": (
        "uses clusterRank, but the kernel has no clusters; set Kernel.cluster",
        kernel(kir.Let(INDEX, kir.RANK)),
    ),
    # --- roles and elections ---
    "role past the CTA": (
        r"`role r warps 4..7` leaves the 5 warps of the CTA; give it warps within 0..4",
        kernel(role(first=4)),
    ),
    "negative role": ("leaves the 5 warps", kernel(role(first=-1))),
    "empty role": ("leaves the 5 warps", kernel(role(warps=0))),
    "roles overlap": (
        "shares warp 3 with role r beside it; give each role warps of its own",
        kernel(role(), role(first=3, warps=2, name="s")),
    ),
    "roles overlap inside": (
        "shares warp 0 with role s",
        kernel(role(role(warps=1, name="s"), role(warps=2, name="t"))),
    ),
    "role outside its parent": (
        "`role s warps 3..4` leaves warps 0..3 of role r around it; take a part of those",
        kernel(role(role(first=3, warps=2, name="s"))),
    ),
    "role in an elect": (
        "stands inside an elect; put the elect into the role",
        kernel(one(role())),
    ),
    "elect of half a warpgroup": (
        "warps 4..4 are no whole warpgroups",
        kernel(role(one(per=GROUP), first=4, warps=1)),
    ),
    # --- what whole warps must reach ---
    **{
        f"{type(stmt).__name__} in an elect": (
            "stands inside an elect; whole warps must reach it: move it out",
            alone(one(stmt)),
        )
        for stmt in (
            kir.BlockSync(1, 128),
            kir.NamedArrive(1, 128),
            kir.WarpSync(),
            kir.WgmmaFence(),
            kir.SetMaxNReg(40, increase=False),
            kir.AsyncCommit(WGMMA),
            kir.AsyncAwait(WGMMA, 0),
            kir.Wgmma(ACC, kir.Slot(SA, 0), kir.Slot(SB, 0)),
            kir.Mma(ACC, FRAG_A, FRAG_B),
        )
    },
    **{
        f"{type(stmt).__name__} of a cluster in an elect": (
            "stands inside an elect",
            clustered(one(stmt)),
        )
        for stmt in (kir.ClusterArrive(), kir.ClusterWait())
    },
    **{
        f"{type(stmt).__name__} without clusters": (
            "stands in a kernel without clusters; set Kernel.cluster",
            kernel(stmt),
        )
        for stmt in (kir.ClusterArrive(), kir.ClusterWait())
    },
    **{
        f"{type(stmt).__name__} by {warps} warps from {first}": (
            f"executed by warps {first}..{first + warps - 1}, which are no whole warpgroups; "
            "give the role a multiple of 4 warps",
            kernel(role(stmt, first=first, warps=warps)),
        )
        for stmt in (
            kir.WgmmaFence(),
            kir.SetMaxNReg(40, increase=False),
            kir.Wgmma(ACC, kir.Slot(SA, 0), kir.Slot(SB, 0)),
        )
        for first, warps in ((0, 3), (1, 4), (4, 1))
    },
    **{
        f"{type(stmt).__name__} by all": (
            r"executed by 160 threads; it must be issued by one thread: put it inside Elect",
            kernel(stmt),
        )
        for stmt in (
            load(),
            kir.TmaStore(Y_BOX, kir.Slot(SY, 0)),
            kir.TmaReduce(Y_BOX, kir.Slot(SY, 0)),
            kir.QueueCopy(load().dst, X_BOX),
            kir.MBarrierInit(BAR),
            kir.MBarrierInvalidate(BAR),
            kir.BlockSerializeRelease(TURNS, 0, 1),
        )
    },
    "init by each warp": (
        "executed by 4 threads of role r; it must be issued by one thread",
        kernel(role(one(kir.MBarrierInit(BAR), per=WARP))),
    ),
    "a turn by no barrier": (
        "joins at barrier 16; a CTA has 0..15",
        alone(kir.BlockSerializeWait(TURNS, 0, 0, barrier=16)),
    ),
    "turn in an elect": (
        "stands inside an elect; all 160 threads",
        kernel(one(kir.BlockSerializeWait(TURNS, 0, 0))),
    ),
    # --- numbers of syncs ---
    "barrier number": ("need barrier 0..15", kernel(kir.BlockSync(16, 160))),
    "threads of a barrier": ("a multiple of 32 threads", kernel(kir.BlockSync(0, 100))),
    "no threads of a barrier": ("a multiple of 32 threads", kernel(kir.NamedArrive(1, 0))),
    "more than the CTA": ("at most the CTA's 160", kernel(kir.BlockSync(0, 192))),
    "bytes": (
        "expects -1 bytes; a phase takes 0..1048575",
        alone(kir.MBarrierExpectTx(BAR, 0, -1)),
    ),
    "many bytes": (
        "expects 1048576 bytes",
        alone(kir.MBarrierArriveExpectTx(BAR, 0, 1 << 20)),
    ),
    "parity": ("waits for parity 2; it is 0 or 1", kernel(kir.MBarrierWaitParity(BAR, 0, 2))),
    "scope of a wait": (
        "mbarriers know the scopes cta and cluster",
        kernel(kir.MBarrierWaitParity(BAR, 0, 0, kir.Scope.GPU)),
    ),
    "scope of an arrive": (
        "mbarriers know the scopes cta and cluster",
        kernel(kir.MBarrierArrive(BAR, 0, kir.Scope.GPU)),
    ),
    "keep": ("keeps -1 groups; 0 waits for all", kernel(kir.AsyncAwait(BULK, -1))),
    "read only": (
        "only bulk groups can be awaited until they have read; drop read_only for wgmma",
        alone(kir.AsyncAwait(WGMMA, 0, read_only=True)),
    ),
    "commit of a queue": (
        r"async_commit.queue.`: each entry of a queue is a group by itself; drop the commit",
        alone(kir.AsyncCommit(kir.AsyncKind.QUEUE)),
    ),
    "store by a queue": (
        "a queue fills slots of its own CTA only; store by TMA or BULK",
        kernel(kir.Copy(Y_BOX, kir.Slot(SY, 0), kir.Engine.QUEUE)),
    ),
    "setmaxnreg": (
        "sets 260 registers; use a multiple of 8 in 24..256",
        alone(kir.SetMaxNReg(260, increase=True)),
    ),
    "few registers": ("sets 16 registers", alone(kir.SetMaxNReg(16, increase=False))),
    "odd registers": ("sets 41 registers", alone(kir.SetMaxNReg(41, increase=False))),
    "registers unknown": (
        "does not say how many registers it starts with; set Kernel.registers",
        kernel(role(kir.SetMaxNReg(40, increase=False)), registers=0),
    ),
    "remote arrive without clusters": (
        "names CTA 1 of a cluster, but the kernel has no clusters; set Kernel.cluster, or drop cta",
        kernel(kir.MBarrierArrive(BAR, 0, kir.Scope.CLUSTER, 1)),
    ),
    "remote arrive past the cluster": (
        "names CTA 2 of a cluster of 2; use 0..1",
        clustered(kir.MBarrierArrive(BAR, 0, kir.Scope.CLUSTER, 2)),
    ),
    "remote arrive at scope cta": (
        "arrives at another CTA at scope cta, which does not reach it; use Scope.CLUSTER",
        clustered(kir.MBarrierArrive(BAR, 0, kir.Scope.CTA, 1)),
    ),
    "more arrivals than a phase has": (
        "counts 2 arrivals; bar takes 1 a phase: count 1..1",
        kernel(kir.MBarrierArrive(BAR, 0, count=2)),
    ),
    "loop without an end": (
        "put one Fetch, and behind it one Leave of the same variable, into its body",
        drawing(kir.Loop(J, (kir.Fetch(LOST, kir.Slot(NUMBER, 0)),))),
    ),
    "loop left by another variable": (
        "put one Fetch, and behind it one Leave of the same variable",
        drawing(kir.Loop(J, (kir.Fetch(LOST, kir.Slot(NUMBER, 0)), kir.Leave(J, M)))),
    ),
    "exit out of a loop": (
        "stands in no Loop; put it into the body of one itself",
        drawing(
            kir.Loop(
                J,
                (
                    kir.Fetch(LOST, kir.Slot(NUMBER, 0)),
                    kir.IfThenElse(M, (kir.Leave(LOST, M),)),
                    kir.Leave(LOST, M),
                ),
            )
        ),
    ),
    "number in a cluster": (
        "numbers are drawn by CTAs of their own; drop clusters and semaphores",
        replace(
            drawing(kir.Loop(J, (kir.Fetch(LOST, kir.Slot(NUMBER, 0)), kir.Leave(LOST, M)))),
            cluster=2,
        ),
    ),
    "number of 16 bits": (
        r"SA holds bf16\[64, 16\]; make it i32\[1\]",
        drawing(kir.Loop(J, (kir.Fetch(LOST, kir.Slot(SA, 0)), kir.Leave(LOST, M)))),
    ),
    "drawn by all": (
        "is executed by 128 threads of role r; draw by one: put it inside Elect",
        drawing(role(kir.Draw(kir.Slot(NUMBER, 0), "next"))),
    ),
    "drawn from nothing": (
        "draws from first; add it to Kernel.counters",
        drawing(one(kir.Draw(kir.Slot(NUMBER, 0), "first"))),
    ),
    "drawn twice": (
        "is the second place that draws; draw in one place",
        drawing(one(kir.Draw(kir.Slot(NUMBER, 0), "next"), kir.Draw(kir.Slot(NUMBER, 0), "next"))),
    ),
    "no arrival": ("counts 0 arrivals", kernel(kir.MBarrierArrive(BAR, 0, count=0))),
}


@pytest.mark.parametrize("name", LEGAL)
def test_the_kernels_that_the_mistakes_start_from_are_legal(name: str) -> None:
    """Else a message could come from something else than the mistake."""
    validate(LEGAL[name], final=True)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_with_a_way_out(name: str) -> None:
    """The message comes from this mistake, not from another one beside it, and says what to do."""
    says, wrong = MISTAKES[name]
    refused(wrong, says)


def test_everything_that_is_wrong_can_be_listed() -> None:
    """One at a time is slow for who writes by hand."""
    wrong = kernel(kir.BlockSync(16, 160), kir.AsyncAwait(BULK, -1), residency="all")
    assert len(list(problems(wrong))) == 3

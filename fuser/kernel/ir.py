"""The Kernel IR: what every thread of a CTA does, with every synchronisation spelled out.

Statements act on tiles: fragments of registers held by a thread set in a named layout, slots of
shared buffers, boxes of global tensors.  The IR holds physical facts only (which bytes, which
barrier slot, which parity, how many arrivals); nothing says why a statement is safe.

A kernel can be written by hand: build the frozen dataclasses below and call
`fuser.kernel.validate.legal.validate`.  `fuser.cookbook.recipes` holds twelve examples.

Who executes.  The statements of `Kernel.body` are executed by all `Kernel.threads` threads, those
inside a `Role` by the role's warps, those inside an `Elect` by one thread (of the role, or of each
warp).  Threads run in program order, but not in step with each other.  Every `Copy` by an
asynchronous engine starts at its issue and finishes at an arbitrary later time.

Where it runs.  A launch has one or more CTAs, numbered by `BLOCK` in `0 <= BLOCK < GRID`; each
`Kernel.cluster` neighbours are a cluster, whose CTAs run at once and reach each other's shared
memory.  What else runs at once is `Kernel.residency`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from fuser.expr import Expr, Op, Var
from fuser.kernel.data import *
from fuser.kernel.memory import *
from fuser.kernel.sync import *

BLOCK = Var("blockIdx")
"""Number of the executing CTA, 0 <= BLOCK < GRID."""
GRID = Var("gridDim")
"""CTAs of the launch, at least 1."""
RANK = Var("clusterRank")
"""Number of the executing CTA within its cluster: BLOCK % Kernel.cluster."""
WARP = 32
"""Threads of a warp."""
WARPGROUP = 128
"""Threads of a warpgroup: four warps, the first of which has a number divisible by 4."""


# --- structure ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WarpSpecialized:
    """A request of the schedule: a load role beside the computing warps.

    `load_warps` are the warps of the load role.  With `ping_pong` two computing roles
    alternate in the iterations of the loop around.  `registers` of the load role and of the others,
    if any, are set by `SetMaxNReg`.
    """

    load_warps: int = 1
    ping_pong: bool = False
    registers: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class CircularBuffer:
    """A request of the schedule, on a loop: give the buffers it fills `stages` slots.

    `position` counts the iterations over the whole life of the ring, once a pass has chosen it.
    """

    stages: int
    prefetch: int
    specialized: WarpSpecialized | None = None
    position: Var | None = None

    @property
    def spare(self) -> int:
        """Slots neither read nor being loaded: reads of so many iterations may be unfinished.

        The slot that a load overwrites was last read `stages - prefetch` iterations before.
        """
        return self.stages - self.prefetch - 1


@dataclass(frozen=True, slots=True)
class Let:
    """`var = value`, for the statements after it in this body and below.

    Every executing thread has its own.
    """

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a `Let` of an enclosing body a new value, such as the next position of a ring.

    Positions count over the whole life of a ring, through nested loops: `p = p + 1` after each
    use, slot `p % stages`, parity `(p // stages) % 2`.
    """

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class ForLoop:
    """`body` for `index` = 0, 1, ..., `stop - 1`; no time at all where `stop` is 0.

    `stop` has one value throughout: nothing in `body` assigns to what it depends on.

    With `unroll` the assembler may have the loads of so many iterations on their way at once, in
    registers; that changes nothing of what a thread does before what.  Where iterations behind the
    last do nothing (`beyond`), those up to a multiple of `unroll` may run, too, so that none of so
    many is tested for.
    """

    index: Var
    stop: Expr
    body: tuple[Stmt, ...]
    circular: CircularBuffer | None = None
    unroll: int = 1
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for `index` = 0, 1, ..., until the `Leave` in it ends it."""

    index: Var
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """`var` = the integer in a slot, for the statements after it in this body and below.

    An ordinary load by each executing thread, of what `Draw` has put there.
    Needs:  to stand in the body of a `Loop` itself, once; the n-th one of a thread reads what the
            n-th `Draw` of its CTA has stored.
    """

    var: Var
    src: Slot


@dataclass(frozen=True, slots=True)
class Leave:
    """End the `Loop` in whose body it stands where `var` is `stop` or more; else go on.

    Needs:  to stand behind the `Fetch` of `var` in the same body.
    """

    var: Var
    stop: Expr


@dataclass(frozen=True, slots=True)
class IfThenElse:
    """`then` where `condition` is not 0, else `orelse`; the same for every executing thread."""

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """`body` by warps `first_warp ... first_warp + warps - 1` of the CTA; the others skip it.

    Roles next to each other share no warp.  A role inside a role is a part of its warps; what
    belongs to "the role" of a statement (layouts, elections) is the innermost one.
    """

    name: str
    first_warp: int
    warps: int
    body: tuple[Stmt, ...]


class Per(Enum):
    """Of what an `Elect` takes one thread."""

    ROLE = "role"
    """The first thread of the role (or CTA): always the same one, so bulk groups are its own."""
    WARP = "warp"
    """The first lane of every warp of the role (or CTA)."""
    WARPGROUP = "warpgroup"
    """The first thread of every warpgroup of the role (or CTA)."""


@dataclass(frozen=True, slots=True)
class Elect:
    """`body` by one thread per role or per warp; the other threads go on without waiting."""

    per: Per
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class LastArriving:
    """`body` by the last of `ctas` CTAs to arrive at `semaphore[index]`, which leaves that at 0.

    Blocks: until all threads of the role are here; nobody waits for another CTA, and which of them
            is the last is not known beforehand.
    Orders: what the threads of these CTAs did, and have observed, before this, before what those of
            the last one do in `body` and behind it, at gpu scope in the generic proxy; not
            asynchronous writes still in flight.  TMA accesses of what other CTAs wrote also need
            `FenceAsyncProxy(GLOBAL)` in `body`.  The other CTAs learn nothing.
    Needs:  all threads of the role, or of the CTA outside roles, which join by a `BlockSync` of
            their own number `barrier`; each of these CTAs once a launch, in the same role.
    """

    semaphore: Semaphore
    index: Expr
    ctas: Expr
    body: tuple[Stmt, ...]
    barrier: int = 0


Data = (
    Copy
    | TmaLoad
    | TmaStore
    | TmaReduce
    | TensorMapReplace
    | CpAsync
    | QueueCopy
    | StAsync
    | Load
    | Gather
    | Store
    | AtomicAdd
    | Draw
    | Wgmma
    | Mma
    | Compute
    | Slice
    | Unpack
    | Reduce
    | Scan
    | GridSum
    | GridShare
    | Coordinate
)
Structure = Let | Assign | ForLoop | Loop | Fetch | Leave | IfThenElse | Role | Elect | LastArriving
Stmt = Data | Structure | Sync
SYNCS = Sync
"""Every synchronising statement; `isinstance(stmt, SYNCS)` works."""
OnSemaphore = BlockSerializeWait | BlockSerializeRelease | GridSync | LastArriving
"""Statements by which CTAs that share a semaphore wait for each other."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """All statements of one CTA, with the facts about its launch that judges may rely on.

    Parameters
    ----------
    params : tuple of Var
        Integers given at launch, each >= 0 (extents, strides).
    threads : int
        Threads per CTA, a multiple of 32, at most 1024.
    outputs, workspaces : tuple of str
        Tensors that are written.  Every element of an output is written in each launch.  A
        workspace is scratch memory of the launch; what it holds at the start is unspecified.
    semaphores : tuple of Semaphore
        All 0 at the start of a launch, and to be left so.
    requires : tuple of Expr
        Conditions on the parameters and `GRID` that are not 0 in any launch; the launch checks
        them, judges rely on them.
    cluster : int
        CTAs of a cluster, 1 to 16; `GRID` is a multiple of it.
    residency : str
        What is known about CTAs running at once: "any" (nothing, not even that CTA 0 starts
        first), "ticket" (BLOCK is drawn from an atomic counter by each CTA as it starts, so all
        smaller numbers have started), "co-resident" (all CTAs run at once, checked at launch).
    together : Expr
        With tickets, how many CTAs of one number after the other run at once before any of them has
        to end; checked at launch.
    determinism : str
        "bitwise": every interleaving gives the same bits; "unordered": sums may be rounded in any
        order.
    registers : int
        Registers per thread at launch, which `SetMaxNReg` redistributes; 0 if it is never used.
    dependent : bool
        It may start while launches before it on the stream still run, once all their CTAs have
        started (and drawn their tickets).  Each access of a tensor or a semaphore is ordered behind
        a `GridDependencyWait`, but for reads of tensors in `early`.
    counters : tuple of str
        32-bit integers in global memory that CTAs draw numbers from, 0 whenever a launch starts.
    early : tuple of str
        Tensors that no launch before it on the stream writes, unless that has ended for sure when
        this one starts, such as weights.
    maps : tuple of TensorMaps
        Tensor maps that it writes; the launch lends memory for them.
    resident : int
        CTAs that an SM is to have registers for at once: what the assembler may not use.
    overlay : bool
        A request of the schedule: buffers whose lives are apart are to share bytes.
    """

    name: str
    params: tuple[Var, ...]
    tensors: tuple[Tensor, ...]
    scalars: tuple[ScalarParam, ...]
    buffers: tuple[Buffer, ...]
    barriers: tuple[MBarrier, ...]
    threads: int
    body: tuple[Stmt, ...]
    outputs: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    semaphores: tuple[Semaphore, ...] = ()
    requires: tuple[Expr, ...] = ()
    cluster: int = 1
    residency: str = "any"
    together: Expr = 1
    determinism: str = "bitwise"
    registers: int = 0
    dependent: bool = False
    early: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    maps: tuple[TensorMaps, ...] = ()
    resident: int = 1
    overlay: bool = False

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory: buffers, then the mbarriers (8 bytes a slot) after the last."""
        return self.barrier_offset + 8 * sum(b.slots for b in self.barriers if b.offset is None)

    def barrier_at(self, barrier: MBarrier) -> int:
        """First byte of an mbarrier: where it says, or after the buffers in order."""
        if barrier.offset is not None:
            return barrier.offset
        behind = self.barriers[: self.barriers.index(barrier)]
        return self.barrier_offset + 8 * sum(b.slots for b in behind if b.offset is None)

    @property
    def barrier_offset(self) -> int:
        """First byte of the mbarriers: past every buffer, a multiple of 8."""
        return -(-max((b.end for b in self.buffers), default=0) // 8) * 8

    def walk(self) -> Iterator[Stmt]:
        """Every statement, parents before children, in program order."""
        return walk(self.body)

    def rewrite(self, rule: Callable[[Stmt], list[Stmt] | None]) -> Kernel:
        """Return a kernel in which `rule` replaced statements; None keeps one, and goes inside."""
        return replace(self, body=rewrite(self.body, rule))


@dataclass(frozen=True, slots=True)
class LaunchSequence:
    """Kernels launched one after the other on a stream; each begins when those before have ended.

    Tensors and semaphores of one name are the same memory, so a workspace or an output of one
    launch may be an input of a later one.  The boundary between two launches orders everything
    before it, in every proxy, before everything after it.  Behind it a `Kernel.dependent` begins
    when those before that are dependent, and the last one that is not, may still run; none of them
    writes what is `early` in it.

    Source: CUDA programming guide, "Streams", "Programmatic dependent launch".
    """

    name: str
    launches: tuple[Kernel, ...]


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """Return the bodies of a structured statement, none for any other."""
    match stmt:
        case ForLoop() | Loop() | Role() | Elect() | LastArriving():
            return (stmt.body,)
        case IfThenElse(_, then, orelse):
            return (then, orelse)
        case _:
            return ()


_STRUCTURED = frozenset({ForLoop, Loop, Role, Elect, LastArriving, IfThenElse})


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of a body, parents before children, in program order."""
    left = [*reversed(body)]
    while left:
        stmt = left.pop()
        yield stmt
        if type(stmt) in _STRUCTURED:
            for inner in reversed(bodies(stmt)):
                left += reversed(inner)


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """Yield the expressions that a statement itself evaluates (not those of its body)."""
    match stmt:
        case Let(_, value) | Assign(_, value) | ForLoop(_, value):
            yield value
        case Loop():
            pass
        case Fetch(_, slot):
            yield slot.index
        case _:
            for name in stmt.__slots__:
                match getattr(stmt, name):
                    case Var() | Op() as expr:
                        yield expr
                    case Box(_, origin, _, limit, index):
                        yield from (*origin, *limit)
                        yield from () if index is None else (*index.src.origin, *index.src.limit)
                    case Slot(_, index, cta):
                        yield from (index,) if cta is None else (index, cta)
                    case MapSlot(_, index, origin):
                        yield from (index, *origin)
                    case tuple() as parts:
                        yield from (part for part in parts if isinstance(part, Var | Op))
                    case _:
                        pass


def inside(stmt: Stmt, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """Return a statement with each of its bodies replaced by what `change` makes of it."""
    if type(stmt) not in _STRUCTURED:
        return stmt
    match stmt:
        case ForLoop() | Loop() | Role() | Elect() | LastArriving():
            return replace(stmt, body=change(stmt.body))
        case IfThenElse(_, then, orelse):
            return replace(stmt, then=change(then), orelse=change(orelse))
        case _:
            return stmt


def rewrite(body: tuple[Stmt, ...], rule: Callable[[Stmt], list[Stmt] | None]) -> tuple[Stmt, ...]:
    """Replace statements of a body by `rule`; where it returns None, keep one and go inside."""
    out: list[Stmt] = []
    for stmt in body:
        new = rule(stmt)
        if new is None:
            made = inside(stmt, lambda inner: rewrite(inner, rule))
            new = [stmt if made is stmt or made == stmt else made]
        out.extend(new)
    return tuple(out)

"""The Kernel IR: what every thread of a CTA does, with every synchronisation spelled out.

Statements act on tiles: fragments of registers held by a thread set in a named layout, slots of
shared buffers, boxes of global tensors.  The IR holds physical facts only (which bytes, which
barrier slot, which parity, how many arrivals); nothing says why a statement is safe.

A kernel can be written by hand: build the frozen dataclasses below and call
`fuser.validate.validate`.  `tests/kernels.py` holds examples.

Who executes.  The statements of `Kernel.body` are executed by all `Kernel.threads` threads, those
inside a `Role` by the role's warps, those inside an `Elect` by one thread (of the role, or of each
warp).  Threads run in program order, but not in step with each other.  Every `Copy` by an
asynchronous engine starts at its issue and finishes at an arbitrary later time.

Where it runs.  A launch has one or more CTAs, numbered by `BLOCK` in `0 <= BLOCK < GRID`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from fuser.expr import Expr, Var
from fuser.kernel_memory import Box as Box
from fuser.kernel_memory import Buffer as Buffer
from fuser.kernel_memory import Fragment as Fragment
from fuser.kernel_memory import Layout as Layout
from fuser.kernel_memory import Literal as Literal
from fuser.kernel_memory import Scalar as Scalar
from fuser.kernel_memory import Slot as Slot
from fuser.kernel_memory import Tensor as Tensor
from fuser.kernel_sync import AsyncAwait as AsyncAwait
from fuser.kernel_sync import AsyncCommit as AsyncCommit
from fuser.kernel_sync import AsyncKind as AsyncKind
from fuser.kernel_sync import BlockSerializeRelease as BlockSerializeRelease
from fuser.kernel_sync import BlockSerializeWait as BlockSerializeWait
from fuser.kernel_sync import BlockSync as BlockSync
from fuser.kernel_sync import ClusterArrive as ClusterArrive
from fuser.kernel_sync import ClusterWait as ClusterWait
from fuser.kernel_sync import CpAsyncMBarrierArrive as CpAsyncMBarrierArrive
from fuser.kernel_sync import FenceAsyncProxy as FenceAsyncProxy
from fuser.kernel_sync import FenceMBarrierInit as FenceMBarrierInit
from fuser.kernel_sync import MBarrier as MBarrier
from fuser.kernel_sync import MBarrierArrive as MBarrierArrive
from fuser.kernel_sync import MBarrierArriveExpectTx as MBarrierArriveExpectTx
from fuser.kernel_sync import MBarrierInit as MBarrierInit
from fuser.kernel_sync import MBarrierInvalidate as MBarrierInvalidate
from fuser.kernel_sync import MBarrierWaitParity as MBarrierWaitParity
from fuser.kernel_sync import NamedArrive as NamedArrive
from fuser.kernel_sync import Scope as Scope
from fuser.kernel_sync import SetMaxNReg as SetMaxNReg
from fuser.kernel_sync import Space as Space
from fuser.kernel_sync import Sync as Sync
from fuser.kernel_sync import ThreadFence as ThreadFence
from fuser.kernel_sync import WarpSync as WarpSync
from fuser.kernel_sync import WgmmaFence as WgmmaFence

BLOCK = Var("blockIdx")
"""Number of the executing CTA, 0 <= BLOCK < GRID."""
GRID = Var("gridDim")
"""CTAs of the launch, at least 1."""
WARP = 32
"""Threads of a warp."""


# --- data statements ----------------------------------------------------------------------------


class Engine(Enum):
    """Who moves the bytes of a `Copy`."""

    TMA = "tma"


@dataclass(frozen=True, slots=True)
class Copy:
    """Move a tile by an asynchronous engine; how its end is observed is not yet derived.

    Only before the sync passes; a finished kernel has none.
    """

    dst: Slot | Box
    src: Box | Slot
    engine: Engine


@dataclass(frozen=True, slots=True)
class TmaLoad:
    """Start copying a box of global memory into a slot, by one thread.

    Blocks: never.
    Orders: on finish `dst` is written (async proxy; zeros where the box leaves the tensor), then
            the *full* box bytes count as complete on the running phase of `barrier[slot]`.
    Needs:  nobody reads or writes the slot meanwhile; shape <= 256 per axis.
    """

    dst: Slot
    src: Box
    barrier: MBarrier
    slot: Expr


@dataclass(frozen=True, slots=True)
class TmaStore:
    """Start copying a slot into a box of global memory, by one thread; clipped at `limit`.

    Blocks: never.
    Orders: joins the executing thread's open BULK group.
    Needs:  generic writes of the slot ordered before it through `FenceAsyncProxy`; the slot not
            written until the group's reads are awaited.  The engine writes whole chunks of 16
            bytes, so `tensor.aligned` elements must be 16 bytes: a row that ends inside a chunk
            would be written past its end (seen on an H200; NVIDIA hardware, not a driver bug).
    """

    dst: Box
    src: Slot


@dataclass(frozen=True, slots=True)
class Load:
    """Ordinary loads of a tile into registers, `width` elements per access.

    Elements past the box's limit are not read and become `fill`.  A buffer whose shape has 1
    along an axis gives all elements along it the one value.
    """

    dst: Fragment
    src: Box | Slot
    width: int
    fill: int = 0


@dataclass(frozen=True, slots=True)
class Store:
    """Ordinary stores of a tile from registers, `width` elements per access.

    Elements past the box's limit are not written.  Values are rounded to the destination's dtype.
    """

    dst: Box | Slot
    src: Fragment
    width: int


@dataclass(frozen=True, slots=True)
class Compute:
    """`dst = op(*args)`, element by element; an op of the fusion's table, `promote` or `cast`.

    `promote` changes the register type without rounding to 16 bits, `cast` rounds.
    """

    dst: Fragment
    op: str
    args: tuple[Fragment | Scalar | Literal, ...]


@dataclass(frozen=True, slots=True)
class Coordinate:
    """`dst = origin + position of the element along axis` of the tile (an i64 fragment)."""

    dst: Fragment
    axis: int
    origin: Expr


# --- structure ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CircularBuffer:
    """A request of the schedule, on a loop: give the buffers it fills `stages` slots."""

    stages: int
    prefetch: int
    warp_specialized: bool


@dataclass(frozen=True, slots=True)
class Let:
    """`var = value`, once, for the statements after it in this body and below."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class ForLoop:
    """`body` for `index` = 0, 1, ..., `stop - 1`; no time at all where `stop` is 0."""

    index: Var
    stop: Expr
    body: tuple[Stmt, ...]
    circular: CircularBuffer | None = None


@dataclass(frozen=True, slots=True)
class IfThenElse:
    """`then` where `condition` is not 0, else `orelse`; the same for every executing thread."""

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """`body` by warps `first_warp ... first_warp + warps - 1`, which skip other roles.

    Roles stand at the top level of the kernel, next to each other, and share no warp.
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


@dataclass(frozen=True, slots=True)
class Elect:
    """`body` by one thread per role or per warp; the other threads go on without waiting."""

    per: Per
    body: tuple[Stmt, ...]


Data = Copy | TmaLoad | TmaStore | Load | Store | Compute | Coordinate
Structure = Let | ForLoop | IfThenElse | Role | Elect
Stmt = Data | Structure | Sync
SYNCS = Sync
"""Every synchronising statement; `isinstance(stmt, SYNCS)` works."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """All statements of one CTA, with the facts about its launch that judges may rely on.

    Parameters
    ----------
    params : tuple of Var
        Integers given at launch, each >= 0 (extents, strides).
    threads : int
        Threads per CTA, a multiple of 32, at most 1024.
    residency : str
        What is known about CTAs running at once: "any" (nothing).
    determinism : str
        "bitwise": every interleaving gives the same bits.
    """

    name: str
    params: tuple[Var, ...]
    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...]
    buffers: tuple[Buffer, ...]
    barriers: tuple[MBarrier, ...]
    threads: int
    body: tuple[Stmt, ...]
    outputs: tuple[str, ...] = ()
    cluster: int = 1
    residency: str = "any"
    determinism: str = "bitwise"

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory: buffers, then the mbarriers (8 bytes a slot) after the last."""
        return self.barrier_offset + 8 * sum(barrier.slots for barrier in self.barriers)

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


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """Return the bodies of a structured statement, none for any other."""
    match stmt:
        case ForLoop() | Role() | Elect():
            return (stmt.body,)
        case IfThenElse(_, then, orelse):
            return (then, orelse)
        case _:
            return ()


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of a body, parents before children, in program order."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from walk(inner)


def rewrite(body: tuple[Stmt, ...], rule: Callable[[Stmt], list[Stmt] | None]) -> tuple[Stmt, ...]:
    """Replace statements of a body by `rule`; where it returns None, keep one and go inside."""
    out: list[Stmt] = []
    for stmt in body:
        new = rule(stmt)
        if new is not None:
            out.extend(new)
            continue
        match stmt:
            case ForLoop() | Role() | Elect():
                inner = rewrite(stmt.body, rule)
                out.append(stmt if inner == stmt.body else replace(stmt, body=inner))
            case IfThenElse(_, then, orelse):
                out.append(replace(stmt, then=rewrite(then, rule), orelse=rewrite(orelse, rule)))
            case _:
                out.append(stmt)
    return tuple(out)

"""The statements of the Kernel IR that move or compute data, by threads or by engines.

No synchronisation here (`sync`) and no structure (`ir`, which hands these names on).

Source: PTX ISA 9.0, sections "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async",
"wgmma.mma_async", "mma", "red".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fuser.expr import Expr
from fuser.kernel.memory import (
    Box,
    Buffer,
    Deal,
    Fragment,
    Layout,
    Literal,
    MapSlot,
    ScalarParam,
    Slot,
    Tensor,
)
from fuser.kernel.sync import MBarrier, Semaphore


class Engine(Enum):
    """Who moves the bytes of a `Copy`."""

    TMA = "tma"
    BULK = "bulk"
    CP_ASYNC = "cp_async"
    QUEUE = "queue"

    @property
    def of_threads(self) -> bool:
        """Whether all threads issue its copies, each of its own elements, and not one for all."""
        return self is Engine.CP_ASYNC


@dataclass(frozen=True, slots=True)
class Copy:
    """Move a tile by an asynchronous engine; how its end is observed is not yet derived.

    Only before the sync passes; a finished kernel has none.  By CP_ASYNC `layout` says which
    elements each thread copies, `width` how many at a time.  By BULK the box is one run of memory
    (`TmaLoad`).  By QUEUE it is a load (`QueueCopy`).  A `shared` tile is the same for all CTAs of
    the cluster, so that one of them may load it for all.  With `reduce` a slot is added to what
    global memory holds.
    """

    dst: Slot | Box
    src: Box | Slot
    engine: Engine
    layout: Layout | None = None
    width: int = 0
    shared: bool = False
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class TmaLoad:
    """Start copying a box of global memory into a slot, by one thread.

    With `multicast`, into that slot of every CTA of the cluster whose bit is set in it, each copy
    completing on that CTA's own `barrier[slot]`.  Its tensor map is one of the launch, which
    nothing changes, or `through` names one that the kernel writes (`TensorMapReplace`).
    Blocks: never.
    Orders: on finish the map is read and `dst` is written (async proxy; zeros where the box leaves
            the tensor, or what the map says of it), then the *full* box bytes count as complete on
            the running phase of `barrier[slot]`.
    Needs:  the slot has the shape of the box; where that has several elements along one axis only,
            it may be another axis of a slot without a swizzle: they lie in one line in either.
            Nobody reads or writes the slot meanwhile, ordinary reads of it ordered before through
            `FenceAsyncProxy`, too (without that fence, which the default policy only warns of, an
            H200 gives what is loaded next: `fuser.passes.async_copies.fence_proxies`); shape <= 256
            per axis.  Of `through`: the map says what this copy does, that is, `through.origin` and
            `src.limit`; its last `TensorMapReplace` is ordered before, with a `TensorMapRelease`
            and behind that a `TensorMapAcquire` of this map on the way; nobody writes it before the
            end.

    With `bulk` by a one-dimensional copy without a tensor map, of a box that is one run of memory:
    1 along some axes, then any shape along one, and all of the tensor along the literal extents
    behind that.  It is clipped at `src.limit` (nothing is copied of an empty box), and its clipped
    bytes, as they lie in memory, are written to the beginning of `dst`; they, and no more, count as
    complete.  What lies behind them in the slot stays as it was: to read it is an error.
    Needs then: addresses of both and the bytes are multiples of 16; the clipped box lies inside.

    Source: PTX ISA, "cp.async.bulk".
    """

    dst: Slot
    src: Box
    barrier: MBarrier
    slot: Expr
    multicast: Expr | None = None
    through: MapSlot | None = None
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class TmaStore:
    """Start copying a slot into a box of global memory, by one thread; clipped at `limit`.

    Blocks: never.
    Orders: joins the executing thread's open BULK group.
    Needs:  generic writes of the slot ordered before it through `FenceAsyncProxy`; the slot not
            written until the group's reads are awaited.  The engine writes whole chunks of 16
            bytes, so `tensor.aligned` elements must be 16 bytes: a row that ends inside a chunk
            would be written past its end (seen on an H200; NVIDIA hardware, not a driver bug).
            Of the map it goes `through` as of `TmaLoad`; it is read when the group's reads are.

    With `bulk` without a tensor map, of one run of memory, as `TmaLoad`: clipped at `dst.limit`,
    from the beginning of `src`.

    Source: PTX ISA, "cp.async.bulk.wait_group" (`.read` waits for "reading from the tensormap"),
    "cp.async.bulk".
    """

    dst: Box
    src: Slot
    through: MapSlot | None = None
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class TmaReduce:
    """Start adding a slot to a box of global memory, by one thread; otherwise as `TmaStore`.

    Every element is added atomically among the reductions of TMA engines, in any order; ordinary
    accesses and `AtomicAdd` of the same bytes at the same time are races.
    """

    dst: Box
    src: Slot
    through: MapSlot | None = None


@dataclass(frozen=True, slots=True)
class TensorMapReplace:
    """Write a map anew, by one thread: elements `dst.origin <= x < limit` of its tensor.

    The rest of it (strides, box, swizzle) is as in the map that the launch gives for such copies.
    Blocks: never.
    Orders: nothing; an ordinary write of the whole map (generic proxy).
    Needs:  earlier copies through it have ended, and their end is known here: a `TmaLoad` by its
            mbarrier, a `TmaStore` by an `AsyncAwait` (`read_only` is enough).  Where a copy goes
            through it, `origin < limit` on every axis, both inside the tensor, and `origin` at a
            multiple of 16 bytes.

    Source: PTX ISA, "tensormap.replace" ("a weak memory operation, on the entire 1024-bit opaque
    tensor-map object"), "Asynchronous copy" (changing the tensor descriptor before the operation
    completes is undefined).
    """

    dst: MapSlot
    limit: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class CpAsync:
    """Start copying a box into a slot by cp.async: each thread the elements it has in `layout`.

    Elements past the box's limit are not read and become 0.
    Blocks: never.
    Orders: joins each executing thread's open CP_ASYNC group.  Generic proxy, but asynchronous: a
            fence between it and its await covers nothing.
    Needs:  `width` elements of 4, 8 or 16 bytes; nobody reads or writes the slot meanwhile.
    """

    dst: Slot
    src: Box
    layout: Layout
    width: int


@dataclass(frozen=True, slots=True)
class QueueCopy:
    """Put a copy of a box of global memory into a slot at the end of the executing thread's queue.

    The engine of DSPs: one queue for each thread that issues, whose length says what is done.  Its
    boxes are those of a `TmaLoad` without `bulk`.  No GPU has it: kernels with it are derived and
    judged, and not printed.
    Blocks: never.
    Orders: joins the queue of its thread, an entry of its own that needs no commit.  On finish
            `dst` is written (async proxy; zeros where the box leaves the tensor).  Entries of one
            queue finish in order, though one may begin before those in front of it have finished;
            those of two queues finish in any order.
    Needs:  one executing thread; nobody reads or writes the slot meanwhile, other entries of the
            queue included; ordinary writes of it ordered before through `FenceAsyncProxy`, and
            ordinary reads as of `TmaLoad`.

    Source: TVM, "src/tir/transforms/lower_async_dma.cc" (`dma_copy`, and `dma_wait` for a number of
    copies in flight), "src/runtime/hexagon/ring_buffer.h" (`InFlight` counts from the oldest on).
    """

    dst: Slot
    src: Box


@dataclass(frozen=True, slots=True)
class StAsync:
    """Start storing a tile of registers into a slot of a CTA of the cluster, its own or another.

    `width` elements at a time, by each thread those it has; where several hold an element, in
    `Deal.ROWS`, by the first of them.  `barrier` is of the CTA whose slot it is.  The registers may
    be used again at once.
    Blocks: never.
    Orders: on finish `dst` is written (generic proxy, but asynchronous: a fence between it and the
            wait covers nothing), then the bytes count as complete on the running phase of
            `barrier[slot]`, a release at cluster scope of these writes alone: who waits for what
            another CTA stores does so at that scope.
    Needs:  a cluster of 2 CTAs or more; accesses of 4, 8 or 16 bytes; exactly the threads that the
            tile is dealt to; nobody reads or writes the slot meanwhile, whose CTA has not ended.

    Source: PTX ISA, "st.async".
    """

    dst: Slot
    src: Fragment
    barrier: MBarrier
    slot: Expr
    width: int


@dataclass(frozen=True, slots=True)
class Draw:
    """`dst` = how many numbers were drawn from `counter` in this launch before this one: 0, 1, ...

    An addition of 1, relaxed at gpu scope, and an ordinary store of what was there before.  Where
    it is not `atomic`, a load, an addition and a store: CTAs may draw one number twice.
    Blocks: never.
    Orders: nothing.
    Needs:  the first thread of a role, and no other thread of the CTA that draws; `dst` a slot of
            one i32, in the CTA's own shared memory.
    """

    dst: Slot
    counter: str
    atomic: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """Ordinary loads of a tile into registers, `width` elements per access.

    An access is of 1, 2, 4, 8 or 16 bytes, at a multiple of that.  Elements past the box's limit
    are not read and become `fill`; of a ragged tensor, those before it that are no whole access are
    read one by one.  In `Deal.ROWS` the device may read a vector of an input by the aligned words
    that it lies in, and drops what else these have.  A buffer whose shape has 1 along an axis gives
    all elements along it the one value.

    With `matrix` by `ldmatrix`, from a slot: each element is read by some lane of the warp that
    then holds it, so lanes of a warp are not distinguished.

    With a `limit`, of a slot, elements at that or past it along an axis are not read either, and
    become `fill`; it may cut an access, whose elements before it are then read one by one.

    `transposed`, from a slot: its last two axes are those of the fragment in exchanged order, and
    element (..., i, j) of the fragment is (..., j, i) of the slot.  One element per access.
    Needs then:  the fragment in `Deal.ROUND`, or of 4 bytes an element as tensor cores hold it.

    `transposed` with `matrix` by `ldmatrix.trans`, which exchanges rows and columns of 8 x 8
    elements on the way: a row of a matrix is 8 neighbours of the slot, 16 bytes at a multiple of
    that, and 8 rows of a column of the fragment.
    Needs then:  elements of 16 bits, of one type in slot and fragment; the fragment in
                 `Deal.STRIPS` by vectors of 2, not folded, of which `width` is 2; no `limit`.
    """

    dst: Fragment
    src: Box | Slot
    width: int
    fill: float = 0
    matrix: bool = False
    transposed: bool = False
    limit: tuple[Expr, ...] | None = None


@dataclass(frozen=True, slots=True)
class Gather:
    """Ordinary loads of single elements: those that `index` names, an i64 tile for each axis.

    An element with an index outside of the tensor is not read and becomes 0.
    Needs:  nobody writes the tensor in this launch: it is neither an output nor a workspace.
    """

    dst: Fragment
    src: Tensor
    index: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Ordinary stores of a tile from registers, `width` elements per access.

    An access is of 1, 2, 4, 8 or 16 bytes, at a multiple of that.  Elements past the box's limit
    are not written; to a ragged tensor, those before it that are no whole access are written one by
    one.  Values are rounded to the destination's dtype.  Where several threads hold an element, in
    `Deal.ROWS`, the first of them stores it; lanes of a warp may store their neighbours' elements,
    so that words are whole.

    With `matrix` by `stmatrix`, to a slot: each element is written by some lane of the warp that
    holds it, so lanes of a warp are not distinguished.

    `transposed`, to a slot, as of `Load`: (..., i, j) of the fragment becomes (..., j, i).  With
    `matrix` by `stmatrix.trans`, which needs what `ldmatrix.trans` does of the slot and of the
    fragment's layout; values are rounded to the slot's 16 bits first.
    """

    dst: Box | Slot
    src: Fragment
    width: int
    matrix: bool = False
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class AtomicAdd:
    """Add a tile of registers to global memory, element by element, relaxed at gpu scope.

    Atomic among ordinary atomics; `Store`, `TmaStore` and `TmaReduce` of the same bytes at the
    same time are races.  The order of additions, and so the rounding, is open.
    """

    dst: Box
    src: Fragment


@dataclass(frozen=True, slots=True)
class Wgmma:
    """Start `acc = a @ b`, plus `acc` where `accumulate` is not 0, on each warpgroup's tensor core.

    `acc` is an (M, N) fragment in `Deal.STRIPS`, M a multiple of 64 per warpgroup; `a` an (M, K)
    slot, or (K, M) where `a_transposed`, or a fragment in `Deal.STRIPS`; `b` an (N, K) slot, or
    (K, N) where `b_transposed`.  Axes of extent 1 before these two do not count.  More columns come
    from the slots of that number of the buffers `beside`, which lie right behind each other.
    A warpgroup reads its own rows of `a` (M of its strips) and all of `b`.  Operands of f32 are cut
    to tf32; only those of 16 bits may be transposed, or `a` a fragment.  `acc` is f32, but i32
    where operands are i8, which wraps; with f16 operands it may be f16, rounded at each 32 bytes.
    Blocks: never.
    Orders: joins the open WGMMA group of each executing warp.  Until the group is awaited, `a` and
            `b` are being read (slots in the async proxy) and the registers of `acc` written;
            groups of one warpgroup finish in order, and so do wgmmas on the same accumulator.
    Needs:  whole warpgroups in uniform control flow; `WgmmaFence` since registers of `acc` or of
            `a` were last accessed in another way (another wgmma of the same shape on the same
            `acc` excepted); generic writes of the slots ordered before it through
            `FenceAsyncProxy`.
    """

    acc: Fragment
    a: Slot | Fragment
    b: Slot
    accumulate: Expr = 1
    b_transposed: bool = False
    a_transposed: bool = False
    beside: tuple[Buffer, ...] = ()

    @property
    def columns(self) -> tuple[Slot, ...]:
        """The slots that hold the columns: `b` and those behind it."""
        return (self.b, *(Slot(buffer, self.b.index, self.b.cta) for buffer in self.beside))


@dataclass(frozen=True, slots=True)
class Mma:
    """`acc = acc + a @ b` by each warp (`mma.sync`), on registers alone; done when it returns.

    `acc` (M, N) and `a` (M, K) are fragments in `Deal.STRIPS`, `b` (N, K) is in `Deal.EACH_WARP`.
    Types are those of `Wgmma`, but no 8-bit floats.
    Needs:  whole warps.
    """

    acc: Fragment
    a: Fragment
    b: Fragment


@dataclass(frozen=True, slots=True)
class Compute:
    """`dst = op(*args)`, element by element; an op of the fusion's table, `promote` or `cast`.

    `promote` changes the register type without rounding to 16 bits, `cast` rounds.  In `Deal.ROWS`
    an argument may have one row, or one column, for all of `dst`, or one element for each run of
    neighbours in a vector (`Layout.spreads`).
    """

    dst: Fragment
    op: str
    args: tuple[Fragment | ScalarParam | Literal, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """`dst` = columns `column` to `column` + those of `dst` of `src`, both in `Deal.STRIPS`.

    Every lane holds the elements already, so that nothing moves between threads.
    Needs:  rows and threads of both equal, `column` a multiple of 8.

    Where one is in `Deal.STRIPS` and the other in `Deal.ROUND` it is a *relabelling*: `dst` has the
    registers of `src`, in their order, under the positions that its own layout gives them.  A tile
    that is stored so, and loaded and relabelled back, has its elements where they were.
    Needs:  shape and threads of both equal, `column` 0, as many elements in every thread.
    """

    dst: Fragment
    src: Fragment
    column: int

    @property
    def relabels(self) -> bool:
        """Whether registers keep their order, but get other positions."""
        return {self.dst.layout.deal, self.src.layout.deal} == {Deal.STRIPS, Deal.ROUND}


@dataclass(frozen=True, slots=True)
class Unpack:
    """`dst` = the numbers of 4 bits, signed, in the bytes of `src`, both in `Deal.STRIPS`.

    Element (r, c) of `dst` is the lower half of element (r, c / 2) of `src`, the upper one where c
    is odd.  Every lane holds the bytes of its elements, so that nothing moves between threads.
    Needs:  rows and threads of both equal, `dst` twice the columns; i8 in vectors of 1, of which
            i32, f16 or bf16 in vectors of 2 is made.
    """

    dst: Fragment
    src: Fragment


@dataclass(frozen=True, slots=True)
class Reduce:
    """`dst` = elements of `src` put together by `op`: ``add``, ``mul``, ``maximum``, ``minimum``.

    Where the layout of `dst` is that of `src`, folded: neighbours along its rows, so many at a
    time, in a fixed order.  Where `dst` has fewer rows, a divisor of those of `src`: down each
    column, rows that lie as many apart.
    In `Deal.ROWS`, the same rows and threads: an element of `dst` is all that the threads which
    hold it have of its row, first what each holds, then among lanes.  Where a tile is one row,
    which every group of `src.across` threads has, its sum may be what all threads hold.
    Needs:  whole warps.  Along rows: neighbours that are put together lie in one warp (in
            `Deal.ROUND` a power of two of vectors, 32 at most; in `Deal.STRIPS` a whole row).
            Down columns: every thread holds all that it puts together.  Along rows in
            `Deal.ROWS`: as many threads of a row hold the same in `dst` as in `src`, or more, a
            power of two up to 32; `dst` has an element of a row for each of the others.

    Source: PTX ISA, "shfl.sync".
    """

    dst: Fragment
    src: Fragment
    op: str

    @property
    def down(self) -> bool:
        """Whether columns are put together."""
        return (
            self.dst.layout.folded == 1 and self.dst.layout.shape[:-1] != self.src.layout.shape[:-1]
        )

    @property
    def lanes(self) -> int:
        """Lanes that put together what each of them holds of a row, in `Deal.ROWS`."""
        return min(self.dst.layout.alike, self.src.layout.across) // self.src.layout.alike


@dataclass(frozen=True, slots=True)
class Scan:
    """`dst` = for each element of `src`, all of its run up to it put together by `op` with a start.

    `op` is ``add``, ``mul``, ``maximum`` or ``minimum``.  Where `start` has as many columns as
    `src`, two or more, it is one row, and a run is a column: ``dst[r, c] = start[0, c] op
    src[0, c] op ... op src[r, c]``.  Else each row is cut into as many runs of equal length as
    `start` has columns: ``dst[r, c] = start[r, c // n] op src[r, c // n * n] op ... op src[r, c]``
    of runs of n elements.
    `exclusive` leaves out the last one, the element itself.  In a fixed order of putting together.
    Needs:  whole warps, all in `Deal.ROWS`, the same rows and threads of a row; every thread has
            the start of the runs of which it holds elements of `dst`.  Along rows: either every
            thread holds whole rows of `src`, and there is one run; or `dst` is dealt as `src` is,
            each element to one thread, and a run is what a power of two of threads, 32 at most,
            hold next to each other: one vector each.  Down columns: `dst` is dealt as `src`, and
            all threads share each row, so that a thread holds whole columns.

    Source: PTX ISA, "shfl.sync".
    """

    dst: Fragment
    src: Fragment
    op: str
    start: Fragment
    exclusive: bool = False

    @property
    def down(self) -> bool:
        """Whether runs are columns."""
        return self.start.layout.shape[-1] == self.src.layout.shape[-1] > 1

    @property
    def of_lanes(self) -> bool:
        """Whether a run lies in several threads."""
        return not self.down and self.src.layout.alike < self.src.layout.across


@dataclass(frozen=True, slots=True)
class GridSum:
    """Add up `acc` of all CTAs that share a tile, in turns; who has the last one goes on with it.

    Only before the passes; a finished kernel has none.  `workspace` holds the sums so far, rounded
    to its type (that of `staged`, too), and `semaphore[index]` says whose of the `turns` it is;
    this CTA has number `turn`.  Threads read and write it, or if there is a slot `staged`, TMA
    stores and reduces what lies there: columns of `acc`, so many at a time as it has.  What threads
    put together by another `op` (``mul``, ``maximum``, ``minimum``) is a sum in that sense.
    """

    acc: Fragment
    workspace: Box
    semaphore: Semaphore
    index: Expr
    turn: Expr
    turns: Expr
    staged: Slot | None = None
    op: str = "add"


@dataclass(frozen=True, slots=True)
class GridShare:
    """Say that CTAs read what others have stored in a workspace: the `ctas` of `semaphore[index]`.

    With `alone` one of them does, and all that stands behind the first such read, too.  Only before
    the passes; a finished kernel has none.
    """

    workspace: str
    semaphore: Semaphore
    index: Expr
    ctas: Expr
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Coordinate:
    """`dst = origin + position of the element along axis` of the tile (an i64 or i32 fragment)."""

    dst: Fragment
    axis: int
    origin: Expr

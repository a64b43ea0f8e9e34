"""Where data lives in the Kernel IR: tensors, shared buffers, registers, and tiles of them.

No statement here; `ir` hands these names on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import prod

from fuser.dtype import DType
from fuser.expr import Expr, Kind, fold, maximum, minimum


@dataclass(frozen=True, slots=True)
class Cycle:
    """How position `p` of a tensor moves it: by `p // each % period` times `stride` elements.

    `each` and `period` are at least 1 in every launch; a period of None does not end.
    """

    each: Expr
    period: Expr | None
    stride: Expr


@dataclass(frozen=True, slots=True)
class Tensor:
    """A global tensor, seen as a strided view of the loop domain.

    `extents[d]` is a parameter of the kernel, or 1 where the tensor does not vary along `d`.
    `strides[d]` is in elements, 0 where the extent is the literal 1.  `aligned` is a launch
    precondition in elements: the address, every stride but a literal 1, and the last extent are
    multiples of it; where it is `ragged` the last extent need not be.  Different tensors share no
    bytes, and an output does not overlap itself.

    An input of one axis may repeat, such as a row for every row: with `cycles` its element `p` lies
    where these together move it.  Its stride is 1, and only ordinary loads read it: `aligned`
    elements, from a multiple of that on, are neighbours in memory.

    Where it is to be `kept`, what ordinary loads and bulk copies read of it leaves the L2 last: a
    hint.  Strides of one that is `near` are below 2^31 in every launch.
    """

    name: str
    dtype: DType
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    aligned: int = 1
    ragged: bool = False
    cycles: tuple[Cycle, ...] = ()
    kept: bool = False
    near: bool = False


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A number given at launch."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Literal:
    """A number known when the kernel was built."""

    value: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class Buffer:
    """Shared memory of one CTA: `slots` tiles of `shape`, each row-major, one after the other.

    `offset` is the first byte in the CTA's dynamic shared memory; a multiple of 128.  `pitch` is
    the bytes from one slot to the next where slots of other buffers lie between; 0 where none do.
    Buffers may share bytes; what then follows what is for the syncs to order.  What is written
    through one may be read through another, a view of it, where all bytes that are read have been
    written and waited for; a write through either conflicts with accesses through both.

    With a `swizzle` of 32, 64 or 128 bytes (0: none) a tile is cut into panels of so many bytes
    along its last axis, all rows of the first panel before those of the second.  Within a panel
    the 16-byte chunk that would lie at byte x of the slot lies at the byte that has bits 4, 5 and 6
    of x (of them as many as count chunks of a row) exchanged for their xor with bits 7, 8 and 9.
    `offset` is then a multiple of 8 rows.  Where nothing else lies in its bytes, such a tile is for
    everything but addresses as good as a row-major one.

    Source: PTX ISA, "tensor swizzling modes"; "wgmma, shared memory matrix layout".
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    slots: int
    offset: int
    swizzle: int = 0
    pitch: int = 0

    @property
    def slot_nbytes(self) -> int:
        """Bytes of one slot."""
        return prod(self.shape) * self.dtype.nbytes

    @property
    def step(self) -> int:
        """Bytes from one slot to the next."""
        return self.pitch or self.slot_nbytes

    @property
    def end(self) -> int:
        """First byte behind the last slot."""
        return self.start(self.slots - 1) + self.slot_nbytes

    def start(self, slot: int) -> int:
        """First byte of a slot."""
        return self.offset + slot * self.step

    def holds(self, first: int, end: int) -> bool:
        """Whether one of the bytes `first` to `end - 1` is of a slot."""
        return any(
            self.start(slot) < end and first < self.start(slot) + self.slot_nbytes
            for slot in range(self.slots)
        )

    def shares(self, other: Buffer) -> bool:
        """Whether a byte is of a slot of either."""
        return any(
            other.holds(self.start(slot), self.start(slot) + self.slot_nbytes)
            for slot in range(self.slots)
        )


class Deal(Enum):
    """How the elements of a tile are dealt out to threads; see `Layout`."""

    __hash__ = object.__hash__
    """Of the member, as `==` is: much faster than of its name."""

    ROUND = "round"
    STRIPS = "strips"
    EACH_WARP = "each_warp"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Layout:
    """How `threads` threads hold a tile of `shape`; threads and warps are counted in their role.

    `Deal.ROUND`: vectors of neighbours, dealt out in turn.  Row-major element `e` lies in vector
    `v = e // vector`, held by thread `v % threads` as register `(v // threads) * vector + e %
    vector`.  The last extent is a multiple of `vector`.

    `Deal.STRIPS`: as tensor cores hold accumulators and A operands.  The tile has two axes (others
    before them have extent 1), a multiple of 16 x 4 `vector`.  Strip `r // 16` of rows is held by
    warp `(r // 16) % warps`, element (r, c) by its lane `(r % 8) * 4 + c // vector % 4`.  A lane
    counts the vectors that it has down two blocks of 8 rows, then to the right, then in its next
    strip.  `vector` is 2, the elements in 4 bytes for an operand of `Mma`, and 1 of bytes of which
    `Unpack` makes pairs.

    `Deal.EACH_WARP`: as `Mma` holds B operands.  Every warp holds the whole tile of two axes, a
    multiple of 8 x 4 `vector`, element (r, c) in lane `(r % 8) * 4 + c // vector % 4`; `vector` is
    the elements in 4 bytes.

    `Deal.ROWS`: `across` neighbouring threads share a row, of which `alike` neighbours each hold
    the same.  The threads are so `groups = threads // across`, which take rows in turn, and of a
    tile of one row each that row.  Row-major element (r, c) is of vector `v = c // vector` of its
    row, held by threads `(r % groups) * across + (v % holders) * alike` and the `alike - 1` behind,
    where `holders = across // alike`, as register `(r // groups * (columns // vector) + v) //
    holders * vector + c % vector`.  Rows are a multiple of the groups, or one, which every group
    holds; columns one of `holders * vector`.  A store is by the first thread that holds an element.

    Where a tile in `Deal.ROWS` `slides`, it is not said who holds what of a row: vectors of 16
    bytes of memory, wherever a row begins between them.  Such a tile is loaded from a box whose
    rows are shorter by all but one element of a vector, at least, with zeros beside it, computed
    with, and reduced along its rows.

    A `folded` tile has an element for so many neighbours along the rows of a wider one, which is
    dealt in this way, and each lies where the first of them does.  Every vector holds the first of
    one such group at most.

    Source: PTX ISA, "wgmma.mma_async, register fragments", "mma.m16n8k8", "mma.m16n8k16",
    "mma.m16n8k32".
    """

    shape: tuple[int, ...]
    vector: int
    threads: int
    deal: Deal = Deal.ROUND
    folded: int = 1
    across: int = 0
    alike: int = 1
    slides: bool = False

    @property
    def holders(self) -> int:
        """Threads with parts of a row of their own, in `Deal.ROWS`."""
        return self.across // self.alike

    @property
    def per_row(self) -> int:
        """Registers that a thread has of each of its rows, in `Deal.ROWS`."""
        return self.shape[-1] // self.holders

    @property
    def wide(self) -> Layout:
        """The layout of the wider tile."""
        return replace(self, shape=(*self.shape[:-1], self.shape[-1] * self.folded), folded=1)

    @property
    def registers(self) -> int:
        """Elements that each thread holds (some threads may hold fewer valid ones)."""
        if self.folded > 1:
            wide = self.wide
            share = self.folded // 4 if self.deal is Deal.STRIPS else self.vector
            return wide.registers // share
        if self.deal is Deal.EACH_WARP:
            return prod(self.shape) // 32
        if self.deal is Deal.ROWS:
            rows = prod(self.shape[:-1])
            return (1 if rows == 1 else rows // (self.threads // self.across)) * self.per_row
        if self.deal is Deal.STRIPS:
            strips = -(-(prod(self.shape[:-1]) // 16) // (self.threads // 32))
            return strips * self.shape[-1] // 2
        return -(-prod(self.shape) // (self.vector * self.threads)) * self.vector

    def spreads(self, part: Layout) -> bool:
        """Whether every thread has what a row, a column or one element of `part` says of this tile.

        Both in `Deal.ROWS`, `part` of one row or one column, or both, and else as this; or of one
        row with an element for each run of so many neighbours in a vector of this.
        """
        if self.deal is not Deal.ROWS or part.deal is not Deal.ROWS:
            return False
        if (self.threads, self.across) != (part.threads, part.across) or part.folded > 1:
            return False
        if len(self.shape) != len(part.shape):
            return False
        rows, cols = prod(part.shape[:-1]) == 1, part.shape[-1] == 1
        run, odd = divmod(self.vector, part.vector)
        whole = not odd and part.alike == self.alike and part.shape[-1] * run == self.shape[-1]
        return (rows or part.shape[:-1] == self.shape[:-1]) and (
            (cols and part.alike == part.across) or (whole and rows)
        )


@dataclass(frozen=True, slots=True)
class Fragment:
    """A tile in registers.  16-bit floats are held as f32, unrounded, until stored or cast."""

    name: str
    dtype: DType
    layout: Layout


@dataclass(frozen=True, slots=True)
class Box:
    """The elements `origin <= x < origin + shape` of a global tensor, without those past `limit`.

    Coordinates are those of the loop domain.  Along an axis where the tensor's extent is the
    literal 1, origin is 0, shape and limit are 1, and a fragment's elements share the one value.
    Along the axis of an `index` it begins where memory says; its `origin` there is 0.
    """

    tensor: Tensor
    origin: tuple[Expr, ...]
    shape: tuple[int, ...]
    limit: tuple[Expr, ...]
    index: Index | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """Where a box begins along `axis`, where its shape is 1: at the integer that `src` is.

    An ordinary load of that one element, i32 or i64, by the thread that issues the copy, as it does
    so.  A box whose index is no place of the tensor lies outside of it.
    Needs:  the box is of a `TmaLoad` by a tensor map of the launch (or the `Copy` that becomes
            one); nobody writes either tensor in this launch: neither is an output or a workspace.
    """

    axis: int
    src: Box


def clipped(box: Box) -> tuple[Expr, ...]:
    """Return how many elements of a box lie before its limit, along each axis."""
    sizes: list[Expr] = []
    for origin, size, limit in zip(box.origin, box.shape, box.limit, strict=True):
        if fold(Kind.ADD, origin, size) == limit:
            sizes.append(size)
            continue
        left = minimum(size, fold(Kind.SUB, limit, origin))
        sizes.append(left if isinstance(origin, int) and origin == 0 else maximum(0, left))
    return tuple(sizes)


def run_nbytes(box: Box) -> Expr:
    """Return the bytes of a clipped box."""
    nbytes: Expr = box.tensor.dtype.nbytes
    for many in clipped(box):
        nbytes = fold(Kind.MUL, nbytes, many)
    return nbytes


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a shared buffer; `0 <= index < buffer.slots`.

    With `cta`, that of another CTA of the cluster (distributed shared memory), by its rank.
    """

    buffer: Buffer
    index: Expr
    cta: Expr | None = None


@dataclass(frozen=True, slots=True)
class TensorMaps:
    """`slots` tensor maps of `tensor` that each CTA has of its own and writes itself.

    They lie in global memory, 128 bytes each, lent by the launch, and hold nothing at its start.
    A map says from which element on, and up to which, an engine finds the tensor.
    """

    name: str
    tensor: Tensor
    slots: int


@dataclass(frozen=True, slots=True)
class MapSlot:
    """One of these maps, which begins at element `origin`; `0 <= index < maps.slots`.

    A copy *through* it tells the engine where its box lies from there, and finds what the map says
    at some time before its end.
    """

    maps: TensorMaps
    index: Expr
    origin: tuple[Expr, ...]


def exchanged(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with its last two axes exchanged."""
    return (*shape[:-2], *reversed(shape[-2:]))

"""What a kernel may rely on about the tensors of a call, beyond what the fusion promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.cut.few_rows import Few
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams

Params = PointwiseParams | MatmulParams | AmpereParams
"""How a kernel is computed; each kernel of a fusion takes those of its own kind."""
Registers = Literal["", "first", "either"]
"""Which operands of products may be computed in registers: none, first ones, or one of each."""


@dataclass(frozen=True, slots=True)
class ShapeClass:
    """The part of a call's shapes and addresses that one kernel is compiled for.

    Of a tensor as read or written that is `aligned`, address, strides other than 1 and the last
    extent of the loops are multiples of so many elements (1, 2, 4, 8 or 16; at most 16 bytes); the
    last extent of those that are `ragged` is no such multiple.  Those that are `far` have a stride
    of 2^31 elements or more.
    `tma` are those whose address and strides are multiples of 16 bytes; outputs also in the last
    extent, because TMA writes whole chunks of 16 bytes.  `whole`: rows of a kernel that has whole
    ones at a time fill its tiles; `close`: they end in the last vectors of the threads that share
    one, so that all others are whole.
    """

    aligned: tuple[tuple[str, int], ...]
    tma: frozenset[str]
    whole: bool = False
    ragged: frozenset[str] = frozenset()
    far: frozenset[str] = frozenset()
    close: bool = False

    def elements(self, name: str) -> int:
        """Alignment of one tensor, in elements."""
        return dict(self.aligned)[name]


NONE = frozenset[str]()


@dataclass(frozen=True, slots=True)
class Choices:
    """What the shapes and addresses of a call ask of the cut into kernels, by names of tensors.

    Operands of products that TMA cannot read where they lie are `copied` first; products whose axes
    suit no common tile, or that none has room for, get a kernel `apart`; the results of products
    and reductions of no elements (`empty`) are known.  Reductions that the kernel of their products
    begins, tile by tile, or one of whole rows, another one ends (`parts`); what others reduce is
    stored first.  Operands that are not in memory are computed in `registers`, where they can be,
    and not by a kernel before: first ones, or either one of a product.  Reductions in `rows` may
    stay in the kernel of results that they are broadcast back to, which has whole rows of what they
    reduce at a time; but not in that of results that are `spread`
    along them.  What is `kept` is stored by the kernel that multiplies, and read by all others.
    Products of `few` rows are sums.
    """

    copied: frozenset[str] = NONE
    apart: frozenset[str] = NONE
    empty: frozenset[str] = NONE
    parts: frozenset[str] = NONE
    registers: Registers = ""
    rows: frozenset[str] = NONE
    spread: frozenset[str] = NONE
    kept: frozenset[str] = NONE
    few: frozenset[Few] = frozenset()


@dataclass(frozen=True, slots=True)
class CallClass:
    """The class of a call: how its fusion is cut into kernels, and what each is compiled for."""

    choices: Choices
    kernels: tuple[ShapeClass, ...]
    schedules: tuple[Params, ...]

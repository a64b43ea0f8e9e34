"""Tensors that measurements write in place of the user's, and whether two results are alike."""

from __future__ import annotations

import torch

from fuser.dtype import DType
from fuser.fusion.ir import Fusion, tensor_args
from fuser.fusion.ops import accumulator
from fuser.runtime.plan import ALIGNED

CHUNK = 1 << 24
"""Elements that are compared at a time: 64 MB of f32."""
ULPS = 4
"""Roundings of the coarsest type that something is computed in, as parts of the largest result."""
SUMS, PRODUCTS, ROUGH = 2.0**-16, 2.0**-8, 2.0**-3
"""What sums in another order may differ by, likewise: those in f32, by tensor cores, and by tensor
cores that add with 10 to 14 bits (f8, or where f16 was asked for).  Source: the numeric contract in
`fusion/ops.py`, for thousands of terms of random signs."""
FLIPPED = 1e-3
"""Integers and truths, of all, that may differ where sums are rounded in another order before."""


def scratch_like(given: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor of the same shape, type and alignment of its address."""
    skipped = given.data_ptr() % ALIGNED // given.element_size()
    room = torch.empty(given.numel() + skipped, dtype=given.dtype, device=given.device)
    return room[skipped:].view(given.shape)


def twin(given: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its shape, strides and alignment, on torch's current stream."""
    if given.numel() == 0:
        return given
    reach = sum((n - 1) * s for n, s in zip(given.shape, given.stride(), strict=True))
    flat = given.as_strided((reach + 1,), (1,))
    copy = scratch_like(flat).copy_(flat)
    return copy.as_strided(given.shape, given.stride(), copy.storage_offset())


def spoil(outputs: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    """Fill outputs with what is wrong: what is not written then is seen."""
    for out, want in zip(outputs, wanted, strict=True):
        if out.dtype is torch.bool:
            torch.logical_not(want, out=out)
        else:
            out.view(-1).view(torch.uint8).fill_(255)  # NaN, -1


class Rounding:
    """How far results of one fusion by two schedules may be apart: that of sums in another order.

    It is a part of the largest element of an output, so that elements that cancel out do not count;
    what is wrong in small elements only is not seen, and where all of an output cancels out, one
    that is right may be said to be wrong.  The judges know tight bounds; this looks for tiles that
    are missing, misplaced or of another stage.
    """

    def __init__(self, fusion: Fusion) -> None:
        computed = [tv for tv in fusion.tensors if tv.op != "input"]
        products = [tv for tv in computed if tv.op == "mma"]
        rough = any(
            accumulator(tv) is DType.F16 or any(arg.dtype.is_f8 for arg in tensor_args(tv))
            for tv in products
        )
        self.sums = bool(products) or any(tv.op in ADDED for tv in computed)
        bounds = [ULPS * EPS[tv.dtype] for tv in computed if tv.dtype in EPS]
        bounds += [SUMS, *([PRODUCTS] if products else ()), *([ROUGH] if rough else ())]
        self.bound = max(bounds)

    def differ(self, got: list[torch.Tensor], wanted: list[torch.Tensor]) -> str:
        """Say how the results of a candidate differ from those of the default; empty if alike."""
        for n, (mine, want) in enumerate(zip(got, wanted, strict=True)):
            if mine.numel() and (why := self._apart(mine.view(-1), want.view(-1))):
                return f"output {n}: {why}"
        return ""

    def _apart(self, mine: torch.Tensor, want: torch.Tensor) -> str:
        begins = range(0, want.numel(), CHUNK)
        parts = [(mine[i : i + CHUNK], want[i : i + CHUNK]) for i in begins]
        if not want.dtype.is_floating_point:
            many = sum(int((a != b).sum()) for a, b in parts)
            allowed = FLIPPED * want.numel() if self.sums else 0
            return f"{many} of {want.numel()} elements differ" if many > allowed else ""
        wide = torch.float64 if want.dtype is torch.float64 else torch.float32
        largest, off = 0.0, 0.0
        for a, b in parts:
            x, y = a.to(wide), b.to(wide)
            alike = (x == y) | (x.isnan() & y.isnan())
            largest = max(largest, float(y.abs().nan_to_num(0.0, 0.0).max()))
            far = (x - y).abs().nan_to_num(torch.inf, torch.inf)
            off = max(off, float(far.masked_fill(alike, 0.0).max()))
        if off <= self.bound * largest:
            return ""
        return (
            f"off by {off:.3g} where the largest element is {largest:.3g}; rounding explains "
            f"{self.bound * largest:.2g}"
        )


ADDED = ("sum", "mean", "prod", "cumsum")
"""Operations whose results depend on an order."""
EPS = {
    dtype: torch.finfo(getattr(torch, dtype.torch_name)).eps
    for dtype in DType
    if getattr(torch, dtype.torch_name).is_floating_point
}
"""The distance from 1 to the next number of each floating-point type."""

"""What the reference expects of one output: values, bounds, and where it cannot say."""

from dataclasses import dataclass

import torch

from fuser.dtype import DType

TORCH = {dtype: getattr(torch, dtype.torch_name) for dtype in DType}
"""torch's element type for each of ours."""


@dataclass(frozen=True, eq=False, slots=True)
class Expected:
    """One output, as a kernel that obeys the numeric contract may return it.

    Parameters
    ----------
    value : torch.Tensor
        f64 for float dtypes, i64 for integers, bool for bool; on the CPU.
    bound : torch.Tensor
        f64, same shape: largest right deviation from `value`; 0 where only `value`, rounded to
        `dtype`, is right.  Meaningless where `value` is inf or NaN: the class must agree there.
    undecided : torch.Tensor
        bool, same shape: the answer hangs on rounding (a comparison of two nearly equal
        numbers), so no comparison can say anything.
    dtype : DType
        Type of the output in memory.
    """

    value: torch.Tensor
    bound: torch.Tensor
    undecided: torch.Tensor
    dtype: DType

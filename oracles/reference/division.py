"""Floor division, its remainder and the square root, right for every operand.

torch's own float versions give NaN on the CPU where the quotient overflows (their fmod is
vectorised); its integer versions raise or trap at zero and at the least integer over -1.
"""

import numpy as np
import torch


def fmod(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the exact remainder with the sign of a; NaN where b is 0 or a is inf."""
    with np.errstate(all="ignore"):
        part = np.fmod(a.numpy(), b.numpy())
    return torch.as_tensor(part, dtype=a.dtype)


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a - b * floor(a / b) of floats, with the sign of b."""
    part = fmod(a, b)
    return torch.where((part != 0) & ((b < 0) != (part < 0)), part + b, part)


def floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return floor(a / b) of floats, of the exact quotient while it fits the mantissa."""
    part = fmod(a, b)
    quotient = (a - part) / b
    quotient = torch.where((part != 0) & ((b < 0) != (part < 0)), quotient - 1, quotient)
    whole = quotient.floor()
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)
    whole = torch.where(quotient == 0, torch.copysign(whole, a / b), whole)
    return torch.where(b == 0, a / b, whole)


def int_floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return floor(a / b) of integers; wraps for b = -1, and is some number for b = 0."""
    plain = torch.where((b == 0) | (b == -1), 1, b)
    return torch.where(b == -1, -a, torch.floor_divide(a, plain))


def int_remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the remainder of integers with the sign of b; some number for b = 0."""
    plain = torch.where((b == 0) | (b == -1), 1, b)
    return torch.where(b == -1, 0, torch.remainder(a, plain))


def square_root(x: torch.Tensor) -> torch.Tensor:
    """Return the correctly rounded square root; torch's is 1 ulp off for 1 in 100 f64 numbers."""
    with np.errstate(invalid="ignore"):
        root = np.sqrt(x.numpy())
    return torch.as_tensor(root, dtype=x.dtype)

"""What the torch text of a fusion may use besides torch: it is copied into every script.

Nothing here knows of fusions, so that a script needs only torch; it has `SPECIALS` written out.
"""

import torch

from fuzz.cases.case import SPECIALS


def order(x: torch.Tensor) -> torch.Tensor:
    """Return integers of 32 bits that order like x: NaN above all, both zeros alike."""
    if not x.is_floating_point():
        return x.to(torch.int64)
    bits = (x.to(torch.float32) + 0.0).view(torch.int32).to(torch.int64)
    return torch.where(torch.isnan(x), 2**31 - 1, torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits))


def philox(seed: torch.Tensor, stream: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Return the 32 random bits at a place of a stream: Philox 4x32-10."""
    mask = 0xFFFFFFFF
    count = (place >> 2) & 0x3FFFFFFFFFFFFFFF
    k0, k1 = seed & mask, (seed >> 32) & mask
    c0, c1, c2, c3 = count & mask, (count >> 32) & mask, stream & mask, (stream >> 32) & mask
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = ((b >> 32) & mask) ^ c1 ^ k0, b & mask
        c2, c3 = ((a >> 32) & mask) ^ c3 ^ k1, a & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    word = place & 3
    return torch.where(word == 0, c0, torch.where(word == 1, c1, torch.where(word == 2, c2, c3)))


def drawn(
    seed: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    integers: bool,
) -> torch.Tensor:
    """Make an input, always the same: small integers, or reals with a few special values."""
    random = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        values = torch.randint(0, 2, shape, generator=random)
    elif integers:
        values = torch.randint(-4, 5, shape, generator=random)
    elif not dtype.is_floating_point:
        most = 128 if dtype is torch.int8 else 1000
        values = torch.randint(-most, most, shape, generator=random)
    else:
        values = 2 * torch.randn(shape, generator=random, dtype=torch.float64)
        special = torch.tensor(SPECIALS, dtype=torch.float64)
        pick = torch.randint(0, len(SPECIALS), shape, generator=random)
        rare = torch.rand(shape, generator=random) < 1 / 64
        values = torch.where(rare, special[pick], values)
    reach = sum((n - 1) * stride for n, stride in zip(shape, strides))  # noqa: B905 (short)
    memory = torch.full((offset + max(reach + 1, 0),), float("nan")).to(dtype)  # seen in no gap
    made = memory.as_strided(shape, strides, offset)
    return made.copy_(values) if made.numel() else made


def right(got: float, expected: float, bound: float) -> bool:
    """Tell whether an element is what it should be: as far off as its bound, or also NaN."""
    both_nan = got != got and expected != expected
    return both_nan or got == expected or abs(got - expected) <= bound

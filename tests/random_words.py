"""Philox 4x32-10 in plain Python, and how torch deals its words to elements on a GPU."""

from __future__ import annotations

import torch


def words(seed: int, stream: int, block: int) -> tuple[int, int, int, int]:
    """Return the four words of a block of a stream."""
    low = 2**32 - 1
    k0, k1 = seed & low, seed >> 32 & low
    c0, c1, c2, c3 = block & low, block >> 32 & low, stream & low, stream >> 32 & low
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & low, (a >> 32) ^ c3 ^ k1, a & low
        k0, k1 = k0 + 0x9E3779B9 & low, k1 + 0xBB67AE85 & low
    return c0, c1, c2, c3


def philox(seed: torch.Tensor, stream: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Return the words at places of streams."""
    keys = torch.broadcast_tensors(seed, stream, place)
    every = zip(*(key.flatten().tolist() for key in keys), strict=True)
    made = [words(s, t, (p & 2**64 - 1) >> 2)[p & 3] for s, t, p in every]
    return torch.tensor(made, dtype=torch.int64).reshape(keys[0].shape)


def uniform(many: int, seed: int, offset: int, streams: int) -> torch.Tensor:
    """Return what `torch.rand` deals to elements: a thread has one of every so many."""
    index = torch.arange(many)
    bits = philox(torch.full([many], seed), index % streams, offset + index // streams)
    made = bits.float() * 2**-32 + 2**-33
    return torch.where(made == 1, 0.0, made)


def kept(many: int, nbytes: int, p: float, seed: int, streams: int) -> list[bool]:
    """Return which elements of so many bytes `torch.native_dropout` keeps, thread by thread.

    Each takes 16 bytes, and as many words as it then has elements, but blocks of four.
    """
    found, each = [False] * many, 16 // nbytes
    for thread in range(streams):
        block = 0
        for first in range(each * thread, many, each * streams):
            drawn = [w for n in range(-(-each // 4)) for w in words(seed, thread, block + n)]
            block += -(-each // 4)
            for n in range(each):
                found[first + n] = drawn[n] * 2.0**-32 + 2.0**-33 < 1 - p
    return found

"""A Program: several launches in a row on one stream, over the same global memory."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.kernel import ir as kir


@dataclass(frozen=True, slots=True)
class Program:
    """Kernels launched one after the other; each begins when the one before has ended.

    Tensors and semaphores of one name are the same memory, so a workspace or an output of one
    launch may be an input of a later one.  The boundary between two launches orders everything
    before it, in every proxy, before everything after it.

    Source: CUDA programming guide, "Streams".
    """

    name: str
    launches: tuple[kir.Kernel, ...]

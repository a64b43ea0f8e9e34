"""What a kernel written by hand is to compute: a torch function, said beside it.

::

    @expect(lambda A, B: A.float() @ B.float().T)
    def product() -> Kernel: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = Callable[..., Any]
Builder = TypeVar("Builder", bound=Callable[..., object])


class ExpectError(ValueError):
    """A function that does not fit its kernel; the message says why."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A function of a kernel's inputs that returns its outputs, and how exactly.

    Parameters
    ----------
    function : callable
        Its arguments are tensors, scalars and parameters of the kernel, by name; those of a
        function whose names are others (`torch.relu`) are the inputs, in order.  An output that it
        asks for begins with data, for kernels that update it; others begin as poison.  It returns
        a tensor, or a tuple with one for each output, or a dict.
    rtol, atol : float, optional
        What an element may be off: `atol`, and `rtol` times its value.  Without them the bound is
        that of the rounding errors of the function's operations.
    """

    function: Function
    rtol: float | None = None
    atol: float | None = None

    def __call__(self, builder: Builder) -> Builder:
        """Say it of a function that returns a kernel."""
        builder.expect = self  # type: ignore[attr-defined]
        return builder


def expect(
    function: Function, *, rtol: float | None = None, atol: float | None = None
) -> Expectation:
    """Return what to write above a function that returns a kernel, or into a file's `EXPECT`."""
    return Expectation(function, rtol, atol)

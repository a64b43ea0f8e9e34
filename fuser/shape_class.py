"""What a kernel may rely on about the tensors of a call, beyond what the fusion promises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShapeClass:
    """The part of a call's shapes and addresses that one kernel is compiled for.

    Parameters
    ----------
    aligned : tuple of (str, int)
        Per tensor as read or written: address, strides other than 1 and the last extent of the
        loops are multiples of this many elements (1, 2, 4, 8 or 16; at most 16 bytes).
    tma : frozenset of str
        The tensors whose address and strides are multiples of 16 bytes; outputs also in the last
        extent, because TMA writes whole chunks of 16 bytes.
    """

    aligned: tuple[tuple[str, int], ...]
    tma: frozenset[str]

    def elements(self, name: str) -> int:
        """Alignment of one tensor, in elements."""
        return dict(self.aligned)[name]

"""Which role has each axis of an `mma`: M, N, K or batch.  The one place that reads its mapping.

Exact and broadcast mapping of axes, tiling, predicates, TMA boxes and epilogue all ask `roles`,
so that no stage guesses a role from a shape.
"""

from dataclasses import dataclass
from enum import Enum

from fuser.fusion.ir import Extent, TensorView


class AxisRole(Enum):
    """What an axis of the full output does: M is of a, N of b, K (summed away), BATCH of both."""

    M = "M"
    N = "N"
    K = "K"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class MmaAxis:
    """One axis of the full output of an `mma`, which still has the axes that are summed away.

    `a`, `b`, `result` are its axes in these tensors; None where it is absent.  The extent is 1
    where every operand that has it has extent 1; such an axis has a role like any other.
    """

    role: AxisRole
    a: int | None
    b: int | None
    result: int | None
    extent: Extent


def roles(tv: TensorView) -> tuple[MmaAxis, ...]:
    """Return every axis of the full output of an `mma`, in order.

    An operand's axis of extent 1 that stretches along a real axis of the other stands nowhere: the
    operand does not have that axis.  So a [B, M, K] times [1, K, N] has two axes M.
    """
    if tv.op != "mma":
        raise ValueError(f"roles({tv}): {tv} is defined by {tv.op}; ask only for an mma")
    a, b = tv.args
    if not isinstance(a, TensorView) or not isinstance(b, TensorView):
        raise ValueError(f"roles({tv}): {a} times {b}; both operands of an mma are tensors")
    attrs = {key: tuple(map(int, value)) for key, value in tv.attrs}
    out: list[MmaAxis] = []
    kept = 0
    pairs = zip(attrs["a_axes"], attrs["b_axes"], strict=True)
    for axis, (in_a, in_b) in enumerate(pairs):
        reduced = axis in attrs["reduced"]
        out.append(
            MmaAxis(
                role=_role(in_a, in_b, reduced=reduced),
                a=in_a if in_a >= 0 else None,
                b=in_b if in_b >= 0 else None,
                result=None if reduced else kept,
                extent=a.shape[in_a] if in_a >= 0 else b.shape[in_b],
            )
        )
        kept += not reduced
    return tuple(out)


def _role(in_a: int, in_b: int, *, reduced: bool) -> AxisRole:
    if reduced:
        return AxisRole.K
    if in_b < 0:
        return AxisRole.M
    return AxisRole.N if in_a < 0 else AxisRole.BATCH

"""Small tensors, repeated: what a larger call is given, and what it has to return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import torch

from oracles.differential import wrong_elements
from oracles.reference.evaluate import Expected
from oracles.verdict import Finding, Status, Verdict

BLOCK = 1 << 23
"""Elements that are compared at a time: what that takes besides is a tenth of a call."""

Block = tuple[int | slice, ...]
"""A part of a tensor: positions along some axes, and a range of the next."""
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def folded(tensor: torch.Tensor, repeats: Sequence[int]) -> torch.Tensor:
    """View each axis of a large tensor as two: the turn, and the position in it."""
    for axis in reversed(range(tensor.dim())):
        tensor = tensor.unflatten(axis, (repeats[axis], tensor.shape[axis] // repeats[axis]))
    return tensor


def repeated(tensor: torch.Tensor, repeats: Sequence[int]) -> torch.Tensor:
    """View a small tensor as the large one is seen when `folded`."""
    for axis in reversed(range(tensor.dim())):
        tensor = tensor.unsqueeze(axis)
    pairs = zip(repeats, tensor.shape[1::2], strict=True)
    return tensor.expand([n for pair in pairs for n in pair])


def fill(large: torch.Tensor, small: torch.Tensor, repeats: Sequence[int]) -> None:
    """Write a small tensor into a large one, so often along each axis."""
    folded(_bits(large), repeats).copy_(repeated(_bits(small), repeats))


def judged(
    large: Sequence[torch.Tensor],
    small: Sequence[torch.Tensor],
    repeats: Sequence[Sequence[int]],
    expected: Callable[[], list[Expected]],
    *,
    exact: bool,
) -> Verdict:
    """Compare the outputs of a larger call with those of its case, bit by bit.

    A NaN is like any other, and so is a zero: its sign may hang on the order of a sum or maximum.
    Outputs with other bits are judged by the reference of the small call: where reals are rounded
    elsewhere, as kernels of another class may add up in another order, they may be right.

    Parameters
    ----------
    large, small : sequence of torch.Tensor
        On one device, any.
    repeats : sequence
        Of each output, as `Enlarged.repeats` has them.
    expected : callable
        Returns that reference.
    exact : bool
        Whether it allows of what is decided nothing but its value.
    """
    unlike = [_unlike(*each) for each in zip(large, small, repeats, strict=True)]
    many = sum(one.many for one in unlike if one is not None)
    reason = f"{many} elements have other bits than those of the small call" if many else ""
    wanted = expected() if many else [None] * len(unlike)
    checked, findings = 0, []
    outputs = zip(large, small, repeats, unlike, wanted, strict=True)
    for n, (made, own, each, found, want) in enumerate(outputs):
        checked += max(made.numel(), 1)
        if found is None or want is None:
            continue
        checked -= prod(each) * int(want.undecided.sum())
        wrong = _wrong(made, each, want, exact=exact)
        if wrong is not None:
            said = _said(made, own, each, wrong, want)
            findings.append(Finding("enlarged", f"output {n}", said))
    if findings:
        return Verdict("gpu", Status.FAIL, max(checked, 1), tuple(findings), reason)
    return Verdict("gpu", Status.PASS if checked else Status.UNKNOWN, checked, (), reason)


def unchanged(large: torch.Tensor, small: torch.Tensor, repeats: Sequence[int]) -> bool:
    """Tell whether a large input still has what it was filled with."""
    return _unlike(large, small, repeats) is None


@dataclass(frozen=True, slots=True)
class _Wrong:
    """How many elements of a large tensor are wrong, and where the first of them is."""

    many: int
    first: tuple[int, ...]


def _unlike(large: torch.Tensor, small: torch.Tensor, repeats: Sequence[int]) -> _Wrong | None:
    """Compare with the bits of the small call."""
    there = repeated(small, repeats)
    wide = torch.float64 if small.dtype is torch.float64 else torch.float32

    def unlike(part: torch.Tensor, at: Block) -> torch.Tensor:
        wrong = _bits(part) != _bits(there[at])
        if small.dtype.is_floating_point and bool(wrong.any()):
            a, b = part.to(wide), there[at].to(wide)
            wrong &= (a != b) & ~(a.isnan() & b.isnan())
        return wrong

    return _first(large, repeats, unlike)


def _wrong(
    large: torch.Tensor, repeats: Sequence[int], want: Expected, *, exact: bool
) -> _Wrong | None:
    """Compare with the reference of the small call."""
    known = (want.value, want.bound, want.undecided)
    value, bound, undecided = (repeated(one.to(large.device), repeats) for one in known)

    def wrong(part: torch.Tensor, at: Block) -> torch.Tensor:
        here = Expected(value[at], bound[at], undecided[at], want.dtype)
        return wrong_elements(here, part, exact=exact)

    return _first(large, repeats, wrong)


def _first(
    large: torch.Tensor,
    repeats: Sequence[int],
    wrong: Callable[[torch.Tensor, Block], torch.Tensor],
) -> _Wrong | None:
    """Go through a large tensor by blocks; count what is wrong, and say where it begins."""
    whole = folded(large, repeats)
    many, first = 0, None
    for block in _blocks(whole.shape):
        flags = wrong(whole[block], block)
        count = int(flags.sum())
        many += count
        if count and first is None:
            place = int(flags.reshape(-1).to(torch.uint8).argmax())
            first = _unfolded(block, np.unravel_index(place, tuple(flags.shape)), whole.shape)
    return None if first is None else _Wrong(many, first)


def _blocks(shape: Sequence[int]) -> Iterator[Block]:
    """Yield parts of a tensor in order, of `BLOCK` elements at most."""
    if 0 in shape:
        return
    if not shape:
        yield ()
        return
    rest = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axis = next(n for n, many in enumerate(rest) if many <= BLOCK)
    step = BLOCK // rest[axis]
    for outer in product(*map(range, shape[:axis])):
        for begin in range(0, shape[axis], step):
            yield (*outer, slice(begin, begin + step))


def _unfolded(block: Block, place: Sequence[np.intp], shape: Sequence[int]) -> tuple[int, ...]:
    """Return where in a large tensor an element of a block of it is, as `folded` to a shape."""
    begins = [n.start if isinstance(n, slice) else n for n in block]
    begins += [0] * (len(shape) - len(begins))
    known = len(shape) - len(place)
    full = [*begins[:known], *(b + int(n) for b, n in zip(begins[known:], place, strict=True))]
    turns = zip(full[::2], full[1::2], shape[1::2], strict=True)
    return tuple(turn * n + at for turn, at, n in turns)


def _said(
    large: torch.Tensor,
    small: torch.Tensor,
    repeats: Sequence[int],
    found: _Wrong,
    want: Expected,
) -> str:
    """Say what is wrong with an output, and where it is first."""
    own = tuple(n % many for n, many in zip(found.first, small.shape, strict=True))
    element = int(np.ravel_multi_index(found.first, tuple(large.shape))) if own else 0
    return (
        f"{found.many} of {large.numel()} elements wrong, axes repeated {list(repeats)} times; "
        f"first at {list(found.first)}, element {element}: {large[found.first].item()!r}, but "
        f"{small[own].item()!r} at {list(own)} of the small call, expected "
        f"{want.value[own].item()!r}, bound {want.bound[own].item():.3g}"
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_BITS[tensor.itemsize])

"""Arrays compared with what the reference expects; it never returns PASS without comparing."""

from collections.abc import Sequence

import torch

from fuser.dtype import DType
from oracles.reference.estimate import TORCH
from oracles.reference.evaluate import Expected
from oracles.verdict import HANGING, Finding, Status, Verdict

NAME = "differential"


def compare(
    expected: list[Expected],
    got: list[torch.Tensor],
    *,
    exact: bool,
    names: Sequence[str] | None = None,
) -> Verdict:
    """Compare the outputs of a kernel with the reference.

    Parameters
    ----------
    expected : list of Expected
        One per output.
    got : list of torch.Tensor
        The kernel's outputs, on any device.
    exact : bool
        True demands equality with the value rounded to the output's dtype: right for integer
        valued inputs that stay exact on the way.  False allows the bound of each element.
        NaN equals NaN and inf equals inf either way.
    names : sequence of str, optional
        Of the outputs, to be called by; by their numbers without them.

    Returns
    -------
    Verdict
        PASS if every decided element is right, FAIL with the worst element of each wrong output,
        UNKNOWN if nothing could be decided.  `checked` counts decided elements, and one claim
        (shape and dtype) for each output without elements.
    """
    if len(expected) != len(got):
        witness = f"{len(got)} outputs returned, {len(expected)} expected"
        return Verdict(NAME, Status.FAIL, 1, (Finding("outputs", "the call", witness),))
    if not expected:
        return Verdict(NAME, Status.UNKNOWN, 0, reason="there is no output to compare")
    checked = undecided = 0
    findings: list[Finding] = []
    for number, (want, have) in enumerate(zip(expected, got, strict=True)):
        where = f"output {names[number] if names else number}"
        if have.dtype != TORCH[want.dtype] or have.shape != want.value.shape:
            findings.append(Finding("form", where, _form(want, have)))
            checked += 1
            continue
        if want.value.numel() == 0:
            checked += 1
            continue
        open_ = int(want.undecided.sum())
        undecided += open_
        checked += want.value.numel() - open_
        findings += _wrong(want, have.detach().cpu(), where, exact=exact)
    reason = ""
    if undecided:
        share = undecided / (checked + undecided)
        reason = f"{undecided} elements ({share:.1%}) {HANGING}"
    if findings:
        return Verdict(NAME, Status.FAIL, checked, tuple(findings), reason)
    return Verdict(NAME, Status.PASS if checked else Status.UNKNOWN, checked, (), reason)


def _form(want: Expected, have: torch.Tensor) -> str:
    expected = f"{want.dtype}{list(want.value.shape)}"
    return f"returned {have.dtype}{list(have.shape)}, expected {expected}"


def wrong_elements(want: Expected, have: torch.Tensor, *, exact: bool) -> torch.Tensor:
    """Return which elements of an output of the right form are wrong; those undecided are not."""
    return _compared(want, have, exact=exact)[0]


def _wrong(want: Expected, have: torch.Tensor, where: str, *, exact: bool) -> list[Finding]:
    """Return one finding for the worst wrong element of an output, if there is one."""
    wrong, value, seen, bound, error = _compared(want, have, exact=exact)
    if not bool(wrong.any()):
        return []
    ratio = torch.where(bound > 0, error / bound, torch.inf)
    # Where several ratios are infinite, the largest error is the worst.
    rank = torch.where(wrong, ratio, -1.0)
    most = wrong & (rank == rank.max())
    worst = int(torch.where(most, error, -1.0).reshape(-1).argmax())
    index = tuple(int(n) for n in torch.unravel_index(torch.tensor(worst), value.shape))
    witness = (
        f"{int(wrong.sum())} of {wrong.numel()} elements wrong; worst at {list(index)}: "
        f"got {seen[index].item()!r}, expected {value[index].item()!r}, "
        f"bound {bound[index].item():.3g}, error {error[index].item():.3g}, "
        f"error/bound {ratio[index].item():.3g}{_whose(value, seen[index], bound)}"
    )
    return [Finding("value", where, witness)]


def _compared(
    want: Expected, have: torch.Tensor, *, exact: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what is wrong, and per element: expected, got, bound, error."""
    if want.dtype.is_float:
        value, seen = want.value, have.to(torch.float64)
        if exact:
            # The same two steps as a kernel: f32 first, except from f64.
            held = value if want.dtype is DType.F64 else value.to(torch.float32)
            value = held.to(TORCH[want.dtype]).to(torch.float64)
        bound = torch.zeros_like(value) if exact else want.bound
        same = (value == seen) | (value.isnan() & seen.isnan())
        close = value.isfinite() & seen.isfinite() & ((seen - value).abs() <= bound)
        right = same | close
        error = torch.where(seen.isfinite() & value.isfinite(), (seen - value).abs(), torch.inf)
    else:
        value, seen = want.value, have.to(want.value.dtype)
        bound = torch.zeros_like(want.bound) if exact else want.bound
        error = (seen.to(torch.float64) - value.to(torch.float64)).abs()
        right = (value == seen) | ((bound > 0) & (error <= bound))
    return ~right & ~want.undecided, value, seen, bound, error


def _whose(value: torch.Tensor, seen: torch.Tensor, bound: torch.Tensor) -> str:
    """Name the one element that should be what is seen elsewhere, as after a wrong index."""
    if value.dtype is torch.bool:
        return ""
    places = ((value - seen).abs() <= bound).nonzero()
    return f"; that is what {places[0].tolist()} should be" if len(places) == 1 else ""

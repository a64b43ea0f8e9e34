"""Measures what kernels may be scheduled by, one kernel after the other, and says which is best."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Protocol

import torch

from fuser.errors import CompileError, ScheduleError
from fuser.kernel import ir as kir
from fuser.pipeline import Program
from fuser.runtime.classify import Alternatives
from fuser.runtime.tuning.outputs import Rounding, spoil
from fuser.runtime.tuning.timing import FAR, Call, Timer, race
from fuser.schedule.shape_class import CallClass, Params

Judge = Callable[[kir.Kernel], str | None]
"""Says why a finished kernel is not to be offered; None if it may be."""

MARGIN = 0.02
"""Of the default's time, what a schedule has to save to be chosen instead: less is noise."""
SLOW = f"{FAR:g} times the fastest in a first run, or more"
REFUSED = 4
"""Of the candidates wanted, how many times as many are looked at."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How to tune.

    Parameters
    ----------
    n : int
        Schedules of each kernel that are compiled and measured, the default among them; 1 or more.
    background : bool
        Calls run by default until a thread has measured, on a stream of its own and on copies of
        the inputs of the first call of a class.
    judge : callable, optional
        Given each candidate's finished kernel before it runs; what it says in a text is refused.
        Without one candidates have passed the checks of the compiler only, as defaults have;
        `fuser.named_refusal` asks the prover for the named invariants.

    Raises
    ------
    ScheduleError
        If `n` is no positive int.
    """

    n: int = 8
    background: bool = False
    judge: Judge | None = None

    def __post_init__(self) -> None:
        """Check the number."""
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise ScheduleError(f"Tuning(n={self.n!r}): need 1 or more schedules; use n=8")

    @property
    def judged_by(self) -> str:
        """Name of the judge; empty if there is none."""
        if self.judge is None:
            return ""
        named = self.judge if hasattr(self.judge, "__qualname__") else type(self.judge)
        return f"{named.__module__}.{named.__qualname__}"


@dataclass(frozen=True, slots=True)
class Tried:
    """A schedule of one kernel, the others' being what was best so far.

    `us` are the microseconds of a whole call, the median of some runs on cold operands; None where
    there is none, and `note` says why.
    """

    kernel: int
    params: Params
    us: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured; `schedules` are those chosen, one for each kernel."""

    tried: tuple[Tried, ...]
    schedules: tuple[Params, ...]
    default_us: float
    us: float

    def __str__(self) -> str:
        """Write it as a table: microseconds, times the default, schedule."""
        gain = f"{self.default_us / self.us:.2f} times the default's speed"
        lines = [f"{self.default_us:.2f} us by default, {self.us:.2f} us chosen: {gain}"]
        first: dict[int, Params] = {}
        for one in self.tried:
            default = first.setdefault(one.kernel, one.params)
            if default is one.params:
                lines.append(f"kernel {one.kernel}: {type(default).__name__} {default.family}")
            us = f"{one.us:10.2f}" if one.us is not None else f"{'-':>10}"
            chosen = "*" if one.params == self.schedules[one.kernel] else " "
            says = "default" if default is one.params else changes(one.params, default)
            lines.append(f"{chosen}{us}  {says}{f': {one.note}' if one.note else ''}")
        return "\n".join(lines)


def changes(params: Params, default: Params) -> str:
    """Write how params differ from others: all of them, if they are of another kind."""
    if type(params) is not type(default):
        return str(params)
    pairs = ((one.name, getattr(params, one.name)) for one in fields(params))
    return ", ".join(f"{name}={v!r}" for name, v in pairs if v != getattr(default, name))


class Stand(Protocol):
    """What builds and runs the classes of one call, on scratch tensors."""

    outputs: list[torch.Tensor]
    """What the calls write."""

    def program(self, shapes: CallClass) -> Program:
        """Compile to CUDA; ScheduleError if the schedules cannot be met."""

    def call(self, shapes: CallClass) -> Call:
        """Return what launches all kernels of a class."""


def search(
    alternatives: Alternatives,
    stand: Stand,
    timer: Timer,
    tuning: Tuning,
    rounding: Rounding,
    going: Callable[[], bool] = lambda: True,
) -> Report:
    """Return the fastest schedules of a call; those of each kernel while others keep theirs.

    Kernels before have what was chosen for them, those behind the default.  A candidate that the
    judge refuses is not run; one whose outputs are not the default's, but for rounding, is not
    chosen, and a RuntimeWarning says so: one of the two is wrong, and that is a bug of ours.
    """
    best = alternatives.default
    calls = {best: stand.call(best)}
    for out in stand.outputs:
        out.zero_()  # what the default leaves out is seen, too: candidates begin with NaNs
    calls[best]()
    wanted = [out.clone() for out in stand.outputs]
    tried: list[Tried] = []
    default_us = us = 0.0
    for kernel in range(len(best.schedules)):
        notes = {best: ""}
        for one, refused in _contenders(alternatives, stand, tuning, best, kernel):
            if not going():
                break
            notes[one] = refused or _trial(stand, one, kernel, calls, wanted, rounding)
        contenders = [one for one, note in notes.items() if not note]
        taken = race([calls[one] for one in contenders], timer, going)
        times = dict(zip(contenders, taken, strict=True))
        for one, note in notes.items():
            if one in times and times[one] is None:
                note = SLOW
            tried.append(Tried(kernel, one.schedules[kernel], times.get(one), note))
        measured = {one: us for one, us in times.items() if us is not None}
        if kernel == 0:
            default_us = measured[best]
        fastest = min(measured, key=measured.__getitem__)
        if measured[fastest] > (1 - MARGIN) * measured[best]:
            fastest = best
        best, us = fastest, measured[fastest]
        calls = {best: calls[best]}
    return Report(tuple(tried), best.schedules, default_us, us)


def _contenders(
    alternatives: Alternatives,
    stand: Stand,
    tuning: Tuning,
    best: CallClass,
    kernel: int,
) -> Iterator[tuple[CallClass, str]]:
    """Yield what a kernel's candidates make of the best class so far, if it can be built.

    With it why the judge refuses it; empty if nobody does.
    """
    seen, looked, offered = {best}, 0, 1
    for params in alternatives.candidates(kernel):
        if offered >= tuning.n or looked >= REFUSED * tuning.n:
            return
        one = alternatives.replaced(best, kernel, params)
        if one is None or one in seen:
            continue
        seen.add(one)
        looked += 1
        try:
            made = stand.program(one).launches[kernel].kernel
        except ScheduleError:
            continue
        why = None if tuning.judge is None else tuning.judge(made)
        offered += why is None
        yield one, "" if why is None else f"refused by {tuning.judged_by}: {why}"


def _trial(
    stand: Stand,
    one: CallClass,
    kernel: int,
    calls: dict[CallClass, Call],
    wanted: list[torch.Tensor],
    rounding: Rounding,
) -> str:
    """Run a candidate once; say why it is not measured, empty if it is."""
    params = one.schedules[kernel]
    spoil(stand.outputs, wanted)
    try:
        calls[one] = stand.call(one)
        calls[one]()
    except ScheduleError as error:
        return f"refused: {error}"
    except torch.OutOfMemoryError:
        return "refused: no memory is left for its workspace"
    except CompileError as error:
        warnings.warn(f"tune: {params}: {error}", RuntimeWarning, stacklevel=2)
        return f"not compiled: {error}"
    why = rounding.differ(stand.outputs, wanted)
    if not why:
        return ""
    warnings.warn(
        f"tune: {params} computes other results than the default schedule: {why}; it is not "
        "chosen, but one of both is wrong: report it with the fusion and the shapes",
        RuntimeWarning,
        stacklevel=2,
    )
    return f"WRONG: {why}"

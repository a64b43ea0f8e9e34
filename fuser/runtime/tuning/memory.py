"""What was measured, kept on disk: the schedules of a class of calls on a kind of device.

One small file for each, named by a digest of all that the answer depends on, which is also in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path

from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion, Symbol
from fuser.runtime import disk
from fuser.runtime.nvrtc import version as nvrtc_version
from fuser.schedule import candidates
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams, PointwiseParams, ReductionParams, ScanParams
from fuser.schedule.shape_class import CallClass, Params

SUFFIX = ".tuned"
MOST_BYTES = 16 << 20
"""What all answers may take: some thousands, of 2 to 10 kB each."""
BITS = 4
"""Leading bits of an extent that tell calls apart: those of a class differ by an eighth at most."""
KINDS: dict[str, Callable[..., Params]] = {
    kind.__name__: kind
    for kind in (
        PointwiseParams, ReductionParams, NormParams, ScanParams, MatmulParams, AmpereParams
    )
}  # fmt: skip
SOURCES = Path(__file__).parents[2]
"""The compiler: what any of its files says may change which schedule is the fastest."""


@dataclass(frozen=True, slots=True)
class Device:
    """What is measured on: its name and how many SMs it has."""

    name: str
    sms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer: the schedules of all kernels, of how many candidates of each, who judged them.

    `judge` is empty where nobody did.
    """

    schedules: tuple[Params, ...]
    n: int
    judge: str


def about(fusion: Fusion, shapes: CallClass, extents: Mapping[Symbol, int], device: Device) -> str:
    """Write all that an answer depends on.

    `shapes` is the class of the call by default, `extents` are those of the fusion's symbols.
    """
    says = {
        "fusion": str(fusion),
        "class": canonical(shapes),
        "extents": {symbol.name: near(n) for symbol, n in extents.items()},
        "device": device.name,
        "sms": device.sms,
        "fuser": sources(SOURCES),
        "nvrtc": nvrtc_version(),
        "candidates": candidates.VERSION,
    }
    return json.dumps(says, sort_keys=True)


def near(extent: int) -> int:
    """Return the least extent with as many bits, and the same `BITS` leading ones."""
    drop = max(extent.bit_length() - BITS, 0)
    return extent >> drop << drop


def canonical(value: object) -> str:
    """Write a value of frozen dataclasses, the same in every process: sets are sorted."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = (f"{field.name}={canonical(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__}({', '.join(inner)})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(canonical, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(canonical, value))})"
    return repr(value)


@cache
def sources(folder: Path) -> str:
    """Return the digest of all Python and CUDA files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".cuh")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def remember(key: str, entry: Entry) -> None:
    """Keep an answer; `key` is from `about`."""
    schedules = [[type(one).__name__, _plain(one)] for one in entry.schedules]
    says = {"about": key, "schedules": schedules, "n": entry.n, "judge": entry.judge}
    disk.write(_path(key), json.dumps(says).encode(), most=MOST_BYTES)


def recall(key: str, n: int, judge: str) -> Entry | None:
    """Return an answer; None if there is none, or of fewer candidates, or not by this judge.

    What is no answer to this question, or has params that their own checks refuse, counts as none.
    Who asks for no judge is content with any.
    """
    found = disk.read(_path(key))
    if found is None:
        return None
    try:
        says = json.loads(found[0])
        if says["about"] != key:
            return None
        entry = Entry(_restored(says["schedules"]), int(says["n"]), str(says["judge"]))
    except (ValueError, TypeError, KeyError, AttributeError, ScheduleError):
        return None
    return entry if entry.n >= n and judge in ("", entry.judge) else None


def _path(key: str) -> Path:
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return disk.cache_dir() / f"{digest}{SUFFIX}"


def _plain(params: Params) -> dict[str, object]:
    return {field.name: getattr(params, field.name) for field in fields(params)}


def _restored(given: Sequence[tuple[str, Mapping[str, object]]]) -> tuple[Params, ...]:
    return tuple(
        KINDS[kind](**{name: _tuples(value) for name, value in values.items()})
        for kind, values in given
    )


def _tuples(value: object) -> object:
    """Return a value of JSON as params have it: tuples, no lists."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value

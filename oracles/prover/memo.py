"""What a proof depends on, as a key; and verdicts remembered by it.

Two kernels have one key only if one becomes the other by giving things other names.  Everything
else is in the key as it stands: statements and their order, expressions, shapes, extents, offsets,
counts.  So a proof of one is a proof of the other, and a change of a single number is a miss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import TypeVar

from fuser.kernel import ir as kir
from oracles.verdict import Status, Verdict

KEPT = 256
"""Verdicts that are remembered; the one that was used longest ago goes first."""
_FIXED = (kir.BLOCK.name, kir.GRID.name, kir.RANK.name)
"""Names that mean something by themselves."""
_NAMING = ("name", "outputs", "workspaces")
"""Fields that hold names which a kernel may choose."""

_Key = TypeVar("_Key")
Remembered = tuple[kir.Kernel, str, int]
"""A kernel, a policy, a work limit."""


def nameless_key(kernel: kir.Kernel) -> str:
    """Return a hash of all that a proof depends on: the whole kernel but for the names in it.

    Names are numbered as they first come, in one numbering for all sorts of things, so that two
    things of one name never share a key with two things of different names.
    """
    names = {name: str(number) for number, name in enumerate(_FIXED)}
    parts = list(_spelled(kernel, names))
    return sha256("".join(parts).encode()).hexdigest()


_KNOWN: dict[type, tuple[tuple[str, bool], ...]] = {}
"""Fields by sort of node."""


def _fields(sort: type) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a node, and whether they hold names."""
    found = _KNOWN.get(sort)
    if found is None:
        if not is_dataclass(sort):
            raise TypeError(f"nameless_key: {sort.__name__} is no part of a kernel that is known")
        found = _KNOWN[sort] = tuple((f.name, f.name in _NAMING) for f in fields(sort))
    return found


def _spelled(node: object, names: dict[str, str], *, naming: bool = False) -> Iterator[str]:
    match node:
        case str():
            # repr() quotes: no text of a kernel can look like two fields
            yield f"{names.setdefault(node, str(len(names)))}," if naming else f"{node!r},"
        case Enum():
            yield f"{type(node).__name__}.{node.name},"
        case bool() | int() | float() | None:
            yield f"{node!r},"
        case tuple():
            yield "("
            for part in node:
                yield from _spelled(part, names, naming=naming)
            yield ")"
        case _:
            yield type(node).__name__ + "{"
            kernel = isinstance(node, kir.Kernel)
            for name, holds in _fields(type(node)):
                if not (kernel and name == "name"):
                    yield from _spelled(getattr(node, name), names, naming=holds)
            yield "}"


class Memory:
    """Verdicts PASS by kernel, and by kernel without its names; nothing else is remembered.

    A verdict with findings speaks of names, so it is given again only for an equal kernel.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._exact: OrderedDict[Remembered, Verdict] = OrderedDict()
        self._alike: OrderedDict[tuple[str, str, int], Verdict] = OrderedDict()

    def recall(self, kernel: kir.Kernel, policy: str, rlimit: int) -> Verdict | None:
        """Return the verdict on an equal kernel, or on one that differs in names; else None."""
        asked = kernel, policy, rlimit
        if asked in self._exact:
            self._exact.move_to_end(asked)
            return self._exact[asked]
        key = nameless_key(kernel), policy, rlimit
        found = self._alike.get(key)
        if found is not None:
            self._alike.move_to_end(key)
            self._put(self._exact, asked, found)
        return found

    def keep(self, kernel: kir.Kernel, policy: str, rlimit: int, verdict: Verdict) -> Verdict:
        """Remember a verdict if it is PASS, and return it."""
        if verdict.status is Status.PASS:
            self._put(self._exact, (kernel, policy, rlimit), verdict)
            if not verdict.findings and not verdict.reason:
                self._put(self._alike, (nameless_key(kernel), policy, rlimit), verdict)
        return verdict

    def forget(self) -> None:
        """Forget everything."""
        self._exact.clear()
        self._alike.clear()

    def _put(self, into: OrderedDict[_Key, Verdict], key: _Key, verdict: Verdict) -> None:
        into[key] = verdict
        while len(into) > self._kept:
            into.popitem(last=False)

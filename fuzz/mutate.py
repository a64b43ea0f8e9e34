"""Kernels with one sync broken: what the judges must notice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser import kernel_ir as kir
from fuser.kernel_text import line, numbered


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with one change.

    Parameters
    ----------
    change : str
        The change in words, with the line of the kernel's text.
    kernel : Kernel
        The changed kernel.
    victim : Stmt
        The statement of the original kernel that was changed.
    """

    change: str
    kernel: kir.Kernel
    victim: kir.Stmt


def drop_each_sync(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Yield one mutant per sync statement, with that statement left out."""
    for number, stmt in numbered(kernel):
        if isinstance(stmt, kir.SYNCS):
            yield Mutant(f"drop line {number}: {line(stmt)}", _without(kernel, stmt), stmt)


def _without(kernel: kir.Kernel, victim: kir.Stmt) -> kir.Kernel:
    return kernel.rewrite(lambda stmt: [] if stmt is victim else None)

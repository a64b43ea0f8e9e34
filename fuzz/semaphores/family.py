"""The release family: kernels in which CTAs meet, each with one change to how a turn is given on.

CTAs that split K add up by turns on a semaphore.  Nothing may be released while it is being
written: a bulk copy has to be committed, awaited to its end by the thread that issued it, and
collected with the writes of all other threads before a release at gpu scope.  Each member of the
family breaks one of these rules; a few break none, though they look as if they did, so that a
judge that refuses everything is seen through.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

from fuser.kernel import ir as kir
from fuzz.kernels.cookbook import recipe
from fuzz.kernels.draw import Subject, subject
from fuzz.kernels.matmul import scheduled
from fuzz.kernels.tile import Start
from fuzz.mutation.site import closed
from fuzz.semaphores import rewrites as do
from fuzz.semaphores.rewrites import Rewrite, RewriteError
from fuzz.semaphores.wide import wide_pattern

STAGES = 2
"""Slots of the rings of the recipes."""
RECIPES = ("split_k", "split_k_tma")
WIDE = "wide_turns"
COMPILED = "split_pipelined"
BASES = (*RECIPES, WIDE, COMPILED)
"""What is changed: ordinary accesses, bulk copies, large ones, and a compiled kernel."""


@dataclass(frozen=True, slots=True)
class Member:
    """One kernel of the family.

    Parameters
    ----------
    base : str
        One of `BASES`.
    name : str
        The change, in a few words.
    says : str
        One sentence: what is wrong, or why nothing is.
    rewrite : callable
        From the base to the changed kernel; raises `RewriteError` where it does not apply.
    legal : bool
        Whether the memory model allows the kernel, so that every judge must pass it.
    """

    base: str
    name: str
    says: str
    rewrite: Rewrite
    legal: bool = False

    @property
    def key(self) -> str:
        """Base and name, as one word without spaces: the name of a record."""
        return f"{self.base}/{self.name.replace(' ', '-')}"

    @property
    def kernel(self) -> kir.Kernel:
        """The changed kernel.

        Raises
        ------
        RewriteError
            If the base has no place for the change, or the change leaves it as it was.
        """
        base = kernel_of(self.base)
        changed = self.rewrite(base)
        if self.rewrite is not do.unchanged and changed == base:
            raise RewriteError(f"{self.key}: the rewrite changed nothing; aim it at another kernel")
        if not closed(changed):
            raise RewriteError(f"{self.key}: a variable is used where it is not defined; move less")
        return changed


@cache
def kernel_of(base: str) -> kir.Kernel:
    """Return a kernel of `BASES`, the same object every time."""
    return _subject(base).kernel


def _subject(base: str) -> Subject:
    if base == WIDE:
        return subject(wide_pattern(), base)
    return recipe(base, STAGES) if base in RECIPES else scheduled(base, 0)


@cache
def launches_of(base: str) -> tuple[Start, ...]:
    """Return small launches in which CTAs meet, those with the most turns and fewest steps first.

    Only the simulator and the explorer need them: the prover speaks of all.
    """
    some = [start for start in _subject(base).launches if start[1].get("splits", 1) > 1]
    return tuple(sorted(some, key=_cost))


def _cost(start: Start) -> tuple[int, int]:
    grid, params = start
    return abs(grid - 3), max(params.values())


_R, _T, _W, _C = BASES


def _members(
    bases: tuple[str, ...], name: str, says: str, rewrite: Rewrite, *, legal: bool = False
) -> tuple[Member, ...]:
    return tuple(Member(base, name, says, rewrite, legal) for base in bases)


FAMILY: tuple[Member, ...] = (
    *_members(BASES, "control", "The kernel as it is.", do.unchanged, legal=True),
    *_members(
        (_T, _W),
        "release before commit",
        "The turn is given on when the copies are issued, and in flight.",
        do.release_before_commit,
    ),
    *_members(
        (_T, _W), "no await", "Copies are committed, but nobody waits for them.", do.no_await
    ),
    *_members(
        (_T, _W),
        "read-only await",
        "The await ends when the copies have read their sources, not when they have written.",
        do.read_only_await,
    ),
    *_members(
        (_T, _W),
        "await by another thread",
        "Bulk groups belong to the thread that commits: the second warp waits for nothing.",
        do.await_elsewhere,
    ),
    *_members(
        (_T, _W),
        "await after release",
        "The turn is given on before the copies are awaited.",
        do.release_before_await,
    ),
    *_members(
        (_R, _C),
        "no barrier before release",
        "Nothing collects the stores of the other threads before the one that releases.",
        do.no_barrier,
    ),
    *_members(
        (_T,),
        "no barrier before release",
        "Harmless: the thread that releases has issued and awaited all copies itself.",
        do.no_barrier,
        legal=True,
    ),
    *_members(
        (_T, _W),
        "release by another warp without a barrier",
        "Nothing orders the await of one thread before the release of another.",
        partial(do.release_elsewhere, barrier=False),
    ),
    *_members(
        (_T,),
        "release by another warp",
        "Harmless: a barrier stands between the await of one thread and the release of another.",
        partial(do.release_elsewhere, barrier=True),
        legal=True,
    ),
    *_members(
        (_R, _T, _C),
        "relaxed release",
        "The release orders nothing before it, and no fence does.",
        partial(do.weaker_release, relaxed=True),
    ),
    *_members(
        (_R, _T, _C),
        "release at cta scope",
        "The release orders writes for threads of its own CTA, and no other waits for it.",
        partial(do.weaker_release, scope=kir.Scope.CTA),
    ),
    *_members(
        (_R, _T),
        "relaxed release behind a cta fence",
        "The fence reaches threads of its own CTA only.",
        partial(do.fenced_release, scope=kir.Scope.CTA),
    ),
    *_members(
        (_R, _T),
        "relaxed release behind a gpu fence",
        "Harmless: fence and relaxed store are a release.",
        partial(do.fenced_release, scope=kir.Scope.GPU),
        legal=True,
    ),
    *_members(
        (_T, _W),
        "no proxy fence",
        "What other CTAs wrote was acquired for ordinary accesses, not for those of the engine.",
        do.no_proxy_fence,
    ),
    *_members(
        (_T,),
        "proxy fence before the acquire",
        "A fence orders what was observed before it; the acquire comes after.",
        do.early_proxy_fence,
    ),
    *_members(
        (_T, _W), "issued by a whole warp", "Each of 32 lanes adds the tile.", do.issued_by_warp
    ),
    *_members(
        (_T,),
        "issued by a thread of each warp",
        "Each of 4 threads adds the tile.",
        do.issued_per_warp,
    ),
    *_members(
        (_R, _T, _C),
        "semaphore not reset",
        "The last CTA leaves the number of turns; the next launch waits for 0 for ever.",
        do.no_reset,
    ),
    *_members(
        (_R, _T),
        "last release left out",
        "The last CTA leaves its own turn; the next launch waits for 0 for ever.",
        do.silent_last,
    ),
)
"""Every member, kernel by kernel and rule by rule; the unchanged kernels first."""


def member(key: str) -> Member:
    """Return the member of a key.

    Raises
    ------
    ValueError
        If there is none.
    """
    for one in FAMILY:
        if one.key == key:
            return one
    raise ValueError(f"member({key!r}): pick one of {', '.join(m.key for m in FAMILY)}")

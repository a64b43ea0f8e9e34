"""What a litmus is, and the pieces that all of them are made of.

A kernel is written as a sentence: `"wait read free out"` names its statements in program order,
so that a pair of kernels differs by a word left out, moved or replaced, and shares everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fuser.dtype import DType
from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.verdict import Status

k, m, n, p, q, s, t = (Var(name) for name in "kmnpqst")
BULK, CP_ASYNC, WGMMA = kir.AsyncKind.BULK, kir.AsyncKind.CP_ASYNC, kir.AsyncKind.WGMMA
QUEUE = kir.AsyncKind.QUEUE
ROLE, PER_WARP = kir.Per.ROLE, kir.Per.WARP
SHARED, GLOBAL, ALL = kir.Space.SHARED, kir.Space.GLOBAL, kir.Space.ALL
CTA, CLUSTER, GPU = kir.Scope.CTA, kir.Scope.CLUSTER, kir.Scope.GPU
ONE_CTA = eq(kir.GRID, 1)

Body = tuple[kir.Stmt, ...]
Words = Mapping[str, kir.Stmt]


@dataclass(frozen=True, slots=True)
class Run:
    """A small launch: CTAs, and values of the parameters."""

    grid: int = 1
    params: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Expect:
    """The true verdict.

    Parameters
    ----------
    status : Status
        PASS or FAIL.
    kinds : frozenset of str
        Of a FAIL: every judge reports an error of at least one of these kinds.
    warns : frozenset of str
        A warning of each of these kinds is due, in the largest launch.
    policy : str
        Under which all this is true.
    """

    status: Status
    kinds: frozenset[str] = frozenset()
    warns: frozenset[str] = frozenset()
    policy: str = "default"


@dataclass(frozen=True, slots=True)
class Litmus:
    """A kernel with its truth.

    Parameters
    ----------
    name : str
        A fact.
    hazards : tuple of str
        Rows of the table of hazards, `H01` to `H85`.
    kernel : Kernel or LaunchSequence
        What is judged.
    expect : Expect
        The truth.
    twin : str
        Of a FAIL: name of the legal kernel that differs by the sync in question.
    why : str
        Which rule makes it so.
    launches : tuple of Run
        Of a FAIL: in each of them some interleaving fails.  Of a PASS: none does in any.
    refused : str
        Pattern of the message with which validation refuses the kernel; judges refute it, too, for
        nobody has to validate what they are asked about.
    """

    name: str
    hazards: tuple[str, ...]
    kernel: kir.Kernel | LaunchSequence
    expect: Expect
    twin: str
    why: str
    launches: tuple[Run, ...]
    refused: str = ""


def trips(*counts: int) -> tuple[Run, ...]:
    """Return a launch of one CTA for every value of `n`."""
    return tuple(Run(1, (("n", count),)) for count in counts)


def named(kernel: kir.Kernel | LaunchSequence, name: str) -> kir.Kernel | LaunchSequence:
    """Give a kernel, or a program of several, the name of its litmus."""
    return replace(kernel, name=name)


def default_launches(kernel: kir.Kernel | LaunchSequence, *, failing: bool) -> tuple[Run, ...]:
    """Return launches of a kernel of one CTA that has no parameter, or one trip count `n`."""
    if isinstance(kernel, LaunchSequence) or not kernel.params:
        return (Run(),)
    assert kernel.params == (n,), f"{kernel.name}: say which launches"
    return trips(5) if failing else trips(0, 1, 2, 3, 5)


def legal(
    name: str,
    hazards: str,
    kernel: kir.Kernel | LaunchSequence,
    why: str,
    *,
    warns: str = "",
    policy: str = "default",
    launches: tuple[Run, ...] | None = None,
) -> Litmus:
    """Return a kernel that is right in every launch and every interleaving."""
    return Litmus(
        name,
        tuple(hazards.split()),
        named(kernel, name),
        Expect(Status.PASS, warns=frozenset(warns.split()), policy=policy),
        "",
        why,
        launches if launches is not None else default_launches(kernel, failing=False),
    )


def broken(
    name: str,
    hazards: str,
    kernel: kir.Kernel | LaunchSequence,
    kinds: str,
    twin: str,
    why: str,
    *,
    policy: str = "default",
    launches: tuple[Run, ...] | None = None,
    refused: str = "",
) -> Litmus:
    """Return a kernel that goes wrong in some interleaving."""
    return Litmus(
        name,
        tuple(hazards.split()),
        named(kernel, name),
        Expect(Status.FAIL, _either_way(frozenset(kinds.split())), policy=policy),
        twin,
        why,
        launches if launches is not None else default_launches(kernel, failing=True),
        refused,
    )


def _either_way(kinds: frozenset[str]) -> frozenset[str]:
    """A read and a write without any order are RAW in one execution and WAR in another."""
    pair = frozenset({"RAW", "WAR"})
    return kinds | pair if kinds & pair else kinds


# --- pieces -------------------------------------------------------------------------------------

TILE = (4, 32)
"""Every tile of f32 here: one vector of 4 per thread of a warp."""
NBYTES = 512


def said(sentence: str, words: Words) -> Body:
    """Return the statements that a sentence names, in its order."""
    return tuple(words[word] for word in sentence.split())


def fragment(name: str, threads: int = 32, vector: int = 0) -> kir.Fragment:
    """Return a tile in registers; another `vector` than the usual one is another layout."""
    layout = kir.Layout(TILE, vector or 128 // threads, threads)
    return kir.Fragment(name, DType.F32, layout)


def tensor(name: str, tiles: Expr = 1) -> kir.Tensor:
    """Return a tensor of `tiles` tiles, one below the other."""
    return kir.Tensor(name, DType.F32, (tiles * TILE[0], TILE[1]), (TILE[1], 1), 4)


def box(of: kir.Tensor, number: Expr = 0) -> kir.Box:
    """Tile `number` of a tensor."""
    return kir.Box(of, (number * TILE[0], 0), TILE, of.extents)


def slots(name: str, count: int = 1, offset: int = 0) -> kir.Buffer:
    """Return a shared buffer of `count` tiles."""
    return kir.Buffer(name, DType.F32, TILE, count, offset)


def load(dst: kir.Fragment, src: kir.Box | kir.Slot) -> kir.Load:
    """Load a tile with accesses as wide as the layout's vectors."""
    return kir.Load(dst, src, dst.layout.vector)


def store(dst: kir.Box | kir.Slot, src: kir.Fragment) -> kir.Store:
    """Store a tile with accesses as wide as the layout's vectors."""
    return kir.Store(dst, src, src.layout.vector)


def elect(*body: kir.Stmt) -> kir.Elect:
    """One thread of the role."""
    return kir.Elect(ROLE, body)


def init(*barriers: kir.MBarrier) -> kir.Elect:
    """Initialise barriers by one thread."""
    return elect(*(kir.MBarrierInit(b) for b in barriers), kir.FenceMBarrierInit())


def wait(bar: kir.MBarrier, at: Expr, turn: Expr, scope: kir.Scope = CTA) -> kir.Stmt:
    """Wait for the end of phase `turn` of a slot."""
    return kir.MBarrierWaitParity(bar, at, turn % 2, scope)


def fill(slot: kir.Slot, src: kir.Box, bar: kir.MBarrier, at: Expr = 0) -> Body:
    """Expect a tile and load it."""
    nbytes = slot.buffer.slot_nbytes
    return (kir.MBarrierArriveExpectTx(bar, at, nbytes), kir.TmaLoad(slot, src, bar, at))


def zero(dst: kir.Fragment) -> kir.Compute:
    """Clear a tile of registers."""
    return kir.Compute(dst, "cast", (kir.Literal(0.0, DType.F32),))


X1, Y1, W1 = tensor("X"), tensor("Y"), tensor("W")
"""Input, output and workspace of one tile."""
XN, YN = tensor("X", n), tensor("Y", n)
"""Input and output of n tiles."""


def kernel(
    body: Body,
    *,
    threads: int = 32,
    buffers: tuple[kir.Buffer, ...] = (),
    barriers: tuple[kir.MBarrier, ...] = (),
    tensors: tuple[kir.Tensor, ...] = (XN, YN),
    workspaces: tuple[str, ...] = (),
    params: tuple[Var, ...] = (n,),
    requires: tuple[Expr, ...] = (ONE_CTA,),
) -> kir.Kernel:
    """Return a kernel of one CTA that writes all of Y."""
    return kir.Kernel(
        "litmus",
        params,
        tensors,
        (),
        buffers,
        barriers,
        threads,
        body,
        outputs=("Y",),
        workspaces=workspaces,
        requires=requires,
    )


def single(
    body: Body,
    *,
    threads: int = 32,
    buffers: tuple[kir.Buffer, ...] = (),
    barriers: tuple[kir.MBarrier, ...] = (),
    tensors: tuple[kir.Tensor, ...] = (X1, Y1),
    workspaces: tuple[str, ...] = (),
) -> kir.Kernel:
    """Return a kernel of one CTA and one tile, without parameters."""
    return kernel(
        body,
        threads=threads,
        buffers=buffers,
        barriers=barriers,
        tensors=tensors,
        workspaces=workspaces,
        params=(),
    )

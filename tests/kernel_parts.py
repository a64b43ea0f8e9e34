"""Legal statements, and kernels around them, that the mistakes of a person begin with."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate

M, N, INDEX, J, LOST, POSITION = (Var(name) for name in ("M", "N", "i", "j", "lost", "position"))
ONE, WARP, GROUP = kir.Per.ROLE, kir.Per.WARP, kir.Per.WARPGROUP
BULK, WGMMA = kir.AsyncKind.BULK, kir.AsyncKind.WGMMA

X = kir.Tensor("X", DType.BF16, (M, N), (N, 1), 8)
Y = kir.Tensor("Y", DType.F32, (M, N), (N, 1), 4)
SA = kir.Buffer("SA", DType.BF16, (64, 16), 2, 0)
SB = kir.Buffer("SB", DType.BF16, (8, 16), 2, SA.end)
SY = kir.Buffer("SY", DType.F32, (64, 8), 1, SB.end)
BAR = kir.MBarrier("bar", 1, 2)
TURNS = kir.Semaphore("turns", 4)
STRIPS = kir.Layout((64, 8), 2, 128, kir.Deal.STRIPS)
ACC = kir.Fragment("acc", DType.F32, STRIPS)
FRAG_A = kir.Fragment("a", DType.BF16, kir.Layout((64, 16), 2, 128, kir.Deal.STRIPS))
FRAG_B = kir.Fragment("b", DType.BF16, kir.Layout((8, 16), 2, 128, kir.Deal.EACH_WARP))
ROUND = kir.Layout((64, 16), 8, 128)
TILE = kir.Fragment("tile", DType.BF16, ROUND)
ALPHA = kir.ScalarParam("alpha", DType.F32)
X_BOX = kir.Box(X, (0, 0), (64, 16), (M, N))
B_BOX = kir.Box(X, (0, 0), (8, 16), (M, N))
Y_BOX = kir.Box(Y, (0, 0), (64, 8), (M, N))
ZERO = kir.Literal(0.0, DType.F32)


def kernel(*body: kir.Stmt, **fields: Any) -> kir.Kernel:
    """A kernel with everything declared that the cases use."""
    facts: dict[str, Any] = {
        "name": "k",
        "params": (M, N),
        "tensors": (X, Y),
        "scalars": (ALPHA,),
        "buffers": (SA, SB, SY),
        "barriers": (BAR,),
        "threads": 160,
        "outputs": ("Y",),
        "semaphores": (TURNS,),
        "registers": 104,
    }
    return kir.Kernel(body=body, **{**facts, **fields})


def role(*body: kir.Stmt, first: int = 0, warps: int = 4, name: str = "r") -> kir.Role:
    """Four warps, unless told otherwise."""
    return kir.Role(name, first, warps, body)


def one(*body: kir.Stmt, per: kir.Per = ONE) -> kir.Elect:
    """One thread."""
    return kir.Elect(per, body)


def loop(*body: kir.Stmt, index: Var = INDEX, stop: Expr = 4) -> kir.ForLoop:
    """A loop of four turns."""
    return kir.ForLoop(index, stop, body)


def zero(fragment: kir.Fragment = ACC) -> kir.Stmt:
    """Give a fragment a value."""
    return kir.Compute(fragment, "cast", (ZERO,))


def load(**change: Any) -> kir.TmaLoad:
    """A legal TMA load with some fields changed."""
    fields: dict[str, Any] = {"dst": kir.Slot(SA, 0), "src": X_BOX, "barrier": BAR, "slot": 0}
    return kir.TmaLoad(**{**fields, **change})


def mapped(
    tensor: kir.Tensor = X,
    *more: kir.Stmt,
    slots: int = 2,
    name: str = "maps",
    origin: tuple[Expr, ...] = (0, 0),
    **fields: Any,
) -> kir.Kernel:
    """A kernel that writes a map of a tensor, and copies a box through it."""
    own = kir.MapSlot(kir.TensorMaps(name, tensor, slots), 0, origin)
    through = load(src=replace(X_BOX, tensor=tensor), through=own)
    body = one(kir.TensorMapReplace(own, X_BOX.limit), through), *more
    return kernel(*body, maps=(own.maps,), **fields)


def product(**change: Any) -> kir.Role:
    """A legal wgmma, in its role, with some fields changed."""
    fields: dict[str, Any] = {"acc": ACC, "a": kir.Slot(SA, 0), "b": kir.Slot(SB, 0)}
    fields |= change
    return role(zero(fields["acc"]), kir.Wgmma(**fields))


def registers(**change: Any) -> kir.Role:
    """A legal mma, in its role, with some fields changed."""
    fields: dict[str, Any] = {"acc": ACC, "a": FRAG_A, "b": FRAG_B}
    fields |= change
    return role(*(zero(f) for f in fields.values()), kir.Mma(**fields))


def copy(**change: Any) -> kir.Role:
    """A legal cp.async, in its role, with some fields changed."""
    fields: dict[str, Any] = {"dst": kir.Slot(SA, 0), "src": X_BOX, "layout": ROUND, "width": 8}
    return role(kir.CpAsync(**{**fields, **change}))


def shaped(fragment: kir.Fragment, *shape: int, **change: Any) -> kir.Fragment:
    """The fragment with another shape."""
    return replace(fragment, layout=replace(fragment.layout, shape=shape, **change))


def alone(stmt: kir.Stmt) -> kir.Kernel:
    """A kernel of four warps that executes one statement."""
    return kernel(role(stmt))


def declared(buffer: kir.Buffer) -> kir.Kernel:
    """A kernel with this buffer."""
    return kernel(buffers=(buffer,))


def clustered(*body: kir.Stmt, cluster: int = 2) -> kir.Kernel:
    """A kernel in clusters."""
    return kernel(*body, cluster=cluster)


LEGAL: dict[str, kir.Kernel] = {
    "tma load": kernel(one(load())),
    "multicast": clustered(one(load(multicast=3))),
    "remote arrive": clustered(kir.MBarrierArrive(BAR, 0, kir.Scope.CLUSTER, 1)),
    "remote slot": clustered(role(zero(), kir.Store(kir.Slot(SY, 0, 1), ACC, 2))),
    "remote st.async": clustered(role(zero(), kir.StAsync(kir.Slot(SY, 0, 1), ACC, BAR, 0, 2))),
    "cluster barrier": clustered(kir.ClusterArrive(), kir.ClusterWait()),
    "wgmma": kernel(product()),
    "wgmma, a in registers": kernel(
        role(zero(), zero(FRAG_A), kir.Wgmma(ACC, FRAG_A, kir.Slot(SB, 0)))
    ),
    "wgmma that clears": kernel(role(kir.Wgmma(ACC, kir.Slot(SA, 0), kir.Slot(SB, 0), 0))),
    "mma": kernel(registers()),
    "cp.async": kernel(copy()),
    "cp.async by one thread": kernel(
        one(kir.CpAsync(kir.Slot(SA, 0), X_BOX, replace(ROUND, threads=1), 8))
    ),
    "turns": kernel(
        kir.BlockSerializeWait(TURNS, 0, 0), one(kir.BlockSerializeRelease(TURNS, 0, 1))
    ),
    "registers": kernel(role(kir.SetMaxNReg(40, increase=False))),
    "roles": kernel(role(), role(first=4, warps=1, name="s")),
    "a role again": kernel(role(), kir.BlockSync(0, 160), role()),
    "a role in a role": kernel(role(role(first=1, warps=2, name="part"))),
    "positions": kernel(
        kir.Let(POSITION, 0), loop(role(kir.Assign(POSITION, POSITION + 1)), stop=M)
    ),
    "a wait nobody answers": kernel(kir.MBarrierWaitParity(BAR, 0, 1)),
    "a sync of half a role": kernel(role(kir.BlockSync(1, 64))),
    "an output that is read": kernel(role(kir.Load(ACC, Y_BOX, 2), kir.Store(Y_BOX, ACC, 2))),
    "required": kernel(requires=(eq(kir.GRID, M),)),
}
"""Kernels in which nothing is wrong."""


def refused(kernel: kir.Kernel, says: str) -> None:
    """Check that a kernel is refused in these words, and that they go on to a way out."""
    with pytest.raises(ScheduleError, match=f"^after kernel: .*{says}") as caught:
        validate(kernel)
    after_the_line = str(caught.value).removeprefix("after kernel: ").rsplit("`", 1)[-1]
    assert re.search(r"[;:] \w", after_the_line.removeprefix(":")), caught.value

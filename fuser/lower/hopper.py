"""Products by wgmma from tiles that TMA brings, without a single sync."""

from __future__ import annotations

from functools import partial
from math import gcd

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var
from fuser.fusion.ops import accumulator
from fuser.kernel import ir as kir
from fuser.lower.product import Pairs, ProductLowering
from fuser.lower.tiling import SPAN
from fuser.schedule.domain import Access, Product
from fuser.schedule.matmul import Operand
from fuser.schedule.matmul_params import MatmulParams


class HopperLowering(ProductLowering[MatmulParams]):
    """By TMA and wgmma; refuses operands that TMA cannot move, and tiles that suit no swizzle."""

    def __post_init__(self) -> None:
        """Give what the epilogue reads a ring, if that is asked for."""
        super().__post_init__()
        self.brought: dict[tuple[Access, Expr], kir.Buffer] = {}
        if self.params.split == "ping_pong" and self.params.inputs == "tma":
            # A slot for each of the warpgroups: a wait tells a phase from the next one only.
            self.tiles = kir.CircularBuffer(2, 0)

    @property
    def threads(self) -> int:
        """Threads that share a tile."""
        return self.params.sharing

    def request(self) -> kir.CircularBuffer:
        """Ask for a load role unless all threads load."""
        params = self.params
        roles = None
        if params.split != "pipelined":
            roles = kir.WarpSpecialized(4, params.split == "ping_pong", params.registers)
        prefetch = params.prefetch
        if not all(self.written_by_tma(access) for access in self.tiling.domain.writes):
            # Behind a loop that leaves groups in flight the assembler (NVRTC 13.0) moves work of
            # stores by threads above the flush in some kernels, and then serialises the loop
            # because of it (C7514).
            prefetch = params.stages - 1
        return kir.CircularBuffer(params.stages, prefetch, roles)

    def around(self, loops: list[kir.Stmt]) -> list[kir.Stmt]:
        """Put copies of what the epilogue reads behind the loops of a load role, or before."""
        copies: list[kir.Stmt] = []
        for access in self.tiling.domain.inputs if self.params.inputs == "tma" else ():
            whole = all(self.tiling.walks(access, a) for a in (self.tiling.rows, self.tiling.cols))
            if not whole or not self.suits_tma(access):
                continue
            for first in range(0, self.params.tile[1], self.params.columns):
                box = self.part(access, first)
                buffer = self.buffer(f"S_{access.name}_{first}", access.tv.dtype, box.shape)
                copies.append(kir.Copy(kir.Slot(buffer, 0), box, kir.Engine.TMA))
                self.brought[access, first] = buffer
        return [*copies, *loops] if self.params.split == "pipelined" else [*loops, *copies]

    def copied(self, access: Access, first: Expr) -> kir.Slot | None:
        """Return the slot of columns from `first` on of what the epilogue reads, if it has one."""
        buffer = self.brought.get((access, first))
        return None if buffer is None else kir.Slot(buffer, 0)

    def multiply(self, copies: list[kir.Stmt], step: Var, pairs: Pairs) -> list[kir.Stmt]:
        """Issue the wgmmas of a step; the first one of a loop forgets what was summed before."""
        made: dict[Operand, kir.Fragment] = {}
        math: list[kir.Stmt] = []
        out: list[kir.Stmt] = []
        for group in self._stacks(pairs):
            copied = partial(self.slot, copies=copies, step=step)
            product, (a, _) = group[0]
            if a.leaves and a not in made:
                some, made[a] = self.computed(product, a, copies, step)
                math += some
            left = made[a] if a.leaves else self._swizzled(copied(a))
            slots = [self._swizzled(copied(b)) for _, (_, b) in group]
            out.append(
                kir.Wgmma(
                    self.accumulator(product, many=len(group)),
                    left,
                    slots[0],
                    accumulate=step >= 1,
                    a_transposed=a.transposed,
                    b_transposed=group[0][1][1].transposed,
                    beside=tuple(slot.buffer for slot in slots[1:]),
                )
            )
        return [*math, *out]

    def sums(self, product: Product) -> tuple[kir.Fragment, int]:
        """Return the fragment that holds the sums of a product, and their first column there."""
        pairs = list(zip(self.tiling.domain.products, self.tiling.operands, strict=True))
        groups = [[one for one, _ in group] for group in self._stacks(pairs)]
        (mine,) = (group for group in groups if product in group)
        whole = self.accumulator(mine[0], many=len(mine))
        return whole, mine.index(product) * self.params.tile[1]

    def _stacks(self, pairs: Pairs) -> list[Pairs]:
        """Return the products of each wgmma."""
        stacked = self.params.stacked
        groups = stacks(pairs, self.params.tile[2]) if stacked else [[pair] for pair in pairs]
        for group in groups:
            self._check_width(len(group), group[0][0].b.tv.dtype)
        return groups

    def _check_width(self, many: int, dtype: DType) -> None:
        params = self.params
        columns = params.tile[1] * many
        fit = params.widest // many // 16 * 16
        if columns > params.widest:
            why = f"{params.threads} threads have room for {params.widest}"
        elif dtype is DType.I8 and columns % 16 and columns not in (8, 24):
            why, fit = "of i8 it takes 8, 24 or a multiple of 16", params.tile[1] // 16 * 16
        else:
            return
        way_out = f"use {fit} columns"
        if many == 1:
            params.refuse("tile", f"a wgmma has {columns} columns, {why}; {way_out}")
        params.refuse(
            "tile stacked",
            f"one wgmma for {many} products has {columns} columns, {why}; {way_out}, or "
            "stacked=False",
        )

    def _swizzled(self, slot: kir.Slot) -> kir.Slot:
        if not slot.buffer.swizzle:
            row, dtype = slot.buffer.shape[-1], slot.buffer.dtype
            self.params.refuse(
                "tile",
                f"rows of {row} elements of {dtype} suit no swizzle; use multiples of "
                f"{32 // dtype.nbytes}",
            )
        return slot

    def copy(self, operand: Operand, dst: kir.Slot, src: kir.Box) -> kir.Copy:
        """Copy a tile by TMA; CTAs of a cluster share those of the other side."""
        access = operand.access
        reason = type_refusal(operand) or self.tiling.tma_refusal(access)
        if reason is None and access.name not in self.shapes.tma:
            reason = f"address or strides of {access.tv} are not multiples of 16 bytes"
        if reason is not None:
            raise ScheduleError(
                f"MatmulParams({self.params.family}): TMA cannot move an operand of {self.name}: "
                f"{reason}; pass a contiguous, padded tensor"
            )
        others = self.cluster[operand.along == self.tiling.rows]
        return kir.Copy(dst, src, kir.Engine.TMA, shared=others > 1)


def stacks(pairs: Pairs, depth: int) -> list[Pairs]:
    """Group products that one wgmma can compute: of one A, with B of one kind, each another.

    Tiles of B behind each other are one operand where their rows of `depth` elements are one panel
    of a swizzle, or where their panels run along N.  A tile is behind one other tile only.
    """
    found: dict[tuple[object, ...], Pairs] = {}
    taken = set[Access]()
    for product, (a, b) in pairs:
        dtype = b.access.tv.dtype
        key: tuple[object, ...] = (a, b.transposed, dtype, accumulator(product.tv))
        row = depth * dtype.nbytes
        if b.access in taken or not (b.transposed or row == gcd(row, SPAN)):
            key = (*key, product)
        found.setdefault(key, []).append((product, (a, b)))
        taken.add(b.access)
    return list(found.values())


def type_refusal(operand: Operand) -> str | None:
    """Say why wgmma cannot read an operand as it lies in memory, whatever its shape, if it cannot.

    Source: PTX ISA, "wgmma.mma_async" (only 16-bit operands may be MN-major).
    """
    tv = operand.access.tv
    if operand.transposed and operand.alike == 1 and tv.dtype.nbytes != 2:
        return f"{tv} is {tv.dtype}, and not contiguous along the axis that is summed over"
    return None

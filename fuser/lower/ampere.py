"""Products by mma.sync from tiles that cp.async brings, or threads, without a single sync."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import gcd, prod

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, substitute
from fuser.kernel import ir as kir
from fuser.kernel.validate.mma import STEP_NBYTES, VECTOR_NBYTES
from fuser.kernel.validate.tile import WORD
from fuser.lower.product import Pairs, ProductLowering
from fuser.lower.tiling import LOAD_WARPS
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import Product
from fuser.schedule.matmul import MatmulTiling, Operand
from fuser.schedule.shape_class import ShapeClass


class AmpereLowering(ProductLowering[AmpereParams]):
    """By cp.async, ldmatrix and mma.sync; refuses rows that are not aligned to 4 bytes.

    Threads that load operands themselves take any rows.
    """

    @property
    def threads(self) -> int:
        """Threads that share a tile."""
        return kir.WARP * self.params.warps

    def request(self) -> kir.CircularBuffer:
        """Ask for a load role where copies arrive on mbarriers."""
        params = self.params
        roles = kir.WarpSpecialized(LOAD_WARPS) if params.observe == "mbarriers" else None
        ahead = 0 if params.observe == "threads" else params.prefetch
        return kir.CircularBuffer(params.stages, ahead, roles)

    def before(self, product: Product) -> list[kir.Stmt]:
        """Clear the sums, to which every step adds."""
        acc = self.accumulator(product)
        zero = kir.Literal(0.0, DType.I32 if acc.dtype is DType.I32 else DType.F32)
        return [kir.Compute(acc, "promote", (zero,))]

    def first(self, copies: list[kir.Stmt], step: Var) -> list[kir.Stmt]:
        """Load the tiles of the first step; steps store their own and load those of the next."""
        if self.params.observe != "threads" or not self.params.prefetch:
            return []
        loads = [stmt for stmt in copies if isinstance(stmt, kir.Load)]
        copies[:] = [
            *(stmt for stmt in copies if stmt not in loads),
            *(_moved(load, step, step + 1) for load in loads),
        ]
        return [_moved(load, step, 0) for load in loads]

    def multiply(self, copies: list[kir.Stmt], step: Var, pairs: Pairs) -> list[kir.Stmt]:
        """Load each operand's fragment once, then multiply."""
        loads: list[kir.Stmt] = []
        products: list[kir.Stmt] = []
        made: dict[Operand, kir.Fragment] = {}
        copied = partial(self.slot, copies=copies, step=step)
        for product, (a, b) in pairs:
            for operand, deal in ((a, kir.Deal.STRIPS), (b, kir.Deal.EACH_WARP)):
                if operand in made:
                    continue
                self._check_type(operand)
                if operand.leaves:
                    some, made[operand] = self.computed(product, operand, copies, step)
                    loads += some
                    continue
                made[operand] = self._fragment(operand, deal)
                loads.append(self._loaded(made[operand], copied(operand), operand))
            parts = (made[a], made[b])
            products.append(kir.Mma(self.accumulator(product), *parts))
        # All loads are on their way before the first of them is stored.
        copies.sort(key=lambda stmt: isinstance(stmt, kir.Store))
        return [*loads, *products]

    def _fragment(self, operand: Operand, deal: kir.Deal) -> kir.Fragment:
        access = operand.access
        vector = VECTOR_NBYTES // access.tv.dtype.nbytes
        shape = self.tiling.shape(access)
        shape = kir.exchanged(shape) if operand.transposed else shape
        layout = kir.Layout(shape, vector, self.threads, deal)
        return kir.Fragment(f"f_{access.name}", access.tv.dtype, layout)

    def _loaded(self, dst: kir.Fragment, src: kir.Slot, operand: Operand) -> kir.Load:
        """Return the load of an operand's tile: by ldmatrix, or across where it lies so."""
        if operand.transposed and not self._turns:
            return kir.Load(dst, src, 1, transposed=True)
        return kir.Load(dst, src, dst.layout.vector, matrix=True)

    @property
    def _turns(self) -> bool:
        """Whether slots have operands along the summed axis, however these lie."""
        return self.params.observe == "threads"

    def laid(self, operand: Operand, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an operand's slot: as it lies where cp.async brings it."""
        return kir.exchanged(shape) if operand.transposed and self._turns else shape

    def tile_of(self, operand: Operand, dst: kir.Slot, src: kir.Box) -> list[kir.Stmt]:
        """Return what brings a tile of an operand: a copy, or a load and a store of all threads."""
        if not self._turns:
            return [self.copy(operand, dst, src)]
        access, columns = operand.access, src.shape[-1]
        name, dtype = f"g_{access.name}", access.tv.dtype
        vector = 16 // dtype.nbytes
        near = self.tiling.unit(access, self.tiling.axes(access)[-1])
        width = gcd(self.shapes.elements(access.name), vector, columns) if near else 1
        if operand.transposed:
            frag = kir.Fragment(name, dtype, kir.Layout(src.shape, width, self.threads))
            return [kir.Load(frag, src, width), kir.Store(dst, frag, 1, transposed=True)]
        layout = kir.Layout(src.shape, vector, self.threads)
        # By rows vectors come in aligned words, wherever rows begin (`tile::load_shifted`).
        across = columns // vector
        rows, left = divmod(self.threads, across)
        if not left and prod(src.shape[:-1]) % rows == 0:
            layout = replace(layout, deal=kir.Deal.ROWS, across=across)
        frag = kir.Fragment(name, dtype, layout)
        return [kir.Load(frag, src, width), kir.Store(dst, frag, vector)]

    def copy(self, operand: Operand, dst: kir.Slot, src: kir.Box) -> kir.Copy:
        """Copy a tile by cp.async, as wide as it is aligned."""
        reason = copy_refusal(self.tiling, operand, self.shapes)
        if reason is not None:
            raise ScheduleError(
                f"AmpereParams({self.params.family}): cp.async cannot move an operand of "
                f"{self.name}: {reason}; pad the axis that is summed over to a multiple of 4 "
                f"bytes, or take MatmulParams"
            )
        most = 16 // operand.access.tv.dtype.nbytes
        threads = self.threads
        if self.params.observe == "mbarriers":
            threads = kir.WARP * LOAD_WARPS
        width = min(self.shapes.elements(operand.access.name), most)
        layout = kir.Layout(dst.buffer.shape, width, threads)  # neighbours copy what is adjacent
        return kir.Copy(dst, src, kir.Engine.CP_ASYNC, layout, width)

    def _check_type(self, operand: Operand) -> None:
        tv, depth = operand.access.tv, self.params.tile[2]
        if tv.dtype.is_f8:
            raise ScheduleError(
                f"AmpereParams({self.params.family}): sm_80 multiplies no {tv.dtype} ({tv} of "
                f"{self.name}); use MatmulParams"
            )
        step = STEP_NBYTES // tv.dtype.nbytes
        if depth % step:
            self.params.refuse(
                "tile",
                f"K steps of {depth}, mma takes {step} elements of {tv.dtype} at a time; use a K "
                f"step of {-(-depth // step) * step}",
            )


def _moved(load: kir.Load, step: Var, to: Expr) -> kir.Load:
    """Return the load of the tile of another step."""
    assert isinstance(load.src, kir.Box), "operands lie in memory"
    origin = tuple(substitute(at, {step: to}) for at in load.src.origin)
    return replace(load, src=replace(load.src, origin=origin))


def copy_refusal(
    tiling: MatmulTiling, operand: Operand, shapes: ShapeClass, *, by_threads: bool = False
) -> str | None:
    """Say why cp.async, or threads, cannot move an operand's tiles, if they cannot.

    What cp.async brings across, threads load one element at a time: one of 4 bytes is a register.
    Source: PTX ISA, "cp.async" (4, 8 or 16 bytes, aligned); "mma.m16n8k8" (tf32).
    """
    tv = operand.access.tv
    near = tiling.unit(operand.access, operand.along if operand.transposed else operand.summed)
    if operand.transposed:
        near = by_threads or (near and tv.dtype.nbytes == WORD)
    if not near:
        return f"{tv} is not contiguous along the axis that is summed over"
    if not by_threads and shapes.elements(operand.access.name) * tv.dtype.nbytes < 4:
        return f"address, strides or rows of {tv} are not multiples of 4 bytes"
    return None

"""Kernel -> CUDA C++: spells, decides nothing.  One statement, one line, one device function.

The functions are those of `fuser/device/*.cuh`, under the names of the statements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fuser import kernel_ir as kir
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Kind, Op, Var
from fuser.kernel_text import line
from fuser.tensor_map import map_of, maps_of

INCLUDES = ("tile", "math", "threads", "mbarrier", "tma", "fence", "semaphore")
"""Device headers of every kernel, in order."""

_REGISTER = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "float",
    DType.BF16: "float",
    DType.I32: "int",
    DType.I64: "int64",
    DType.BOOL: "bool",
}
"""In what type a register holds an element; 16-bit floats are kept in f32."""


def source(kernel: kir.Kernel) -> str:
    """Return the CUDA C++ of a kernel; the same text for the same kernel, always."""
    return "\n".join(_lines(kernel)) + "\n"


def parameters(kernel: kir.Kernel) -> list[str]:
    """Names of the kernel's parameters, in order: tensors, integers, scalars, tensor maps."""
    return [
        *(t.name for t in kernel.tensors),
        *(p.name for p in kernel.params),
        *(s.name for s in kernel.scalars),
        *(m.name for m in maps_of(kernel)),
    ]


def is_wide(kernel: kir.Kernel, param: Var) -> bool:
    """Tell whether a parameter is a stride (64-bit) rather than an extent (32-bit)."""
    return any(param in t.strides for t in kernel.tensors)


def _lines(kernel: kir.Kernel) -> Iterator[str]:
    for name in INCLUDES:
        yield f'#include "{name}.cuh"'
    yield ""
    yield 'extern "C" __global__ void'
    yield f"__launch_bounds__({kernel.threads}, 1)"
    yield f"{kernel.name}("
    yield ",\n".join(f"    {word}" for word in _signature(kernel))
    yield ") {"
    if kernel.smem_bytes:
        yield "  extern __shared__ __align__(1024) unsigned char smem[];"
    for b in kernel.buffers:
        yield f"  {b.dtype.cuda}* const {b.name} = tile::shared<{b.dtype.cuda}>(smem + {b.offset});"
    offset = kernel.barrier_offset
    for m in kernel.barriers:
        yield f"  uint64* const {m.name} = tile::shared<uint64>(smem + {offset});"
        offset += 8 * m.slots
    if kernel.smem_bytes:
        yield f"  FUSER_POISON(smem, {kernel.smem_bytes});"
    yield "  const int blockIdx_ = blockIdx.x, gridDim_ = gridDim.x;"
    yield "  const int tid = threadIdx.x;"
    yield from _body(kernel, kernel.body, 1)
    yield "}"


def _signature(kernel: kir.Kernel) -> Iterator[str]:
    for t in kernel.tensors:
        const = "" if t.name in kernel.outputs else "const "
        yield f"{const}{t.dtype.cuda}* __restrict__ {t.name}"
    for p in kernel.params:
        yield f"const {'int64' if is_wide(kernel, p) else 'int'} {p.name}"
    for s in kernel.scalars:
        yield f"const {_REGISTER[s.dtype]} {s.name}"
    for m in maps_of(kernel):
        yield f"const __grid_constant__ TensorMap {m.name}"


def _body(kernel: kir.Kernel, body: tuple[kir.Stmt, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for stmt in body:
        match stmt:
            case kir.ForLoop(index, stop, inner):
                going = _less(index, stop, _lets(kernel))
                yield f"{pad}for (int {index} = 0; {going}; ++{index}) {{"
                yield from _body(kernel, inner, depth + 1)
                yield f"{pad}}}"
            case kir.IfThenElse(condition, then, orelse):
                yield f"{pad}if ({_condition(condition, _lets(kernel))}) {{"
                yield from _body(kernel, then, depth + 1)
                if orelse:
                    yield f"{pad}}} else {{"
                    yield from _body(kernel, orelse, depth + 1)
                yield f"{pad}}}"
            case kir.Role(name, first, warps, inner):
                yield f"{pad}if (threads::in_role<{first}, {warps}>()) {{  // {name}"
                yield f"{pad}  const int tid = threads::of_role<{first}>();"
                yield from _body(kernel, inner, depth + 1)
                yield f"{pad}}}"
            case kir.Elect(per, inner):
                yield f"{pad}if (threads::elect_per_{per.value}(tid)) {{"
                yield from _body(kernel, inner, depth + 1)
                yield f"{pad}}}"
            case _:
                for frag in _defines(stmt):
                    count = frag.layout.registers
                    yield f"{pad}{_REGISTER[frag.dtype]} {frag.name}[{count}];"
                yield f"{pad}{_line(stmt)}"


def _defines(stmt: kir.Stmt) -> tuple[kir.Fragment, ...]:
    match stmt:
        case kir.Load(dst) | kir.Compute(dst) | kir.Coordinate(dst):
            return (dst,)
        case _:
            return ()


def _line(stmt: kir.Data | kir.Let | kir.Assign | kir.Sync) -> str:
    match stmt:
        case kir.Let(var, value):
            return f"const int {var} = {_c(value)};"
        case (
            kir.Assign()
            | kir.TmaReduce()
            | kir.CpAsync()
            | kir.AtomicAdd()
            | kir.Wgmma()
            | kir.Mma()
        ):
            raise ScheduleError(
                f"`{line(stmt)}`: the judges know {type(stmt).__name__}, the printer does not yet; "
                "use oracles.prover or oracles.simulator on this kernel, not codegen"
            )
        case kir.Load(dst, src, width, fill):
            at = _at(src, "const ")
            return f"tile::load<{_tile(dst, src, width)}>({dst.name}, {at}, {fill}, tid);"
        case kir.Store(dst, src, width):
            return f"tile::store<{_tile(src, dst, width)}>({_at(dst, '')}, {src.name}, tid);"
        case kir.Compute(dst, op, args):
            words = ", ".join(_operand(arg) for arg in args)
            spelled = _cast(dst, op) if op in ("promote", "cast") else f"math::{op}"
            return f"tile::map({dst.name}, [&](int i) {{ return {spelled}({words}); }});"
        case kir.Coordinate(dst, axis, origin):
            rank = len(dst.layout.shape)
            which = f"{_layout(dst)}, {rank - 1 - axis}"
            return f"tile::coordinate<{which}>({dst.name}, {_c(origin)}, tid);"
        case kir.TmaLoad(kir.Slot() as dst, box, barrier, slot):
            where = f"&{map_of(box).name}, {_coordinates(box)}"
            return f"tma::load({_slot(dst)}, {where}, {barrier.name} + {_c(slot)});"
        case kir.TmaStore(box, src):
            return f"tma::store(&{map_of(box).name}, {_coordinates(box)}, {_slot(src)});"
        case kir.Copy():
            raise AssertionError("a finished kernel has no Copy; validate(final=True) says so")
        case _:
            return _sync(stmt)


def _sync(stmt: kir.Sync) -> str:
    match stmt:
        case kir.BlockSync(barrier, threads):
            return f"threads::block_sync({barrier}, {threads});"
        case kir.NamedArrive(barrier, threads):
            return f"threads::named_arrive({barrier}, {threads});"
        case kir.WarpSync():
            return "threads::warp_sync();"
        case kir.MBarrierInit(barrier):
            return f"mbarrier::init<{barrier.slots}>({barrier.name}, {barrier.arrivals});"
        case kir.MBarrierInvalidate(barrier):
            return f"mbarrier::invalidate<{barrier.slots}>({barrier.name});"
        case kir.MBarrierArrive(barrier, slot, scope, None):
            return f"mbarrier::arrive_{scope.value}({barrier.name} + {_c(slot)});"
        case kir.MBarrierArrive(barrier, slot, _, cta) if cta is not None:
            return f"mbarrier::arrive_remote({barrier.name} + {_c(slot)}, {_c(cta)});"
        case kir.MBarrierArrive():
            raise AssertionError("both forms of MBarrierArrive are spelled above")
        case kir.MBarrierArriveExpectTx(barrier, slot, nbytes):
            return f"mbarrier::arrive_expect_tx({barrier.name} + {_c(slot)}, {nbytes});"
        case kir.MBarrierExpectTx(barrier, slot, nbytes):
            return f"mbarrier::expect_tx({barrier.name} + {_c(slot)}, {nbytes});"
        case kir.MBarrierWaitParity(barrier, slot, parity, scope):
            at = f"{barrier.name} + {_c(slot)}, {_c(parity)}"
            return f"mbarrier::wait_parity_{scope.value}({at});"
        case kir.AsyncCommit(kind):
            return f"tma::async_commit_{kind.value}();"
        case kir.AsyncAwait(kind, keep, read_only):
            suffix = "_read" if read_only else ""
            return f"tma::async_await_{kind.value}{suffix}<{keep}>();"
        case kir.CpAsyncMBarrierArrive(barrier, slot, noinc):
            suffix = "_noinc" if noinc else ""
            return f"mbarrier::cp_async_arrive{suffix}({barrier.name} + {_c(slot)});"
        case kir.FenceAsyncProxy(space):
            return f"fence::async_proxy_{space.value}();"
        case kir.FenceMBarrierInit():
            return "fence::mbarrier_init();"
        case kir.ThreadFence(scope):
            return f"fence::thread_{scope.value}();"
        case kir.WgmmaFence():
            return "fence::wgmma();"
        case kir.ClusterArrive(relaxed):
            return f"threads::cluster_arrive{'_relaxed' if relaxed else ''}();"
        case kir.ClusterWait():
            return "threads::cluster_wait();"
        case kir.BlockSerializeWait(semaphore, index, turn):
            return f"semaphore::wait({semaphore.name} + {_c(index)}, {_c(turn)}, tid);"
        case kir.BlockSerializeRelease(semaphore, index, turn):
            return f"semaphore::release({semaphore.name} + {_c(index)}, {_c(turn)}, tid);"
        case kir.SetMaxNReg(registers, increase):
            return f"threads::set_max_nreg_{'inc' if increase else 'dec'}<{registers}>();"


# --- words --------------------------------------------------------------------------------------


def _c(expr: Expr) -> str:
    match expr:
        case int():
            return str(expr)
        case Var(name):
            return f"{name}_" if name in ("blockIdx", "gridDim") else name
        case Op(Kind.MIN | Kind.MAX as kind, a, b):
            return f"math::{kind.value}imum({_c(a)}, {_c(b)})"
        case Op(Kind.FLOORDIV, a, b):
            return f"({_c(a)} / {_c(b)})"
        case Op(kind, a, b):
            return f"({_c(a)} {kind.value} {_c(b)})"


def _lets(kernel: kir.Kernel) -> dict[Var, Expr]:
    return {stmt.var: stmt.value for stmt in kernel.body if isinstance(stmt, kir.Let)}


def _condition(expr: Expr, lets: dict[Var, Expr]) -> str:
    match expr:
        case Op(Kind.LT, a, b):
            return _less(a, b, lets)
        case _:
            return _c(expr)


def _less(a: Expr, b: Expr, lets: dict[Var, Expr]) -> str:
    """Spell `a < b`; where b is ceil(x / y), as `a * y < x`, which needs no division.

    An integer division costs about 40 instructions before the first load of a CTA.  The product
    is taken in 64 bits: `a` may run past the last tile by the prefetch distance.
    """
    whole = lets.get(b, b) if isinstance(b, Var) else b
    match whole:
        case Op(Kind.FLOORDIV, Op(Kind.ADD, x, Op(Kind.SUB, y, 1)), z) if y == z:
            return f"int64({_c(a)}) * {_c(y)} < {_c(x)}"
        case _:
            return f"{_c(a)} < {_c(b)}"


def _layout(frag: kir.Fragment) -> str:
    rows, cols = ((1, 1, *frag.layout.shape))[-2:]
    return f"tile::Layout<{rows}, {cols}, {frag.layout.vector}, {frag.layout.threads}>"


def _tile(frag: kir.Fragment, ref: kir.Box | kir.Slot, width: int) -> str:
    """Template arguments of a load or store: layout, width, which of rows and columns vary."""
    shape = ref.shape if isinstance(ref, kir.Box) else ref.buffer.shape
    extents = ref.tensor.extents if isinstance(ref, kir.Box) else shape
    rows, cols = ((1, 1, *extents))[-2:]
    tile_rows, tile_cols = ((1, 1, *frag.layout.shape))[-2:]
    if isinstance(ref, kir.Box):
        varies = (rows != 1 or len(extents) == 1, cols != 1)
    else:
        varies = (rows == tile_rows, cols == tile_cols)
    words = ", ".join("true" if v else "false" for v in varies)
    return f"{_layout(frag)}, {width}, {words}"


def _at(ref: kir.Box | kir.Slot, const: str) -> str:
    match ref:
        case kir.Slot(buffer):
            pitch = buffer.shape[-1]
            return f"tile::Slot<{buffer.dtype.cuda}, {pitch}>{{{_slot(ref)}}}"
        case kir.Box(tensor, origin, _, limit):
            outer = "".join(
                f" + int64({_c(o)}) * {_c(s)}"
                for o, s in list(zip(origin, tensor.strides, strict=True))[:-2]
                if s != 0
            )
            two = [(0, 1, 0), *zip(origin, limit, tensor.strides, strict=True)][-2:]
            (row, row_limit, row_stride), (col, col_limit, col_stride) = two
            unit = "true" if col_stride == 1 else "false"
            words = ", ".join(
                _c(e) for e in (row, col, row_limit, col_limit, row_stride, col_stride)
            )
            return f"tile::Box<{const}{tensor.dtype.cuda}, {unit}>{{{tensor.name}{outer}, {words}}}"


def _slot(ref: kir.Slot) -> str:
    elements = ref.buffer.slot_nbytes // ref.buffer.dtype.nbytes
    if isinstance(ref.index, int):
        return f"{ref.buffer.name} + {ref.index * elements}"
    return f"{ref.buffer.name} + {_c(ref.index)} * {elements}"


def _coordinates(box: kir.Box) -> str:
    return ", ".join(_c(box.origin[axis]) for axis in map_of(box).axes)


def _operand(arg: kir.Fragment | kir.Scalar | kir.Literal) -> str:
    match arg:
        case kir.Fragment(name):
            return f"{name}[i]"
        case kir.Scalar(name):
            return name
        case kir.Literal(value, dtype):
            return _literal(value, dtype)


def _literal(value: float, dtype: DType) -> str:
    register = _REGISTER[dtype]
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_int:
        bits = 32 if dtype is DType.I32 else 64
        wrapped = (int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        if wrapped == -(1 << (bits - 1)):
            return f"({register})({wrapped + 1}ll - 1)"
        return f"({register}){wrapped}ll"
    if math.isnan(value):
        return f"math::nan<{register}>()"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}math::infinity<{register}>()"
    return f"({register}){float(value).hex()}"


def _cast(dst: kir.Fragment, op: str) -> str:
    """`promote` goes to the register's type, `cast` rounds to the type in memory on the way."""
    if op == "cast" and dst.dtype in (DType.F16, DType.BF16):
        return f"math::round_to_{dst.dtype.name}"
    return f"math::to<{_REGISTER[dst.dtype]}>"

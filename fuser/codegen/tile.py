"""Statements that move or compute tiles in CUDA C++: one line, one device function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isinf, prod
from types import MappingProxyType

from fuser.codegen.expr import REGISTER, divisor, divisors, literal, map_slot, spell
from fuser.codegen.neighbours import apart
from fuser.codegen.registers import BYTES, Registers
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Kind, fold
from fuser.kernel import ir as kir
from fuser.kernel.swizzle import panels, rows
from fuser.kernel.tensor_map import map_of, template_of
from fuser.kernel.text import line

HALVES = (DType.F16, DType.BF16)
"""Types that matrix instructions move and a register holds in f32."""

NOWHERE: Mapping[str, str] = MappingProxyType({})
"""No names of what indices say."""


def tile_line(
    stmt: kir.Data,
    kernel: kir.Kernel,
    registers: Registers,
    pinned: tuple[kir.Fragment, ...] = (),
    places: Mapping[str, str] = NOWHERE,
) -> str:
    """Write a statement that moves or computes tiles; ScheduleError if no instruction does it.

    The assembler is to keep `pinned` fragments as they are, packed, and not what they become.
    `places` has names of what indices say, by how that is written.
    """
    names, packed = registers.names, registers.packed
    match stmt:
        case kir.Load(dst, kir.Slot() as src, _, _, True):
            where = f"({names[dst]}, {_at(stmt, src, kernel)}, tid);"
            which = layout(stmt, dst.layout) + (", true" if stmt.transposed else "")
            if dst in packed:
                return f"tile::load_matrix_packed<{which}>{where}"
            _same(stmt, dst, src)
            return f"tile::load_matrix<{dst.dtype.cuda}, {which}>{where}"
        case kir.Load(dst, src) if stmt.transposed:
            at = _at(stmt, src, kernel)
            return f"tile::load_transposed<{layout(stmt, dst.layout)}>({names[dst]}, {at}, tid);"
        case kir.Load(dst, kir.Box() as src) if dst.layout.slides:
            verb = f"load_sliding<{dst.dtype.cuda}, {layout(stmt, dst.layout)}>"
            return f"tile::{verb}({names[dst]}, {_at(stmt, src, kernel)}, tid);"
        case kir.Load(dst, kir.Slot() as src) if dst in packed and dst.dtype in BYTES:
            where = f"({names[dst]}, {_at(stmt, src, kernel)}, tid);"
            return f"tile::load_bytes<{layout(stmt, dst.layout)}>{where}"
        case kir.Load(dst, src, width, fill):
            which = f"{layout(stmt, dst.layout)}, {width}, {_varies(dst, src)}"
            verb = f"load_packed<{dst.dtype.cuda}, {which}>" if dst in packed else f"load<{which}>"
            if isinstance(src, kir.Box) and src.tensor.cycles:
                verb = f"load_repeated<{which}>"
            none = f"{REGISTER[dst.dtype]}({fill})" if dst.dtype.is_f8 else f"{fill}"
            none = literal(fill, dst.dtype) if isinf(fill) else none
            return f"tile::{verb}({names[dst]}, {_at(stmt, src, kernel)}, {none}, tid);"
        case kir.Store(kir.Slot() as dst, src, _, True):
            where = f"({_at(stmt, dst, kernel)}, {names[src]}, tid);"
            which = layout(stmt, src.layout) + (", true" if stmt.transposed else "")
            if src in packed:
                _unchanged(stmt, src, dst.buffer.dtype)
                return f"tile::store_matrix_packed<{which}>{where}"
            return f"tile::store_matrix<{dst.buffer.dtype.cuda}, {which}>{where}"
        case kir.Store(dst, src) if stmt.transposed:
            at = _at(stmt, dst, kernel)
            return f"tile::store_transposed<{layout(stmt, src.layout)}>({at}, {names[src]}, tid);"
        case kir.Store(dst, src, width):
            if src in packed:
                held = dst.buffer.dtype if isinstance(dst, kir.Slot) else dst.tensor.dtype
                _unchanged(stmt, src, held)
            which = f"{_stored(stmt, src.layout)}, {width}, {_varies(src, dst)}"
            verb = (
                f"store_packed<{src.dtype.cuda}, {which}>" if src in packed else f"store<{which}>"
            )
            return f"tile::{verb}({_at(stmt, dst, kernel)}, {names[src]}, tid);"
        case kir.AtomicAdd(dst, src):
            if dst.tensor.dtype.nbytes == 1:
                word = "bools" if dst.tensor.dtype is DType.BOOL else str(dst.tensor.dtype)
                raise ScheduleError(f"`{line(stmt)}`: no instruction adds {word}; use i32")
            if src in packed:
                _unchanged(stmt, src, DType.F32)
            which = _stored(stmt, src.layout)
            return f"atomic::add<{which}>({_at(stmt, dst, kernel)}, {names[src]}, tid);"
        case kir.Draw(dst, counter, atomic):
            return f"atomic::draw{'' if atomic else '_alone'}({slot(dst)}, {counter});"
        case kir.Compute(dst, "cast", (kir.Fragment() as arg,)) if (
            arg in packed and arg.dtype in BYTES
        ):
            which = f"{dst.dtype.cuda}, {arg.dtype.cuda}"
            return f"tile::widen<{which}>({names[dst]}, {names[arg]});"
        case kir.Compute(dst, "mul", (kir.Fragment() as a, kir.Fragment() as b)) if (
            packed.issuperset((dst, a, b))
        ):
            return f"tile::multiply<{dst.dtype.cuda}>({names[dst]}, {names[a]}, {names[b]});"
        case kir.Compute(dst, op, args):
            words = ", ".join(_operand(arg, registers, dst.layout) for arg in args)
            verb = f"map_packed<{dst.dtype.cuda}>" if dst in packed else "map"
            value = f"[&](int i) {{ return {_spelled(stmt, op, registers)}({words}); }}"
            return f"tile::{verb}({names[dst]}, {value});"
        case kir.Slice(dst, src) if stmt.relabels:
            return f"tile::relabel({names[dst]}, {names[src]});"
        case kir.Slice(dst, src, column):
            which = f"{layout(stmt, dst.layout)}, {layout(stmt, src.layout)}, {column}"
            if src in packed:
                return f"tile::slice_packed<{which}>({names[dst]}, {names[src]});"
            return f"tile::slice<{which}>({names[dst]}, {names[src]});"
        case kir.Unpack(dst, src):
            which = f"<{dst.dtype.cuda}>" if dst in packed else ""
            return f"tile::unpack{which}({names[dst]}, {names[src]});"
        case kir.Reduce(dst, src, op) if dst.layout.deal is kir.Deal.ROWS and not stmt.down:
            value = f"[&](int i) {{ return {_operand(src, registers, src.layout)}; }}"
            lanes = f"{src.layout.alike}, {stmt.lanes}"
            which = f"{layout(stmt, dst.layout)}, {src.layout.per_row}, {lanes}"
            kept = "".join(f", {registers.names[frag]}" for frag in pinned)
            put = f"math::{op}(a, b)"
            pair = ", ".join(f"{REGISTER[dst.dtype]} {name}" for name in "ab")
            how = f"[]({pair}) {{ return {put}; }}"
            pairs = registers.promoted.get(src)
            if pairs is not None and op in ("maximum", "minimum") and src.layout.per_row % 2 == 0:
                kind = pairs.dtype.cuda
                two = f"[](uint32 a, uint32 b) {{ return math::{op}_of_pairs<{kind}>(a, b); }}"
                ends = f"{names[dst]}, {names[pairs]}, {two}, {how}{kept}"
                return f"reduce::rows_of_pairs<{kind}, {which}>({ends});"
            return f"reduce::rows<{which}>({names[dst]}, {value}, {how}{kept});"
        case kir.Reduce(dst, src, op):
            which = layout(stmt, dst.layout)
            how = "down" if stmt.down else "along"
            which += f", {layout(stmt, src.layout)}" if stmt.down else ""
            pair = ", ".join(f"{REGISTER[dst.dtype]} {name}" for name in "ab")
            value = f"[]({pair}) {{ return math::{op}(a, b); }}"
            return f"reduce::{how}<{which}>({names[dst]}, {names[src]}, {value});"
        case kir.Scan(dst, src, op, start, exclusive):
            ends = ", ".join(
                f"[&](int i) {{ return {_operand(part, registers, part.layout)}; }}"
                for part in (src, start)
            )
            pair = ", ".join(f"{REGISTER[dst.dtype]} {name}" for name in "ab")
            ends = f"{names[dst]}, {ends}, []({pair}) {{ return math::{op}(a, b); }}"
            alone = "true" if exclusive else "false"
            many = src.layout.per_row
            if stmt.down:
                return f"scan::down<{many}, {alone}>({ends});"
            if stmt.of_lanes:
                which = f"{src.layout.registers // many}, {many}, {start.layout.alike}, {alone}"
                return f"scan::lanes<{which}>({ends}, tid);"
            return f"scan::held<{layout(stmt, dst.layout)}, {many}, {alone}>({ends}, tid);"
        case kir.Gather(dst, src, index):
            axes = list(zip(index, src.extents, src.strides, strict=True))
            inside = " && ".join(f"tile::inside({names[i]}[i], {spell(n)})" for i, n, _ in axes)
            at = " + ".join(f"int64({names[i]}[i]) * {spell(s)}" for i, _, s in axes)
            verb = "gather_packed" if dst in packed else "gather"
            where = f"[&](int i) {{ return {at}; }}, [&](int i) {{ return {inside}; }}"
            which = f"{dst.layout.vector}, {apart(stmt, registers.steps)}"
            return f"tile::{verb}<{which}>({names[dst]}, {src.name}, {where});"
        case kir.Coordinate(dst, axis, origin):
            rank = len(dst.layout.shape)
            which = f"{layout(stmt, dst.layout)}, {rank - 1 - axis}"
            return f"tile::coordinate<{which}>({names[dst]}, {spell(origin)}, tid);"
        case kir.CpAsync(dst, src, dealt, width):
            which = f"{layout(stmt, dealt)}, {width}"
            ends = f"{_at(stmt, dst, kernel)}, {_at(stmt, src, kernel)}"
            return f"cp_async::load<{which}>({ends}, tid);"
        case kir.StAsync(dst, src, barrier, number, width):
            here, peer = replace(dst, cta=None), "" if dst.cta is None else f", {spell(dst.cta)}"
            ends = f"{_at(stmt, here, kernel)}, {names[src]}, {barrier.name} + {spell(number)}"
            return f"st_async::store<{_stored(stmt, src.layout)}, {width}>({ends}, tid{peer});"
        case kir.TmaLoad(dst, box, barrier, number, bulk=True):
            ends = f"{slot(dst)}, {_first(box)}, {spell(kir.run_nbytes(box))}"
            kept = "<true>" if box.tensor.kept else ""
            return f"bulk::load{kept}({ends}, {barrier.name} + {spell(number)});"
        case kir.TmaStore(box, src, bulk=True):
            return f"bulk::store({_first(box)}, {slot(src)}, {spell(kir.run_nbytes(box))});"
        case kir.TmaLoad(dst, box, barrier, number, multicast, through):
            ends = f"{slot(dst)}, {_map(kernel, box, dst, through)}, {barrier.name}"
            ends += f" + {spell(number)}"
            verb = "load"
            if multicast is not None:
                verb, ends = "multicast", f"{ends}, {spell(multicast)}"
            at = _coordinates(kernel, box, dst, through, places)
            return f"tma::{verb}{_panels(dst)}({ends}, {at});"
        case kir.TmaStore(box, src, through) | kir.TmaReduce(box, src, through):
            verb = "store" if isinstance(stmt, kir.TmaStore) else "reduce"
            ends = f"{slot(src)}, {_map(kernel, box, src, through)}"
            return f"tma::{verb}{_panels(src)}({ends}, {_coordinates(kernel, box, src, through)});"
        case kir.TensorMapReplace(dst, limit):
            like, first = template_of(kernel, dst.maps), dst.origin
            steps = zip(first, like.tensor.strides, strict=True)
            begin = "".join(f" + int64({spell(o)}) * {spell(s)}" for o, s in steps if o != 0)
            extents = ", ".join(spell(fold(Kind.SUB, limit[a], first[a])) for a in like.axes)
            ends = f"{map_slot(dst.maps, dst.index)}, &{like.name}, {like.tensor.name}{begin}"
            return f"tensor_map::replace({ends}, {extents});"
        case kir.QueueCopy():
            raise ScheduleError(
                f"`{line(stmt)}`: no GPU has a queue of copies, so no code is printed for it; copy "
                "by TMA, BULK or CP_ASYNC, or only judge the kernel"
            )
        case kir.Copy() | kir.GridSum() | kir.GridShare():
            raise AssertionError("a finished kernel has no requests; validate says so")
        case kir.Wgmma() | kir.Mma():
            raise AssertionError("codegen_mma writes products")


def layout(stmt: kir.Stmt, dealt: kir.Layout) -> str:
    """Write the type of a layout."""
    if dealt.folded > 1:
        return f"reduce::Folded<{layout(stmt, dealt.wide)}, {dealt.folded}>"
    *outer, down, across = (1, 1, *dealt.shape)
    if max(outer) > 1:
        raise ScheduleError(
            f"`{line(stmt)}`: a layout of {dealt.shape} has more than two axes that are not 1; "
            "fold the outer ones into the rows"
        )
    match dealt.deal:
        case kir.Deal.ROUND:
            return f"tile::Layout<{down}, {across}, {dealt.vector}, {dealt.threads}>"
        case kir.Deal.STRIPS:
            return f"tile::Strips<{down}, {across}, {dealt.threads}{_vector(dealt)}>"
        case kir.Deal.EACH_WARP:
            return f"tile::EachWarp<{down}, {across}{_vector(dealt)}>"
        case kir.Deal.ROWS:
            share = f"{dealt.across}, {dealt.alike}"
            return f"tile::Rows<{down}, {across}, {dealt.vector}, {dealt.threads}, {share}>"


def _stored(stmt: kir.Stmt, dealt: kir.Layout) -> str:
    """Write the type of a layout with which the first thread that holds an element has it."""
    one_row = dealt.deal is kir.Deal.ROWS and prod(dealt.shape[:-1]) == 1
    several = dealt.alike > 1 or (one_row and dealt.threads > dealt.across)
    return f"tile::First<{layout(stmt, dealt)}>" if several else layout(stmt, dealt)


def _vector(dealt: kir.Layout) -> str:
    return "" if dealt.vector == 2 else f", {dealt.vector}"


def slot(ref: kir.Slot) -> str:
    """Write the address of a slot."""
    elements = ref.buffer.step // ref.buffer.dtype.nbytes
    at = ref.index * elements if isinstance(ref.index, int) else f"{spell(ref.index)} * {elements}"
    here = f"{ref.buffer.name} + {at}"
    return here if ref.cta is None else f"tile::of_cta({here}, {spell(ref.cta)})"


def _first(box: kir.Box) -> str:
    """Write the address of the first element of a box."""
    steps = zip(box.origin, box.tensor.strides, strict=True)
    return box.tensor.name + "".join(
        f" + int64({spell(o)}) * {spell(s)}" for o, s in steps if o != 0
    )


def _varies(frag: kir.Fragment, ref: kir.Box | kir.Slot) -> str:
    """Tell, as template arguments, along which of rows and columns a source varies."""
    shape = ref.shape if isinstance(ref, kir.Box) else ref.buffer.shape
    extents = ref.tensor.extents if isinstance(ref, kir.Box) else shape
    down, across = ((1, 1, *extents))[-2:]
    tile_down, tile_across = ((1, 1, *frag.layout.shape))[-2:]
    if isinstance(ref, kir.Box):
        varies = (down != 1 or len(extents) == 1, across != 1)
    else:
        varies = (down == tile_down, across == tile_across)
    return ", ".join("true" if v else "false" for v in varies)


def _at(stmt: kir.Stmt, ref: kir.Box | kir.Slot, kernel: kir.Kernel) -> str:
    match ref:
        case kir.Slot(buffer) if isinstance(stmt, kir.Load) and stmt.limit is not None:
            down, across = (1, *stmt.limit)[-2:]
            whole = ", false" if divisor(across, kernel) % stmt.width == 0 else ""
            kind = f"tile::Part<{buffer.dtype.cuda}, {buffer.shape[-1]}{whole}>"
            return f"{kind}{{{slot(ref)}, {spell(down)}, {spell(across)}}}"
        case kir.Slot(buffer) if buffer.swizzle:
            kind = f"tile::Swizzled<{buffer.dtype.cuda}, {rows(buffer)}, {buffer.swizzle}>"
            return f"{kind}{{{slot(ref)}}}"
        case kir.Slot(buffer):
            return f"tile::Slot<{buffer.dtype.cuda}, {buffer.shape[-1]}>{{{slot(ref)}}}"
        case kir.Box(tensor, (origin,), _, (limit,)) if tensor.cycles:
            by = divisors(kernel)
            every = (
                (c.each, c.period or 0, c.stride, by.get(c.each, 0), by.get(c.period or 0, 0))
                for c in tensor.cycles
            )
            parts = (", ".join(map(spell, part)) for part in zip(*every, strict=True))
            ones = sum((c.each == 1) << n for n, c in enumerate(tensor.cycles))
            ends = sum((c.period is not None) << n for n, c in enumerate(tensor.cycles))
            which = f"{len(tensor.cycles)}, {ones}, {ends}"
            kind = f"tile::Cycles<const {tensor.dtype.cuda}, {which}>"
            where = f"{tensor.name}, {spell(origin)}, {spell(limit)}"
            return f"{kind}{{{where}, {', '.join(f'{{{part}}}' for part in parts)}}}"
        case kir.Box(tensor, origin, _, limit):
            outer = "".join(
                f" + int64({spell(o)}) * {spell(s)}"
                for o, s in list(zip(origin, tensor.strides, strict=True))[:-2]
                if s != 0
            )
            if max(ref.shape[:-2], default=1) > 1:
                raise ScheduleError(
                    f"`{line(stmt)}`: a box of {ref.shape} has more than two axes that are not 1; "
                    "move it by TMA, or take one of the outer axes at a time"
                )
            two = [(0, 1, 0), *zip(origin, limit, tensor.strides, strict=True)][-2:]
            (row, row_limit, row_stride), (col, col_limit, col_stride) = two
            unit = "true" if col_stride == 1 else "false"
            ragged = tensor.ragged and getattr(stmt, "width", 1) > 1
            if isinstance(stmt, kir.Load) and tensor.kept:
                unit += f", {'true' if ragged else 'false'}, true"
            elif ragged:
                unit += ", true"
            words = ", ".join(
                spell(e) for e in (row, col, row_limit, col_limit, row_stride, col_stride)
            )
            const = "" if tensor.name in (*kernel.outputs, *kernel.workspaces) else "const "
            kind = f"tile::Box<{const}{tensor.dtype.cuda}, {unit}>"
            return f"{kind}{{{tensor.name}{outer}, {words}}}"


def _same(stmt: kir.Load, dst: kir.Fragment, src: kir.Slot) -> None:
    if src.buffer.dtype is not dst.dtype or dst.dtype not in HALVES:
        raise ScheduleError(
            f"`{line(stmt)}`: ldmatrix does not convert {src.buffer.dtype} into {dst.dtype}; "
            f"load into a fragment of {src.buffer.dtype}, or drop matrix"
        )


def _unchanged(stmt: kir.Stmt, src: kir.Fragment, held: DType) -> None:
    if held is not src.dtype:
        raise ScheduleError(
            f"`{line(stmt)}`: registers of {src.name} hold two sums in f16, memory is {held}; "
            "promote them into a fragment of f32 first"
        )


def _panels(ref: kir.Slot) -> str:
    made = panels(ref.buffer)
    return "" if made.count == 1 else f"<{made.count}, {made.nbytes}, {made.cols}>"


def _map(kernel: kir.Kernel, box: kir.Box, ref: kir.Slot, through: kir.MapSlot | None) -> str:
    if through is None:
        return f"&{map_of(kernel, box, ref).name}"
    return map_slot(through.maps, through.index)


def place_of(box: kir.Box, index: kir.Index) -> str:
    """Write where a box begins along the axis of its index."""
    ends = zip(index.src.origin, index.src.limit, strict=True)
    inside = " && ".join(f"{spell(o)} < {spell(end)}" for o, end in ends if end != 1)
    return f"tma::place({_first(index.src)}, {inside or 'true'}, {spell(box.limit[index.axis])})"


def _coordinates(
    kernel: kir.Kernel,
    box: kir.Box,
    ref: kir.Slot,
    through: kir.MapSlot | None,
    places: Mapping[str, str] = NOWHERE,
) -> str:
    at = box.origin
    if through is not None:
        at = tuple(fold(Kind.SUB, o, first) for o, first in zip(at, through.origin, strict=True))
    words = [spell(one) for one in at]
    if box.index is not None:
        written = place_of(box, box.index)
        words[box.index.axis] = places.get(written, written)
    return ", ".join(words[axis] for axis in map_of(kernel, box, ref).axes)


def _operand(
    arg: kir.Fragment | kir.ScalarParam | kir.Literal, registers: Registers, whole: kir.Layout
) -> str:
    match arg:
        case kir.Fragment() if arg in registers.packed:
            at = _element(arg.layout, whole)
            return f"types::one_of<{arg.dtype.cuda}>({registers.names[arg]}, {at})"
        case kir.Fragment():
            return f"{registers.names[arg]}[{_element(arg.layout, whole)}]"
        case kir.ScalarParam(name):
            return name
        case kir.Literal(value, dtype):
            return literal(value, dtype)


def _element(part: kir.Layout, whole: kir.Layout) -> str:
    """Write which register of a part, a row or a column say, belongs to register i of a tile."""
    if part == whole:
        return "i"
    row = f"i / {whole.per_row}" if prod(part.shape[:-1]) > 1 else ""
    if part.shape[-1] == 1:
        return row or "0"
    at = "i" if prod(whole.shape[:-1]) == 1 else f"i % {whole.per_row}"
    return at if part.vector == whole.vector else f"{at} / {whole.vector // part.vector}"


def _spelled(stmt: kir.Compute, op: str, registers: Registers) -> str:
    """`promote` goes to the register's type, `cast` rounds to the type in memory on the way.

    What the fusion has in 16 bits may be off by a few units in the last place of f32.  A packed
    fragment is rounded as it is packed, once: from f32 no other rounding is wanted, and of integers
    of 8 bits none, which 16-bit floats hold.
    """
    dst, packed = stmt.dst, registers.packed
    if op == "div" and dst.layout.deal is kir.Deal.ROWS:
        _, by = stmt.args
        if isinstance(by, kir.Fragment) and prod(by.layout.shape) < prod(dst.layout.shape):
            rough = dst in registers.rough or dst.dtype in HALVES
            return "math::div_roughly" if rough else "math::div_by"
    if op == "exp" and dst.dtype in HALVES:
        return "math::exp_roughly"
    if op not in ("promote", "cast"):
        return f"math::{op}"
    narrow = all(REGISTER[arg.dtype] == "float" for arg in stmt.args)
    held = dst.dtype in HALVES and all(arg.dtype in BYTES for arg in stmt.args)
    if (
        op == "cast"
        and (dst.dtype in HALVES or dst.dtype.is_f8)
        and not (held or (dst in packed and narrow))
    ):
        return f"math::round_to_{dst.dtype.name}"
    return f"math::to<{REGISTER[dst.dtype]}>"

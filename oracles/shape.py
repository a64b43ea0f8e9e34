"""What can be said of each access alone: alignment, shapes, and who holds which element.

A layout gives element e to one thread and one of its registers (`Layout`'s definition is a
function of e), so a tile is covered once if its rows are whole vectors and all threads that the
layout deals to execute the statement.
"""

from __future__ import annotations

from math import prod

from fuser import kernel_ir as kir
from fuser.expr import substitute
from oracles.arithmetic import UnsupportedError
from oracles.polynomial import poly
from oracles.trace import Step, Trace
from oracles.verdict import Finding

TMA_SHARED = 128
"""Alignment of a bulk tensor copy's shared address, in bytes; PTX ISA, "cp.async.bulk.tensor"."""
TMA_ROW = 16
"""Rows of a box are multiples of so many bytes; PTX ISA, "tensor map".  That the address and the
strides of the tensor are, the driver checks when it encodes the map: a launch that is refused."""
TMA_BOX = 256
"""Elements of a box per axis at most; PTX ISA, "tensor map"."""


def judge(trace: Trace) -> tuple[int, list[Finding]]:
    """Return how many claims were looked at, and what is wrong."""
    checked, findings = 0, []
    for step in trace.steps:
        for kind, says in _wrong(trace, step):
            checked += 1
            if says:
                findings.append(Finding(kind, step.where, f"for every launch: {says}"))
    for says, step in _registers(trace):
        checked += 1
        if says:
            findings.append(Finding("RAW", step.where, f"for every launch: {says}"))
    return checked, findings


def _wrong(trace: Trace, step: Step) -> list[tuple[str, str]]:
    match step.stmt:
        case kir.TmaLoad(slot, box):
            return _bulk(slot, box)
        case kir.TmaStore(box, slot):
            return [*_bulk(slot, box), _whole_chunks(box.tensor)]
        case kir.Load(dst, src, width):
            return [*_generic(step, dst, src, width), _executed(trace, step, dst)]
        case kir.Store(dst, src, width):
            return [*_generic(step, src, dst, width), _executed(trace, step, src)]
        case kir.Compute(dst, _, args):
            for arg in args:
                if isinstance(arg, kir.Fragment) and arg.layout != dst.layout:
                    raise UnsupportedError(f"{step.where}: its fragments differ in layout")
            return [_executed(trace, step, dst)]
        case kir.Coordinate(dst):
            return [_executed(trace, step, dst)]
        case _:
            return []


def _bulk(slot: kir.Slot, box: kir.Box) -> list[tuple[str, str]]:
    buffer, tensor = slot.buffer, box.tensor
    nbytes = tensor.dtype.nbytes
    row = box.shape[-1] * nbytes
    places = [buffer.offset + i * buffer.slot_nbytes for i in range(buffer.slots)]
    odd = [place for place in places if place % TMA_SHARED]
    return [
        ("bounds", "" if box.limit == tensor.extents else "the engine clips at the extents only"),
        (
            "bounds",
            ""
            if prod(box.shape) * nbytes == buffer.slot_nbytes
            else f"a box of {prod(box.shape) * nbytes} bytes, a slot of {buffer.slot_nbytes}",
        ),
        ("bounds", "" if max(box.shape) <= TMA_BOX else f"more than {TMA_BOX} elements an axis"),
        (
            "alignment",
            f"a slot starts at byte {odd[0]}, no multiple of {TMA_SHARED}" if odd else "",
        ),
        ("alignment", "" if row % TMA_ROW == 0 else f"rows of {row} bytes"),
        ("alignment", "" if tensor.strides[-1] == 1 else "the last stride is not the literal 1"),
    ]


def _whole_chunks(tensor: kir.Tensor) -> tuple[str, str]:
    """Claim that no row ends inside a chunk: a tensor store would write past its end."""
    nbytes = tensor.aligned * tensor.dtype.nbytes
    wrong = f"{tensor.name} is aligned to {nbytes} bytes, a store writes chunks of {TMA_ROW}"
    return "bounds", wrong if nbytes % TMA_ROW else ""


def _generic(
    step: Step, fragment: kir.Fragment, ref: kir.Box | kir.Slot, width: int
) -> list[tuple[str, str]]:
    layout = fragment.layout
    out = [
        (
            "coverage",
            ""
            if layout.shape[-1] % layout.vector == 0
            else f"rows of {layout.shape[-1]} are no whole vectors of {layout.vector}",
        ),
        ("alignment", "" if layout.vector % width == 0 else f"{width} does not divide the vector"),
    ]
    shape = ref.shape if isinstance(ref, kir.Box) else ref.buffer.shape
    fits = len(shape) == len(layout.shape) and all(
        n == t or (n == 1 and isinstance(step.stmt, kir.Load))
        for n, t in zip(shape, layout.shape, strict=False)
    )
    out.append(("coverage", "" if fits else f"a tile of {shape} for a layout of {layout.shape}"))
    if shape[-1] == 1 or width == 1:
        return out
    match ref:
        case kir.Slot(buffer):
            step_bytes = width * buffer.dtype.nbytes
            odd = shape[-1] % width or buffer.offset % step_bytes
            out.append(("alignment", f"rows of {shape[-1]} for width {width}" if odd else ""))
        case kir.Box(tensor, origin, _, limit):
            start = poly(substitute(origin[-1], step.lets))
            end = poly(substitute(limit[-1], step.lets))
            whole = end == poly(tensor.extents[-1]) or all(f % width == 0 for _, f in end)
            out += [
                (
                    "alignment",
                    ""
                    if tensor.aligned % width == 0
                    else f"{tensor.name} is aligned to {tensor.aligned} elements, not {width}",
                ),
                ("alignment", "" if tensor.strides[-1] == 1 else "the last stride is not 1"),
                (
                    "alignment",
                    ""
                    if all(factor % width == 0 for _, factor in start)
                    else f"origin {origin[-1]} is no multiple of {width}",
                ),
                ("alignment", "" if whole else f"limit {limit[-1]} may cut a vector of {width}"),
            ]
    return out


def _executed(trace: Trace, step: Step, fragment: kir.Fragment) -> tuple[str, str]:
    agents = [trace.agents[i] for i in step.agents]
    threads = sum(agent.count for agent in agents)
    wanted = fragment.layout.threads
    if threads < wanted:
        return "coverage", f"{fragment.name} is dealt to {wanted} threads, {threads} execute this"
    return "coverage", ""


def _registers(trace: Trace) -> list[tuple[str, Step]]:
    """Check, in one pass over each program, that fragments are written before they are read."""
    out: list[tuple[str, Step]] = []
    seen: set[int] = set()
    for program in trace.programs:
        known: set[str] = set()
        for step in (*program.before, *program.inside, *program.after):
            uses, makes = _fragments(step.stmt)
            missing = [name for name in uses if name not in known]
            known.update(makes)
            if step.index not in seen and (uses or makes):
                seen.add(step.index)
                out.append((f"{missing[0]} has no value yet" if missing else "", step))
    return out


def _fragments(stmt: kir.Stmt) -> tuple[list[str], list[str]]:
    match stmt:
        case kir.Load(dst):
            return [], [dst.name]
        case kir.Store(_, src):
            return [src.name], []
        case kir.Compute(dst, _, args):
            return [a.name for a in args if isinstance(a, kir.Fragment)], [dst.name]
        case kir.Coordinate(dst):
            return [], [dst.name]
        case _:
            return [], []

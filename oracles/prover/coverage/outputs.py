"""Every element of every output is written once, and nothing outside a tensor is touched.

Each access is judged alone first: alignment, shapes, and who holds which element.  A layout gives
element e to one thread and one of its registers (`Layout`'s definition is a function of e), so a
tile is covered once if its rows are whole vectors and the threads that execute the statement are
those that the layout deals to, counted from the first of their role.

`partition` proves for all extents and grids that the boxes of an output are a partition of it.  A
kernel whose boxes depend on no parameter has one launch, in which boxes are counted, element by
element.  Where no proof is found, small launches are counted one by one: one that shows an element
written twice, or never, is a finding; else nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, eq, fold, variables
from fuser.kernel import ir as kir
from oracles.prover import launches
from oracles.prover.arithmetic import Function, UnsupportedError, Values, function, natural, poly
from oracles.prover.coverage import partition, runs
from oracles.prover.coverage.values import Budget, Covered, TooManyError, defined, iterations, small
from oracles.prover.rolled import plainer
from oracles.prover.sites import (
    Site,
    adds,
    facts,
    fixed_grid,
    read,
    reads,
    says,
    slots,
    touches,
    unknown,
    writes,
)
from oracles.prover.solver import Known
from oracles.verdict import Finding


def covered(kernel: kir.Kernel, *, rlimit: int) -> Covered:
    """Judge every global access of a kernel, in every launch that it allows.

    `rlimit` is the work limit of one z3 question.  With findings if something is wrong in some
    launch, or with a reason if that is not known; with neither, every output is covered and no
    access leaves its tensor.  UnsupportedError if a computation mixes layouts.
    """
    found = read(kernel)
    known = Known(facts(kernel), rlimit)
    checked, findings = _each(found, known)
    written = defined(kernel, rlimit=rlimit)
    checked += written.checked
    sized = runs.judge(kernel, found, known)
    checked += sized.checked
    findings += [*written.findings, *sized.findings, *_unread(found)]
    boxes = [(site, box) for site in found if (box := touches(site.stmt)) is not None]
    may = (*kernel.outputs, *kernel.workspaces)
    for site, box in boxes:
        if reads(site.stmt) is None and box.tensor.name not in may:
            findings.append(_at(site, "bounds", f"{box.tensor.name} is not an output"))
    counted = _counted(kernel, found)
    if counted is not None:
        reason = written.reason or sized.reason
        return Covered(checked + counted.checked, (*findings, *counted.findings), reason)
    reasons = [reason for reason in (written.reason, sized.reason) if reason]
    told = [(site, box.index.src) for site, box in boxes if box.index is not None]
    for site, box in (*boxes, *told):
        wrong_axis = _inside(site, box, known, ordinary=(site, box) in told)
        checked += len(box.shape)
        if wrong_axis:
            reasons.append(f"{site.where}: {wrong_axis}")
    outputs = [tensor for tensor in kernel.tensors if tensor.name in kernel.outputs]
    checked += len(outputs)
    wrong_tiles = partition.judge(kernel, found, outputs, known)
    for tensor, wrong in zip(outputs, wrong_tiles, strict=True):
        if wrong and _alone(kernel, tensor, rlimit):
            reasons.append(wrong)
    if reasons and not any(f.severity == "error" for f in findings):
        shown = refuted(kernel, found)
        findings += [] if shown is None else [shown]
    return Covered(checked, tuple(findings), reasons[0] if reasons else "")


def _alone(kernel: kir.Kernel, tensor: kir.Tensor, rlimit: int) -> str:
    """Judge the stores to an output alone, whose loops may be one where all else is left out."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        box = writes(stmt)
        stores = box is not None and box.tensor == tensor
        return None if stores or isinstance(stmt, kir.Structure) else []

    plain = plainer(kernel.rewrite(rule)).kernel
    (same,) = (one for one in plain.tensors if one.name == tensor.name)
    return partition.judge(plain, read(plain), [same], Known(facts(plain), rlimit))[0]


def _counted(kernel: kir.Kernel, found: tuple[Site, ...]) -> Covered | None:
    """Count the boxes of the only launch; None if there are other launches, or too many boxes.

    All launches access global memory in the same way if there is one grid and no parameter matters.
    """
    grid = fixed_grid(kernel)
    if not isinstance(grid, int) or left_out(found):
        return None
    if any(variables(e) for t in kernel.tensors if t.name in kernel.outputs for e in t.extents):
        return None
    for site in found:
        box = touches(site.stmt)
        if box is not None:
            own = {loop.index for loop in site.loops} | {kir.BLOCK}
            exprs = (*site.span(box), *site.conditions, *box.tensor.extents)
            if not all(variables(expr) <= own for expr in exprs):
                return None
    boxes = readings(found)
    try:
        wrong = wrong_in(kernel, boxes, {kir.GRID.name: grid}, frozenset())
    except TooManyError:
        return None
    checked = len(boxes) + len(kernel.outputs)
    if wrong is None:
        return Covered(checked, ())
    says = f"for every launch: {wrong.witness}"
    return Covered(checked, (replace(wrong, witness=says),))


def _at(site: Site, kind: str, says: str) -> Finding:
    return Finding(kind, site.where, says, lines=(site.line,))


def _inside(site: Site, box: kir.Box, known: Known, *, ordinary: bool = False) -> str:
    """Say why a box may leave its tensor, if it may; an `ordinary` read of a copy is its index."""
    axes = zip(box.origin, box.shape, box.limit, box.tensor.extents, strict=True)
    for axis, (origin, size, limit, extent) in enumerate(axes):
        bound, start = site.plain(limit), site.plain(origin)
        if unknown((bound, start)):
            return f"axis {axis} depends on a value that an assignment changes"
        if extent == 1 and (start, size, bound) != (0, 1, 1):
            if start == 0 and bound == 1:
                return f"axis {axis} has one element and the box {size}"
            return f"axis {axis} has one element, the box starts at {origin} and ends at {limit}"
        told = None if ordinary else says(site.stmt)
        known_here = told is not None or runs.is_run(site.stmt)
        inside = runs.reached(site) if known_here else tuple(within(site))
        if not known.at_most(bound, extent, *inside, *site.guards):
            before = box.tensor.extents[:axis]
            if not _last_of(bound, extent, before, known, runs.reached(site)):
                return f"limit {limit} may exceed the extent {extent}"
        if told is not None:
            first = site.plain(told[0].origin[axis])
            for low, high in ((0, first), (first, start), (first + 1, bound)):
                if not known.at_most(low, high, *inside, *site.guards):
                    return f"of its map, from {first} to {bound}, {low} may exceed {high}"
        engine = isinstance(site.stmt, kir.TmaLoad | kir.QueueCopy) and not ordinary
        if engine and not runs.is_run(site.stmt):
            continue  # what lies before the tensor is 0, as is what lies behind it
        starts = fold(Kind.LE, 0, start)
        if not natural(poly(start)) and not known.gives(starts, *inside, *site.guards):
            return f"origin {origin} may be negative"
    return ""


def _last_of(
    bound: Expr, extent: Expr, before: tuple[Expr, ...], known: Known, given: tuple[Expr, ...]
) -> bool:
    """Whether a box ends behind one coordinate, which is worked out from a number of all rows.

    `before` are the extents of the axes before.  x // y is below n if x is below n * y, and x % y
    is below y if x is below any multiple of y: both say that y is not 0.
    """
    around: Expr = 1
    for other in before:
        around = fold(Kind.MUL, around, other)

    def below(number: Expr, most: Expr) -> bool:
        if known.at_most(number + 1, most, *given):
            return True
        match number:
            case Op(Kind.FLOORDIV, whole, by):
                most = fold(Kind.MUL, most, by)
            case Op(Kind.MOD, whole, by) if poly(by) == poly(most):
                most = fold(Kind.MUL, around, by)
            case _:
                return False
        return natural(poly(whole)) and natural(poly(by)) and below(whole, most)

    match bound:
        case Op(Kind.ADD, number, 1):
            return below(number, extent)
        case _:
            return False


def within(site: Site) -> Iterator[Expr]:
    """Yield what holds of the loop indices of a site."""
    for loop in site.loops:
        yield loop.index < loop.stop


TMA_SHARED = 128
"""Alignment of a bulk tensor copy's shared address, in bytes; PTX ISA, "cp.async.bulk.tensor"."""
SWIZZLE_ROWS = 8
"""Rows after which a swizzle repeats, which a slot starts at; PTX ISA, "tensor swizzling modes"."""
STRIP = 16
"""Rows that a warp holds of an accumulator; PTX ISA, "wgmma.mma_async, register fragments"."""
TMA_ROW = 16
"""Rows of a box are multiples of so many bytes; PTX ISA, "tensor map".  That the address and the
strides of the tensor are, the driver checks when it encodes the map: a launch that is refused."""
TMA_BOX = 256
"""Elements of a box per axis at most; PTX ISA, "tensor map"."""
ACCESS, CP_ASYNC = (1, 2, 4, 8, 16), (4, 8, 16)
"""Bytes that one access of a thread moves, and one cp.async; PTX ISA, "ld", "st", "cp.async"."""
MATRIX_ROW = 16
"""Bytes of a row of a matrix in shared memory, at a multiple of that; PTX ISA, "ldmatrix",
"wgmma, shared memory matrix layout"."""
MATRIX = 8
"""Rows and columns of a matrix that is transposed on the way; PTX ISA, "stmatrix", `.trans`."""
Claim = tuple[str, str]
"""Kind of finding, and what is wrong; empty where nothing is."""


def _each(sites: tuple[Site, ...], known: Known) -> tuple[int, list[Finding]]:
    """Return how many claims about single accesses were looked at, and what is wrong."""
    checked, found = 0, list[Finding]()
    for site in sites:
        claims = [*_wrong(site), *_slid(site, known)]
        checked += len(claims)
        wrong = [_at(site, kind, f"for every launch: {says}") for kind, says in claims if says]
        found += [] if wrong and _dead(site, known) else wrong
    return checked, found


def _slid(site: Site, known: Known) -> list[Claim]:
    """Claim that a row fits a tile wherever it begins, and that nothing asks who holds what."""
    match site.stmt:
        case kir.Load(dst, kir.Box(_, origin, _, limit)) if dst.layout.slides:
            *_, columns = dst.layout.shape
            ends = site.plain(limit[-1]) - site.plain(origin[-1]) + (dst.layout.vector - 1)
            fits = known.at_most(ends, columns, *within(site), *site.guards)
            return [_claim("coverage", fits, f"a row may not fit {columns} columns of {dst.name}")]
        case kir.Compute() | kir.Reduce():
            return []
        case _:
            held = (getattr(site.stmt, name, None) for name in ("dst", "src"))
            slides = any(isinstance(one, kir.Fragment) and one.layout.slides for one in held)
            return [_claim("coverage", False, "nobody holds known parts of it")] if slides else []


def _dead(site: Site, known: Known) -> bool:
    """Whether no launch executes a statement: one of its conditions excludes the others."""
    entered = (*within(site), *site.guards)
    *others, last = [expr for expr in entered if not unknown((expr,))] or [1]
    return known.gives(eq(last, 0), *others)


def _wrong(site: Site) -> list[Claim]:
    box = touches(site.stmt)
    if box is not None and box.tensor.cycles and not isinstance(site.stmt, kir.Load):
        return [("bounds", f"{box.tensor.name} repeats: loads alone find its elements")]
    match site.stmt:
        case kir.TmaLoad(bulk=True) | kir.TmaStore(bulk=True) as copy:
            once = [] if isinstance(copy, kir.TmaLoad) else [_issued_once(site)]
            return [*runs.claims(copy, site), *once]
        case kir.TmaLoad(slot, box) | kir.QueueCopy(slot, box):
            return [*_bulk(site.stmt, slot, box), *_told(box)]
        case kir.TmaStore(box, slot) | kir.TmaReduce(box, slot):
            return [*_bulk(site.stmt, slot, box), *_tensor_store(site, box.tensor)]
        case kir.CpAsync(slot, box, layout, width):
            ends = (*_generic(site, layout, slot, width), *_generic(site, layout, box, width))
            return [*ends, _executed(site, layout, "the copy")]
        case kir.StAsync(dst, src, _, _, width):
            return [*_generic(site, src.layout, dst, width), _held(site, src)]
        case kir.Load(dst, kir.Slot() as src, width) if site.stmt.transposed:
            same = _claim("bounds", dst.dtype is src.buffer.dtype, "ldmatrix does not convert")
            kept = [same] if site.stmt.matrix else []
            return [*_exchanged(site.stmt, dst.layout, src, width), *kept, _held(site, dst)]
        case kir.Store(kir.Slot() as dst, src, width) if site.stmt.transposed:
            claims = _exchanged(site.stmt, src.layout, dst, width)
            return [*claims, _held(site, src), *_once(site, src)]
        case kir.Load(dst, src, width):
            own = _as_whole(site.stmt, src)
            return [*own, *_generic(site, dst.layout, src, width, whole=False), _held(site, dst)]
        case kir.Store(dst, src, width):
            own = [*_as_whole(site.stmt, dst), _held(site, src)]
            return [*own, *_generic(site, src.layout, dst, width), *_once(site, src)]
        case kir.AtomicAdd(dst, src):
            return [*_generic(site, src.layout, dst, 1), _held(site, src), *_once(site, src)]
        case kir.Compute(dst, _, args):
            parts = [arg for arg in args if isinstance(arg, kir.Fragment)]
            for part in parts:
                deals = part.layout.deal, dst.layout.deal
                if part.layout != dst.layout and kir.Deal.ROWS not in deals:
                    raise UnsupportedError(f"{site.where}: its fragments differ in layout")
            return [_held(site, dst), *(_spread(dst, arg) for arg in parts)]
        case kir.Gather(dst, _, index):
            if any(one.layout != dst.layout for one in index):
                raise UnsupportedError(f"{site.where}: its fragments differ in layout")
            return [_held(site, dst)]
        case kir.Slice(dst, src, column):
            columns = _columns(dst.layout, src.layout, column)
            return [_held(site, dst), _held(site, src), *columns]
        case kir.Unpack(dst, src):
            return [_held(site, dst), _held(site, src), _of_bytes(dst.layout, src.layout)]
        case kir.Reduce(dst, src):
            return [_held(site, dst), _held(site, src), _together(dst.layout, src.layout)]
        case kir.Scan(dst, src, _, start):
            return [*(_held(site, part) for part in (dst, src, start)), _in_order(site.stmt)]
        case kir.Coordinate(dst):
            return [_held(site, dst)]
        case kir.Wgmma(acc, a, _, _, b_transposed, a_transposed) as product:
            across = [_tile(slot, turned=b_transposed) for slot in product.columns]
            shapes = _tile(a, turned=a_transposed), _joined(across)
            operands = [slot for slot in (a, *product.columns) if isinstance(slot, kir.Slot)]
            starts = [_starts(slot.buffer, MATRIX_ROW) for slot in operands]
            fits = _multiplied(_tile(acc), *shapes)
            return [_held(site, acc), fits, *_behind(product), *starts]
        case kir.Mma(acc, a, b):
            held = (_held(site, part) for part in (acc, a, b))
            return [*held, _multiplied(_tile(acc), _tile(a), _tile(b))]
        case _:
            return []


def _claim(kind: str, holds: object, says: str) -> Claim:
    return kind, "" if holds else says


def _tensor_store(site: Site, tensor: kir.Tensor) -> list[Claim]:
    """Claim that rows are whole chunks, for a store writes those, and that it is issued once."""
    nbytes = tensor.aligned * tensor.dtype.nbytes
    cut = f"{tensor.name} is aligned to {nbytes} bytes, a store writes chunks of {TMA_ROW}"
    return [
        _claim("bounds", nbytes % TMA_ROW == 0 and not tensor.ragged, cut),
        _issued_once(site),
    ]


def _issued_once(site: Site) -> Claim:
    many = len(site.place.threads)
    return _claim("coverage", many == 1, f"{many} threads each issue this copy")


def _bulk(
    stmt: kir.TmaLoad | kir.TmaStore | kir.TmaReduce | kir.QueueCopy, slot: kir.Slot, box: kir.Box
) -> list[Claim]:
    buffer, tensor = slot.buffer, box.tensor
    through = None if isinstance(stmt, kir.QueueCopy) else stmt.through
    nbytes, told = tensor.dtype.nbytes, through is not None
    ends = () if through is None else (through.origin[-1], box.limit[-1])
    cut = [
        e
        for e in ends
        if e != tensor.extents[-1] and (not isinstance(e, int) or e * nbytes % TMA_ROW)
    ]
    row, whole = box.shape[-1] * nbytes, prod(box.shape) * nbytes
    sizes = f"a box of {whole} bytes, a slot of {buffer.slot_nbytes}"
    claims = (
        (told or box.limit == tensor.extents, "the engine clips at the extents only"),
        (not cut, f"a map from or to {cut}, no multiple of {TMA_ROW} bytes for sure"),
        (whole == buffer.slot_nbytes, sizes),
        (max(box.shape) <= TMA_BOX, f"more than {TMA_BOX} elements an axis"),
        (row % TMA_ROW == 0, f"rows of {row} bytes"),
        (tensor.strides[-1] == 1, "the last stride is not the literal 1"),
    )
    return [_starts(buffer, TMA_SHARED), *(_claim("bounds", *claim) for claim in claims)]


def _told(box: kir.Box) -> list[Claim]:
    """Claim that what memory says of a box is one integer, for an axis along which it has one."""
    if box.index is None:
        return []
    axis, src = box.index.axis, box.index.src
    whole = 0 <= axis < len(box.shape) and (box.shape[axis], box.origin[axis]) == (1, 0)
    integer = src.tensor.dtype in (DType.I32, DType.I64) and {*src.shape} <= {1}
    return [
        _claim("bounds", whole, f"an index along axis {axis} of a box of {box.shape}"),
        _claim("bounds", integer, f"an index of {src.shape} {src.tensor.dtype}, no integer"),
    ]


def _starts(buffer: kir.Buffer, unit: int) -> Claim:
    """Claim that slots start where an engine takes them to: its swizzle goes by the address."""
    unit = max(unit, SWIZZLE_ROWS * buffer.swizzle)
    odd = next((at for at in map(buffer.start, range(buffer.slots)) if at % unit), 0)
    return _claim("bounds", not odd, f"a slot starts at byte {odd}, no multiple of {unit}")


def _columns(dst: kir.Layout, src: kir.Layout, column: int) -> list[Claim]:
    """Claim that every lane holds the columns already, and that they lie inside."""
    if {dst.deal, src.deal} == {kir.Deal.STRIPS, kir.Deal.ROUND}:
        return [_same_registers(dst, src, column)]
    strips = {dst.deal, src.deal} == {kir.Deal.STRIPS}
    rows = (dst.shape[:-1], dst.threads) == (src.shape[:-1], src.threads)
    wrong = f"{dst.shape} by {dst.threads} threads, {src.shape} by {src.threads}: values would move"
    end, whole = column + dst.shape[-1], src.shape[-1]
    return [
        ("coverage", "" if strips and rows and column % 8 == 0 else wrong),
        ("bounds", "" if column >= 0 and end <= whole else f"columns {column}..{end} of {whole}"),
    ]


def _of_bytes(dst: kir.Layout, src: kir.Layout) -> Claim:
    """Claim that every lane holds the bytes that its elements, two of each, are made of."""
    strips = {dst.deal, src.deal} == {kir.Deal.STRIPS} and dst.folded == src.folded == 1
    rows = (dst.shape[:-1], dst.threads) == (src.shape[:-1], src.threads)
    pairs = (dst.shape[-1], dst.vector) == (2 * src.shape[-1], 2 * src.vector)
    return _claim("coverage", strips and rows and pairs, f"bytes of {src} are not those of {dst}")


def _same_registers(dst: kir.Layout, src: kir.Layout, column: int) -> Claim:
    """Claim that every thread has as many registers of one whole tile as of the other."""
    strips, other = (dst, src) if dst.deal is kir.Deal.STRIPS else (src, dst)
    fits = (dst.shape, dst.threads, dst.folded) == (src.shape, src.threads, 1) and column == 0
    strip = STRIP * max(strips.threads // kir.WARP, 1)
    fits &= strips.shape[-2] % strip == 0 and strips.shape[-1] % (4 * strips.vector) == 0
    fits &= prod(other.shape) % (other.vector * other.threads) == 0
    return _claim("coverage", fits, f"registers of {src} are not those of {dst}")


def _spread(dst: kir.Fragment, part: kir.Fragment) -> Claim:
    """Claim that every thread has what it computes with: one of each, of its rows, of its columns.

    In `Deal.ROWS` it has all of a row where there is one column, and the same columns of the one
    row where these are dealt alike, or each of these is dealt as so many neighbours in a vector.
    """
    to, of = dst.layout, part.layout
    if to == of:
        return "coverage", ""
    fits = len(to.shape) == len(of.shape) and {to.deal, of.deal} == {kir.Deal.ROWS}
    fits = fits and (to.threads, to.across) == (of.threads, of.across)
    one_row = all(n == 1 for n in of.shape[:-1])
    fits = fits and (one_row or of.shape[:-1] == to.shape[:-1])
    if of.shape[-1] == 1:
        fits = fits and of.alike == of.across
    else:
        n = to.shape[-1] // of.shape[-1]
        dealt = (of.shape[-1] * n, of.vector * n, of.alike) == (to.shape[-1], to.vector, to.alike)
        fits = fits and one_row and dealt and of.folded == to.folded == 1
    return _claim("coverage", fits, f"threads that compute {dst.name} do not hold {part.name}")


def _together(dst: kir.Layout, src: kir.Layout) -> Claim:
    """Claim that a warp, or a thread down a column, holds all that becomes one element."""
    if dst.folded == 1 and dst.shape[:-1] != src.shape[:-1]:
        return _column(dst, src)
    if kir.Deal.ROWS in (dst.deal, src.deal):
        return _shared(dst, src)
    same = (dst.deal, dst.vector, dst.threads) == (src.deal, src.vector, src.threads)
    *outer, last = src.shape
    fits = same and src.folded == 1 < dst.folded
    fits &= dst.shape == (*outer, last // dst.folded) and last % dst.folded == 0
    lanes, odd = divmod(dst.folded, dst.vector)
    in_warp = not odd and lanes.bit_count() == 1 and lanes <= kir.WARP
    fits &= dst.shape[-1] == 1 if dst.deal is kir.Deal.STRIPS else in_warp
    fits &= dst.deal is not kir.Deal.EACH_WARP and src.threads % kir.WARP == 0
    return _claim("coverage", fits, f"{src} is not in the hands of those who reduce it to {dst}")


def _in_order(stmt: kir.Scan) -> Claim:
    """Claim that who holds an element of a scan has what its run begins with, and reaches the rest.

    That is itself, down a column or of a whole row; or lanes of its warp, one vector of the run
    each, in the order of their numbers.
    """
    dst, src, start = (part.layout for part in (stmt.dst, stmt.src, stmt.start))
    *outer, columns = src.shape
    fits = {(one.deal, one.threads, one.across) for one in (dst, src, start)} == {
        (kir.Deal.ROWS, src.threads, src.across)
    }
    fits = fits and not (dst.slides or src.slides or start.slides)
    fits = fits and dst.shape == src.shape and src.threads % kir.WARP == 0
    runs = start.shape[-1]
    if runs == columns > 1:  # each thread has whole columns, and their starts
        one = replace(src, shape=(*(1 for _ in outer), columns))
        fits = fits and dst == src and start == one and src.across == src.threads
    else:
        fits = fits and start.shape == (*outer, runs) and start.alike * runs == start.across
        fits = fits and start.vector == 1
        if src.alike == src.across:  # each thread has whole rows
            fits = fits and runs == 1
        else:
            lanes = start.alike
            fits = fits and dst == src and src.alike == 1 and src.across * src.vector == columns
            fits = fits and lanes.bit_count() == 1 and lanes <= kir.WARP
    return _claim("coverage", fits, f"{src} is not in the hands of those who scan it from {start}")


def _column(dst: kir.Layout, src: kir.Layout) -> Claim:
    """Claim that a thread holds what it puts together: rows as many apart as `dst` has.

    In rounds of vectors these are whole rounds apart; in `Deal.ROWS` all threads share every row.
    """
    *outer, last = src.shape
    rows = prod(dst.shape[:-1])
    fits = replace(dst, shape=src.shape) == src and src.folded == 1
    fits = fits and dst.shape == (*(1 for _ in outer[1:]), rows, last) and prod(outer) % rows == 0
    if src.deal is kir.Deal.ROWS:
        fits = fits and src.across == src.threads
    else:
        fits = fits and src.deal is kir.Deal.ROUND and rows * last % (src.vector * src.threads) == 0
    return _claim("coverage", fits, f"{src} is not in the hands of those who reduce it to {dst}")


def _shared(dst: kir.Layout, src: kir.Layout) -> Claim:
    """Claim that lanes of one warp, of those that share a row, hold what becomes one element.

    One row is held by every group of threads that share it; its sum is, if all threads have it.
    """
    if prod(dst.shape) == prod(src.shape[:-1]) == 1 and dst.alike == dst.across == dst.threads:
        dst = replace(dst, across=src.across, alike=src.across)
    fits = (dst.deal, dst.threads, dst.across) == (src.deal, src.threads, src.across)
    fits &= not dst.slides and dst.shape[:-1] == src.shape[:-1] and src.threads % kir.WARP == 0
    lanes, odd = divmod(dst.alike, src.alike)
    fits &= not odd and lanes.bit_count() == 1 and (lanes == 1 or kir.WARP % dst.alike == 0)
    fits &= dst.shape[-1] * dst.alike == dst.across and dst.vector == 1
    return _claim("coverage", fits, f"{src} is not in the hands of those who reduce it to {dst}")


def _tile(operand: kir.Fragment | kir.Slot, *, turned: bool = False) -> tuple[int, ...]:
    """Return the extents of an operand, its rows or columns of the result before those of K."""
    shape = operand.buffer.shape if isinstance(operand, kir.Slot) else operand.layout.shape
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    return tuple(reversed(shape)) if turned else shape


def _joined(parts: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the extents of columns behind each other; none if they differ along K."""
    if len({part[1:] for part in parts}) > 1 or not all(parts):
        return ()
    return sum(part[0] for part in parts), *parts[0][1:]


def _behind(stmt: kir.Wgmma) -> list[Claim]:
    """Claim that slots of one number lie behind each other, in panels of one matrix."""
    out: list[Claim] = []
    first = stmt.b.buffer
    end = first.offset + first.slot_nbytes
    panel = first.shape[-1] * first.dtype.nbytes
    whole = stmt.b_transposed or panel == first.swizzle
    for buffer in stmt.beside:
        kind = (buffer.dtype, buffer.swizzle, buffer.slots, buffer.step)
        same = kind == (first.dtype, first.swizzle, first.slots, first.step)
        behind = f"{buffer.name} begins {buffer.offset - end} bytes behind the slot before it"
        out += [
            _claim("bounds", same, f"{buffer.name} and {first.name} differ in kind"),
            _claim("bounds", buffer.offset == end, behind),
            _claim("bounds", whole, f"rows of {panel} bytes, a panel is narrower"),
        ]
        end = buffer.offset + buffer.slot_nbytes
    return out


def _multiplied(acc: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> Claim:
    """Claim that (M, K) and (N, K) operands make an (M, N) result."""
    fits = len(acc) == len(a) == len(b) == 2 and (a[0], b[0], a[1]) == (*acc, b[1])
    return _claim("bounds", fits, f"operands of {a} and {b} for a result of {acc}")


def _generic(
    site: Site, layout: kir.Layout, ref: kir.Box | kir.Slot, width: int, *, whole: bool = True
) -> list[Claim]:
    last, vector = layout.shape[-1], layout.vector if layout.folded == 1 else 1
    shape = ref.shape if isinstance(ref, kir.Box) else ref.buffer.shape
    fits = len(shape) == len(layout.shape) and all(
        n == t or (n == 1 and not whole) for n, t in zip(shape, layout.shape, strict=False)
    )
    cut = f"rows of {last} are no whole vectors of {layout.vector}"
    out = [
        _claim("coverage", last % vector == 0, cut),
        _claim("bounds", layout.vector % width == 0, f"{width} does not divide the vector"),
        _claim("coverage", fits, f"a tile of {shape} for a layout of {layout.shape}"),
    ]
    copies = isinstance(site.stmt, kir.CpAsync | kir.StAsync)
    moved = CP_ASYNC if copies else ACCESS
    nbytes = width * (ref.tensor if isinstance(ref, kir.Box) else ref.buffer).dtype.nbytes
    exists = nbytes in moved or (shape[-1] == 1 and not copies)
    out.append(_claim("bounds", exists, f"an access of {nbytes} bytes, not of one of {moved}"))
    if shape[-1] == 1 or width == 1:
        return out
    match ref:
        case kir.Slot(buffer):
            unit = MATRIX_ROW if getattr(site.stmt, "matrix", False) else nbytes
            odd = next((at for at in map(buffer.start, range(buffer.slots)) if at % unit), 0)
            out.append(_claim("bounds", not shape[-1] % width, f"rows of {shape[-1]} for {width}"))
            out.append(_claim("bounds", not odd, f"a slot at byte {odd}, no multiple of {unit}"))
        case kir.Box(tensor, origin, _, limit):
            start, end = poly(site.plain(origin[-1])), poly(site.plain(limit[-1]))
            starts = all(factor % width == 0 for _, factor in start)
            whole = end == poly(tensor.extents[-1]) and not tensor.ragged
            one_by_one = tensor.ragged and not copies
            ends = whole or one_by_one or all(f % width == 0 for _, f in end)
            aligned = f"{tensor.name} is aligned to {tensor.aligned} elements, not {width}"
            out += [
                _claim("bounds", tensor.aligned % width == 0, aligned),
                _claim("bounds", tensor.strides[-1] == 1, "the last stride is not 1"),
                _claim("bounds", starts, f"origin {origin[-1]} is no multiple of {width}"),
                _claim("bounds", ends, f"limit {limit[-1]} may cut a vector of {width}"),
            ]
    return out


def _as_whole(stmt: kir.Load | kir.Store, ref: kir.Box | kir.Slot) -> list[Claim]:
    """Claim that what is moved by matrices, or across, is a whole tile of shared memory."""
    if not stmt.matrix and not stmt.transposed:
        return []
    slot = isinstance(ref, kir.Slot)
    far = stmt.matrix and isinstance(ref, kir.Slot) and ref.cta is not None
    limited = isinstance(stmt, kir.Load) and stmt.limit is not None
    return [
        _claim("bounds", slot, "global memory is accessed as it lies"),
        _claim("bounds", not far, "ldmatrix and stmatrix know no slots of other CTAs"),
        _claim("bounds", not limited, "a limit is of rows as they lie, accessed one by one"),
    ]


def _exchanged(
    stmt: kir.Load | kir.Store, layout: kir.Layout, ref: kir.Slot, width: int
) -> list[Claim]:
    """Claim that a slot has the tile of a layout with its last two axes in the other order.

    By single elements, or by matrices, of which a thread has two elements of a row each.
    """
    shape = ref.buffer.shape
    fits = len(shape) > 1 and shape == (*layout.shape[:-2], layout.shape[-1], layout.shape[-2])
    cut = f"rows of {layout.shape[-1]} are no whole vectors of {layout.vector}"
    out = [
        *_as_whole(stmt, ref),
        _claim("coverage", layout.shape[-1] % layout.vector == 0, cut),
        _claim("coverage", fits, f"a slot of {shape} for a layout of {layout.shape}"),
    ]
    if not stmt.matrix:
        read = isinstance(stmt, kir.Load) and layout.deal in (kir.Deal.STRIPS, kir.Deal.EACH_WARP)
        plain = layout.folded == 1 and (read or layout.deal is kir.Deal.ROUND)
        apart = f"{width} neighbours of a transposed tile are not together"
        return [
            *out,
            _claim("bounds", width == 1, apart),
            _claim(
                "coverage",
                plain,
                "a transposed tile is dealt round, or read as tensor cores hold it",
            ),
        ]
    nbytes = ref.buffer.dtype.nbytes
    strips = layout.folded == 1 and layout.deal is kir.Deal.STRIPS
    whole = all(extent % MATRIX == 0 for extent in shape[-2:])
    odd = next((at for at in map(ref.buffer.start, range(ref.buffer.slots)) if at % MATRIX_ROW), 0)
    return [
        *out,
        _claim("bounds", nbytes == 2, f"{nbytes} bytes an element; .trans moves those of 2"),
        _claim("coverage", strips, "a matrix is dealt as a part of a strip"),
        _claim("bounds", (layout.vector, width) == (2, 2), f"{width} of {layout.vector}, not 2"),
        _claim("bounds", whole, f"a slot of {shape} has no whole matrices of {MATRIX} x {MATRIX}"),
        _claim("bounds", not odd, f"a slot at byte {odd}, no multiple of {MATRIX_ROW}"),
    ]


def _executed(site: Site, layout: kir.Layout, name: str) -> Claim:
    threads = site.place.threads
    dealt = threads.issuperset(range(site.place.base, site.place.base + layout.threads))
    says = f"{name} is dealt to {layout.threads} threads, {len(threads)} execute this"
    return _claim("coverage", dealt, says)


def _held(site: Site, fragment: kir.Fragment) -> Claim:
    """Claim that the threads which a fragment is dealt to execute the statement."""
    return _executed(site, fragment.layout, fragment.name)


def _once(site: Site, fragment: kir.Fragment) -> list[Claim]:
    """Claim that no element in global memory is written by two threads."""
    layout, name = fragment.layout, fragment.name
    if touches(site.stmt) is None:
        return []
    many, warps = len(site.place.threads), layout.threads // kir.WARP
    if layout.deal is kir.Deal.EACH_WARP and warps > 1:
        return [("coverage", f"each of {warps} warps holds all of {name} and writes it")]
    says = f"{many} threads execute this, {name} is dealt to {layout.threads} of them"
    return [("coverage", says if many > layout.threads else "")]


def _unread(sites: tuple[Site, ...]) -> list[Finding]:
    """Warn of copies into slots whose bytes nobody ever reads, as whose buffer's ever."""
    filled: list[tuple[Site, kir.Slot]] = []
    used: list[kir.Slot] = []
    for site in sites:
        match site.stmt:
            case kir.TmaLoad(dst) | kir.CpAsync(dst) | kir.StAsync(dst) | kir.QueueCopy(dst):
                filled.append((site, dst))
            case kir.Store():
                pass
            case _:
                used += slots(site.stmt)
    read = [(slot.buffer, at) for slot in used for at in _numbers(slot)]
    out = []
    for site, dst in filled:
        buffer = dst.buffer
        for at in _numbers(dst):
            start = buffer.start(at)
            held = (
                b.start(n) < start + buffer.slot_nbytes and start < b.start(n) + b.slot_nbytes
                for b, n in read
            )
            if not any(held):
                says = f"for every launch: nothing reads {buffer.name}[{at}]"
                found = _at(site, "unread", says)
                out.append(replace(found, severity="warning"))
                break
    return out


def _numbers(slot: kir.Slot) -> range:
    if isinstance(slot.index, int):
        return range(slot.index, slot.index + 1)
    return range(slot.buffer.slots)


Span = list[tuple[int, int]]


class Reading:
    """The box of a site as functions of the launch."""

    def __init__(self, site: Site, box: kir.Box) -> None:
        self.site, self.box = site, box
        self.loops = [(loop.index.name, function(loop.stop)) for loop in site.loops]
        self.guards = [function(guard) for guard in site.guards]
        self.origin = [function(site.plain(e)) for e in box.origin]
        self.limit = [function(site.plain(e)) for e in box.limit]
        self.extents = [function(e) for e in box.tensor.extents]
        self.writes = writes(site.stmt) is not None
        engines = kir.TmaLoad | kir.TmaStore | kir.TmaReduce | kir.QueueCopy
        self.clipped = isinstance(site.stmt, engines) and not runs.is_run(site.stmt)

    def boxes(self, values: Values, budget: Budget | None = None) -> Iterator[tuple[Values, Span]]:
        """Yield every box that is not empty, with the values of the loop indices."""
        for now in iterations(self.loops, values):
            if budget is not None:
                budget.spend()
            if not all(guard(now) for guard in self.guards):
                continue
            spans = []
            for origin, size, limit in zip(self.origin, self.box.shape, self.limit, strict=True):
                start, end = origin(now), min(origin(now) + size, limit(now))
                spans.append((max(start, 0) if self.clipped else start, end))
            if all(start < end for start, end in spans):
                yield now, spans


def readings(sites: tuple[Site, ...]) -> list[Reading]:
    """Return the accesses of global memory, without those whose place is not known."""
    out = []
    for site in sites:
        box = touches(site.stmt)
        if box is not None and not unknown((*site.conditions, *site.span(box))):
            out.append(Reading(site, box))
    return out


def refuted(kernel: kir.Kernel, sites: tuple[Site, ...]) -> Finding | None:
    """Search for a small launch in which a box leaves its tensor or an output is not covered."""
    boxes = readings(sites)
    stops = {loop.stop for site in sites for loop in site.loops}
    settled = {kir.BLOCK, kir.GRID, *kernel.params}
    closed = [function(s) for s in stops if variables(s) and variables(s) <= settled]
    skipped = left_out(sites)
    for values, budget in small(kernel):
        try:
            wrong = wrong_in(kernel, boxes, values, skipped, budget)
        except TooManyError:
            wrong = None
        if wrong is not None:
            launch, names = launches.named(values)
            trips = max((_count(stop, values) for stop in closed), default=0)
            says = f"trips={trips}, {names}: {wrong.witness}"
            return replace(wrong, witness=says, trips=trips, launch=launch)
    return None


def left_out(sites: tuple[Site, ...]) -> frozenset[str]:
    """Return the outputs of which it is not known what launches write, or that are added to only.

    A launch before this one may have given such an output its first value.
    """
    known = {id(reading.site) for reading in readings(sites)}
    moving, stored, added = set(), set(), set()
    for site in sites:
        box, more = writes(site.stmt), adds(site.stmt)
        if box is not None:
            stored.add(box.tensor.name)
            if id(site) not in known:
                moving.add(box.tensor.name)
        if more is not None:
            added.add(more.tensor.name)
    return frozenset(moving | (added - stored))


def _count(stop: Function, values: Values) -> int:
    try:
        return max(0, stop(values))
    except ZeroDivisionError:
        return 0


def wrong_in(
    kernel: kir.Kernel,
    boxes: list[Reading],
    values: Values,
    skipped: frozenset[str],
    budget: Budget | None = None,
) -> Finding | None:
    """Return what goes wrong in one launch, outputs in `skipped` aside.

    TooManyError if the launch has more iterations than the budget, or `ITERATIONS`, allows.
    """
    try:
        written: dict[str, list[Span]] = {}
        left = next(_launched(boxes, values, budget or Budget(), written), None)
        if left is not None:
            return left
        for tensor in kernel.tensors:
            if tensor.name in kernel.outputs and tensor.name not in skipped:
                extents = [function(e)(values) for e in tensor.extents]
                if says := _uncovered(extents, sorted(written.get(tensor.name, []))):
                    return Finding("coverage", tensor.name, says)
    except ZeroDivisionError:
        return Finding("bounds", kernel.name, "an index divides by 0")
    return None


def _launched(
    boxes: list[Reading], values: Values, budget: Budget, written: dict[str, list[Span]]
) -> Iterator[Finding]:
    """Note what one launch writes, by tensor; yield the boxes that leave their tensor."""
    for block in range(values[kir.GRID.name]):
        here = {**values, kir.BLOCK.name: block}
        for reading in boxes:
            extents = [extent(here) for extent in reading.extents]
            for now, spans in reading.boxes(here, budget):
                for (start, end), extent in zip(spans, extents, strict=True):
                    if start < 0 or end > extent:
                        loops = reading.site.loops
                        at = "".join(f", {loop.name}={now[loop.index.name]}" for loop in loops)
                        says = f"CTA {block}{at}: {start}..{end} leaves 0..{extent}"
                        yield _at(reading.site, "bounds", says)
                if reading.writes:
                    written.setdefault(reading.box.tensor.name, []).append(spans)


def _uncovered(extents: list[int], boxes: list[Span]) -> str:
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            if b[0][0] >= a[0][1]:
                break
            both = [(max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True)]
            if all(start < end for start, end in both):
                return f"element {tuple(start for start, _ in both)} is written twice"
    left = prod(extents) - sum(prod(end - start for start, end in box) for box in boxes)
    return f"{left} elements are never written" if left else ""

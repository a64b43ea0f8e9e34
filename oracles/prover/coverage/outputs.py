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
from dataclasses import dataclass, replace
from math import prod

from fuser.expr import Expr, Kind, fold, variables
from fuser.kernel import ir as kir
from oracles.prover import launches, sites
from oracles.prover.arithmetic import Function, UnsupportedError, Values, function, natural, poly
from oracles.prover.coverage import partition
from oracles.prover.sites import MOVING, Site, adds, fixed_grid, touches, unknown, writes
from oracles.prover.solver import Known
from oracles.verdict import Finding


@dataclass(frozen=True, slots=True)
class Covered:
    """What was found, how many claims hold, and why the rest is open."""

    checked: int
    findings: tuple[Finding, ...]
    reason: str = ""


def covered(kernel: kir.Kernel, *, rlimit: int) -> Covered:
    """Judge every global access of a kernel, in every launch that it allows.

    Parameters
    ----------
    kernel : Kernel
        A valid kernel.
    rlimit : int
        Work limit of one z3 question.

    Returns
    -------
    Covered
        With findings if something is wrong in some launch, or with a reason if that is not known;
        with neither, every output is covered and no access leaves its tensor.

    Raises
    ------
    UnsupportedError
        If a computation mixes layouts.
    """
    found = sites.read(kernel)
    checked, findings = _alone_wrong(found)
    known = Known(sites.facts(kernel), rlimit)
    boxes = [(site, box) for site in found if (box := sites.touches(site.stmt)) is not None]
    for site, box in boxes:
        written = sites.reads(site.stmt) is None
        if written and box.tensor.name not in (*kernel.outputs, *kernel.workspaces):
            findings.append(_at("bounds", site, f"{box.tensor.name} is not an output"))
    counted = _counted(kernel, found)
    if counted is not None:
        return Covered(checked + counted.checked, (*findings, *counted.findings))
    reasons: list[str] = []
    for site, box in boxes:
        wrong_axis = _inside(site, box, known)
        checked += len(box.shape)
        if wrong_axis:
            reasons.append(f"{site.where}: {wrong_axis}")
    for tensor in kernel.tensors:
        if tensor.name in kernel.outputs:
            checked += 1
            wrong_tiles = partition.judge(kernel, found, tensor, known)
            if wrong_tiles:
                reasons.append(wrong_tiles)
    if reasons and not findings:
        shown = refuted(kernel, found)
        findings += [] if shown is None else [shown]
    return Covered(checked, tuple(findings), reasons[0] if reasons else "")


def _one_launch(kernel: kir.Kernel, found: tuple[Site, ...]) -> bool:
    """Whether all launches access global memory in the same way: one grid, no parameter."""
    if not isinstance(fixed_grid(kernel), int) or left_out(kernel, found):
        return False
    if any(variables(e) for t in kernel.tensors if t.name in kernel.outputs for e in t.extents):
        return False
    for site in found:
        box = sites.touches(site.stmt)
        if box is not None:
            own = {turn.index for turn in site.loops} | {kir.BLOCK}
            exprs: list[Expr] = [site.plain(e) for e in (*box.origin, *box.limit)]
            exprs += [*site.guards, *(turn.stop for turn in site.loops), *box.tensor.extents]
            if not all(variables(expr) <= own for expr in exprs):
                return False
    return True


def _counted(kernel: kir.Kernel, found: tuple[Site, ...]) -> Covered | None:
    """Count the boxes of the only launch; None if there are other launches, or too many boxes."""
    if not _one_launch(kernel, found):
        return None
    grid = fixed_grid(kernel)
    assert isinstance(grid, int), "the only launch has one grid"
    read = readings(found)
    try:
        wrong = wrong_in(kernel, read, {kir.GRID.name: grid}, frozenset())
    except ZeroDivisionError:
        wrong = Finding("bounds", kernel.name, "an index divides by 0")
    except TooManyError:
        return None
    checked = len(read) + len(kernel.outputs)
    if wrong is None:
        return Covered(checked, ())
    says = f"for every launch: {wrong.witness}"
    return Covered(checked, (replace(wrong, witness=says),))


def _at(kind: str, site: Site, says: str) -> Finding:
    return Finding(kind, site.where, says, lines=(site.line,))


def _inside(site: Site, box: kir.Box, known: Known) -> str:
    """Say why a box may leave its tensor, if it may."""
    axes = zip(box.origin, box.shape, box.limit, box.tensor.extents, strict=True)
    for axis, (origin, size, limit, extent) in enumerate(axes):
        bound, start = site.plain(limit), site.plain(origin)
        if sites.unknown((bound, start)):
            return f"axis {axis} depends on a value that an assignment changes"
        if extent == 1 and (start, size, bound) != (0, 1, 1):
            if start == 0 and bound == 1:
                return f"axis {axis} has one element and the box {size}"
            return f"axis {axis} has one element, the box starts at {origin} and ends at {limit}"
        if not known.at_most(bound, extent):
            return f"limit {limit} may exceed the extent {extent}"
        turns = tuple(turn.index < turn.stop for turn in site.loops)
        if not natural(poly(start)) and not known.gives(
            fold(Kind.LE, 0, start), *turns, *site.guards
        ):
            return f"origin {origin} may be negative"
    return ""


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
Claim = tuple[str, str]
"""Kind of finding, and what is wrong; empty where nothing is."""


def _alone_wrong(sites: tuple[Site, ...]) -> tuple[int, list[Finding]]:
    """Return how many claims were looked at, and what is wrong."""
    checked, findings = 0, []
    for site in sites:
        for kind, says in _wrong(site):
            checked += 1
            if says:
                findings.append(_always(kind, site, says))
    for says, site in _registers(sites):
        checked += 1
        if says:
            findings.append(_always("RAW", site, says))
    return checked, findings


def _always(kind: str, site: Site, says: str) -> Finding:
    return Finding(kind, site.where, f"for every launch: {says}", lines=(site.line,))


def _wrong(site: Site) -> list[Claim]:
    match site.stmt:
        case kir.TmaLoad(slot, box):
            return _bulk(slot, box)
        case kir.TmaStore(box, slot) | kir.TmaReduce(box, slot):
            return [*_bulk(slot, box), _whole_chunks(box.tensor), _alone(site)]
        case kir.CpAsync(slot, box, layout, width):
            return [
                *_generic(site, layout, slot, width, whole=True),
                *_generic(site, layout, box, width, whole=True),
                _executed(site, layout, "the copy"),
            ]
        case kir.Load(dst, src, width):
            return [
                *_generic(site, dst.layout, src, width, whole=False),
                _executed(site, dst.layout, dst.name),
            ]
        case kir.Store(dst, src, width):
            return [
                *_generic(site, src.layout, dst, width, whole=True),
                _executed(site, src.layout, src.name),
                *_once(site, src.layout, src.name),
            ]
        case kir.AtomicAdd(dst, src):
            return [
                *_generic(site, src.layout, dst, 1, whole=True),
                _executed(site, src.layout, src.name),
                *_once(site, src.layout, src.name),
            ]
        case kir.Compute(dst, _, args):
            for arg in args:
                if isinstance(arg, kir.Fragment) and arg.layout != dst.layout:
                    raise UnsupportedError(f"{site.where}: its fragments differ in layout")
            return [_executed(site, dst.layout, dst.name)]
        case kir.Slice(dst, src, column):
            parts = [_executed(site, part.layout, part.name) for part in (dst, src)]
            return [*parts, *_columns(dst.layout, src.layout, column)]
        case kir.Reduce(dst, src):
            parts = [_executed(site, part.layout, part.name) for part in (dst, src)]
            return [*parts, _together(dst.layout, src.layout)]
        case kir.Coordinate(dst):
            return [_executed(site, dst.layout, dst.name)]
        case kir.Wgmma(acc, a, _, _, b_transposed, a_transposed) as product:
            across = [_tile(slot, turned=b_transposed) for slot in product.columns]
            shapes = _tile(a, turned=a_transposed), _joined(across)
            sums = [_executed(site, acc.layout, acc.name), _multiplied(_tile(acc), *shapes)]
            return [*sums, *_behind(product)]
        case kir.Mma(acc, a, b):
            executed = [_executed(site, part.layout, part.name) for part in (acc, a, b)]
            return [*executed, _multiplied(_tile(acc), _tile(a), _tile(b))]
        case _:
            return []


def _claim(kind: str, holds: object, says: str) -> Claim:
    return kind, "" if holds else says


def _alone(site: Site) -> Claim:
    """Claim that a bulk copy is issued once: a second one would copy the same box again."""
    many = len(site.place.threads)
    return _claim("coverage", many == 1, f"{many} threads each issue this copy")


def _bulk(slot: kir.Slot, box: kir.Box) -> list[Claim]:
    buffer, tensor = slot.buffer, box.tensor
    nbytes = tensor.dtype.nbytes
    row, whole = box.shape[-1] * nbytes, prod(box.shape) * nbytes
    unit = max(TMA_SHARED, SWIZZLE_ROWS * buffer.swizzle)
    odd = next((at for at in map(buffer.start, range(buffer.slots)) if at % unit), 0)
    sizes = f"a box of {whole} bytes, a slot of {buffer.slot_nbytes}"
    claims = (
        (box.limit == tensor.extents, "the engine clips at the extents only"),
        (whole == buffer.slot_nbytes, sizes),
        (max(box.shape) <= TMA_BOX, f"more than {TMA_BOX} elements an axis"),
        (not odd, f"a slot starts at byte {odd}, no multiple of {unit}"),
        (row % TMA_ROW == 0, f"rows of {row} bytes"),
        (tensor.strides[-1] == 1, "the last stride is not the literal 1"),
    )
    return [_claim("bounds", *claim) for claim in claims]


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


def _same_registers(dst: kir.Layout, src: kir.Layout, column: int) -> Claim:
    """Claim that every thread has as many registers of one whole tile as of the other."""
    strips, other = (dst, src) if dst.deal is kir.Deal.STRIPS else (src, dst)
    fits = (dst.shape, dst.threads, dst.folded) == (src.shape, src.threads, 1) and column == 0
    strip = STRIP * max(strips.threads // kir.WARP, 1)
    fits &= strips.shape[-2] % strip == 0 and strips.shape[-1] % (4 * strips.vector) == 0
    fits &= prod(other.shape) % (other.vector * other.threads) == 0
    return _claim("coverage", fits, f"registers of {src} are not those of {dst}")


def _together(dst: kir.Layout, src: kir.Layout) -> Claim:
    """Claim that a warp, or a thread down a column, holds all that becomes one element."""
    same = (dst.deal, dst.vector, dst.threads) == (src.deal, src.vector, src.threads)
    *outer, last = src.shape
    fits = same and src.folded == 1
    if dst.folded > 1:
        fits &= dst.shape == (*outer, last // dst.folded) and last % dst.folded == 0
        lanes, odd = divmod(dst.folded, dst.vector)
        in_warp = not odd and lanes.bit_count() == 1 and lanes <= kir.WARP
        fits &= dst.shape[-1] == 1 if dst.deal is kir.Deal.STRIPS else in_warp
        fits &= dst.deal is not kir.Deal.EACH_WARP and src.threads % kir.WARP == 0
    else:
        fits &= dst.shape == (*(1 for _ in outer), last) and dst.deal is kir.Deal.ROUND
        fits &= last // src.vector % src.threads == 0
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


def _whole_chunks(tensor: kir.Tensor) -> Claim:
    """Claim that no row ends inside a chunk: a tensor store would write past its end."""
    nbytes = tensor.aligned * tensor.dtype.nbytes
    wrong = f"{tensor.name} is aligned to {nbytes} bytes, a store writes chunks of {TMA_ROW}"
    return "bounds", wrong if nbytes % TMA_ROW else ""


def _generic(
    site: Site, layout: kir.Layout, ref: kir.Box | kir.Slot, width: int, *, whole: bool
) -> list[Claim]:
    last, vector = layout.shape[-1], layout.vector if layout.folded == 1 else 1
    shape = ref.shape if isinstance(ref, kir.Box) else ref.buffer.shape
    fits = len(shape) == len(layout.shape) and all(
        n == t or (n == 1 and not whole) for n, t in zip(shape, layout.shape, strict=False)
    )
    out = [
        _claim(
            "coverage",
            last % vector == 0,
            f"rows of {last} are no whole vectors of {layout.vector}",
        ),
        _claim("bounds", layout.vector % width == 0, f"{width} does not divide the vector"),
        _claim("coverage", fits, f"a tile of {shape} for a layout of {layout.shape}"),
    ]
    if shape[-1] == 1 or width == 1:
        return out
    match ref:
        case kir.Slot(buffer):
            odd = shape[-1] % width or buffer.offset % (width * buffer.dtype.nbytes)
            out.append(_claim("bounds", not odd, f"rows of {shape[-1]} for width {width}"))
        case kir.Box(tensor, origin, _, limit):
            start, end = poly(site.plain(origin[-1])), poly(site.plain(limit[-1]))
            starts = all(factor % width == 0 for _, factor in start)
            ends = end == poly(tensor.extents[-1]) or all(f % width == 0 for _, f in end)
            aligned = f"{tensor.name} is aligned to {tensor.aligned} elements, not {width}"
            out += [
                _claim("bounds", tensor.aligned % width == 0, aligned),
                _claim("bounds", tensor.strides[-1] == 1, "the last stride is not 1"),
                _claim("bounds", starts, f"origin {origin[-1]} is no multiple of {width}"),
                _claim("bounds", ends, f"limit {limit[-1]} may cut a vector of {width}"),
            ]
    return out


def _executed(site: Site, layout: kir.Layout, name: str) -> Claim:
    threads = site.place.threads
    dealt = threads.issuperset(range(site.place.base, site.place.base + layout.threads))
    says = f"{name} is dealt to {layout.threads} threads, {len(threads)} execute this"
    return _claim("coverage", dealt, says)


def _once(site: Site, layout: kir.Layout, name: str) -> list[Claim]:
    """Claim that no element in global memory is written by two threads."""
    dst = site.stmt.dst if isinstance(site.stmt, kir.Store | kir.AtomicAdd) else None
    if not isinstance(dst, kir.Box):
        return []
    many, warps = len(site.place.threads), layout.threads // kir.WARP
    if layout.deal is kir.Deal.EACH_WARP and warps > 1:
        return [("coverage", f"each of {warps} warps holds all of {name} and writes it")]
    says = f"{many} threads execute this, {name} is dealt to {layout.threads} of them"
    return [("coverage", says if many > layout.threads else "")]


def _registers(sites: tuple[Site, ...]) -> list[tuple[str, Site]]:
    """Check, in program order, that fragments are written before they are read.

    By a thread that reads them, under whatever condition: that the conditions agree, and what a
    loop of no turns leaves unwritten, is not asked here.
    """
    out: list[tuple[str, Site]] = []
    known: dict[str, frozenset[int]] = {}
    for site in sites:
        uses, makes = _fragments(site.stmt)
        nobody: frozenset[int] = frozenset()
        missing = [name for name in uses if not known.get(name, nobody) & site.place.threads]
        for name in makes:
            known[name] = known.get(name, nobody) | site.place.threads
        if uses or makes:
            out.append((f"{missing[0]} has no value yet" if missing else "", site))
    return out


def _fragments(stmt: kir.Stmt) -> tuple[list[str], list[str]]:
    match stmt:
        case kir.Load(dst) | kir.Coordinate(dst):
            return [], [dst.name]
        case kir.Slice(dst, src) | kir.Reduce(dst, src):
            return [src.name], [dst.name]
        case kir.Store(_, src) | kir.AtomicAdd(_, src):
            return [src.name], []
        case kir.Compute(dst, _, args):
            return [a.name for a in args if isinstance(a, kir.Fragment)], [dst.name]
        case kir.Wgmma(acc, a, _, accumulate):
            read = [a.name] if isinstance(a, kir.Fragment) else []
            return ([*read, acc.name] if accumulate == 1 else read), [acc.name]
        case kir.Mma(acc, a, b):
            return [acc.name, a.name, b.name], [acc.name]
        case _:
            return [], []


TURNS = 4000
"""Turns of loops around boxes that one launch may have; a launch with more is not judged."""
ALL_TURNS = 60_000
"""Turns of all launches of a search together; a second."""
Span = list[tuple[int, int]]


class TooManyError(Exception):
    """A launch has more turns than are looked at."""


class Budget:
    """The turns that may still be looked at, whether they show a box or not."""

    def __init__(self, turns: int) -> None:
        self.left = turns

    def spend(self) -> None:
        """Count a turn.

        Raises
        ------
        TooManyError
            If there is none left.
        """
        if self.left <= 0:
            raise TooManyError
        self.left -= 1


class Reading:
    """The box of a site as functions of the launch."""

    def __init__(self, site: Site, box: kir.Box) -> None:
        self.site, self.box = site, box
        self.loops = [(turn.index.name, function(turn.stop)) for turn in site.loops]
        self.guards = [function(guard) for guard in site.guards]
        self.origin = [function(site.plain(e)) for e in box.origin]
        self.limit = [function(site.plain(e)) for e in box.limit]
        self.extents = [function(e) for e in box.tensor.extents]
        self.writes = writes(site.stmt) is not None

    def boxes(self, values: Values, budget: Budget | None = None) -> Iterator[tuple[Values, Span]]:
        """Yield every box that is not empty, with the values of the loop indices.

        Raises
        ------
        TooManyError
            If there are more turns than a budget allows.
        """
        for now in _turns(self.loops, values):
            if budget is not None:
                budget.spend()
            if not all(guard(now) for guard in self.guards):
                continue
            spans = []
            for origin, size, limit in zip(self.origin, self.box.shape, self.limit, strict=True):
                start = origin(now)
                spans.append((start, min(start + size, limit(now))))
            if all(start < end for start, end in spans):
                yield now, spans


def _turns(loops: list[tuple[str, Function]], values: Values) -> Iterator[Values]:
    if not loops:
        yield values
        return
    (name, stop), *rest = loops
    for i in range(stop(values)):
        yield from _turns(rest, {**values, name: i})


def readings(sites: tuple[Site, ...]) -> list[Reading]:
    """Return the accesses of global memory, without those whose place is not known."""
    out = []
    for site in sites:
        box = touches(site.stmt)
        if box is None:
            continue
        exprs = (*site.guards, *(turn.stop for turn in site.loops))
        places = tuple(site.plain(e) for e in (*box.origin, *box.limit))
        if not unknown((*exprs, *places)):
            out.append(Reading(site, box))
    return out


def refuted(kernel: kir.Kernel, sites: tuple[Site, ...]) -> Finding | None:
    """Search for a small launch in which a box leaves its tensor or an output is not covered."""
    read = readings(sites)
    loops = {turn.index.name: turn for site in sites for turn in site.loops}
    stops = [turn.stop for turn in loops.values() if not isinstance(turn.stop, int)]
    closed = [function(s) for s in stops if MOVING not in variables(s) and _closed(kernel, s)]
    skipped = left_out(kernel, sites)
    rest = ALL_TURNS
    for values in launches.some_launches(kernel):
        budget = Budget(min(TURNS, rest))
        rest -= budget.left
        try:
            wrong = wrong_in(kernel, read, values, skipped, budget)
        except ZeroDivisionError:
            wrong = Finding("bounds", kernel.name, "an index divides by 0")
        except TooManyError:
            wrong = None
        rest += budget.left
        if wrong is not None:
            shown = {k: v for k, v in values.items() if k != kir.BLOCK.name}
            launch = tuple(sorted(shown.items()))
            names = ", ".join(f"{name}={value}" for name, value in launch)
            trips = max((_count(stop, values) for stop in closed), default=0)
            says = f"trips={trips}, {names}: {wrong.witness}"
            return replace(wrong, witness=says, trips=trips, launch=launch)
    return None


def left_out(kernel: kir.Kernel, sites: tuple[Site, ...]) -> frozenset[str]:
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


def _closed(kernel: kir.Kernel, stop: Expr) -> bool:
    return variables(stop) <= {kir.BLOCK, kir.GRID, *kernel.params}


def _count(stop: Function, values: Values) -> int:
    try:
        return max(0, stop(values))
    except ZeroDivisionError:
        return 0


def wrong_in(
    kernel: kir.Kernel,
    read: list[Reading],
    values: Values,
    skipped: frozenset[str],
    budget: Budget | None = None,
) -> Finding | None:
    """Return what goes wrong in one launch, outputs in `skipped` aside.

    Raises
    ------
    TooManyError
        If the launch has more turns than the budget, or `TURNS`, allows.
    """
    written: dict[str, list[Span]] = {}
    budget = Budget(TURNS) if budget is None else budget
    for block in range(values[kir.GRID.name]):
        here = {**values, kir.BLOCK.name: block}
        for reading in read:
            extents = [extent(here) for extent in reading.extents]
            for now, spans in reading.boxes(here, budget):
                for (start, end), extent in zip(spans, extents, strict=True):
                    if start < 0 or end > extent:
                        at = "".join(f", {t.name}={now[t.index.name]}" for t in reading.site.loops)
                        says = f"CTA {block}{at}: {start}..{end} leaves 0..{extent}"
                        site = reading.site
                        return Finding("bounds", site.where, says, lines=(site.line,))
                if reading.writes:
                    written.setdefault(reading.box.tensor.name, []).append(spans)
    for tensor in kernel.tensors:
        if tensor.name in kernel.outputs and tensor.name not in skipped:
            says = _uncovered([function(e)(values) for e in tensor.extents], written, tensor.name)
            if says:
                return Finding("coverage", tensor.name, says)
    return None


def _uncovered(extents: list[int], written: dict[str, list[Span]], name: str) -> str:
    boxes = sorted(written.get(name, []))
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            if b[0][0] >= a[0][1]:
                break
            both = [(max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True)]
            if all(start < end for start, end in both):
                return f"element {tuple(start for start, _ in both)} is written twice"
    left = prod(extents) - sum(prod(end - start for start, end in box) for box in boxes)
    return f"{left} elements are never written" if left else ""

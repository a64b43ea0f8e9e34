"""What can be said of each access alone: alignment, shapes, and who holds which element.

A layout gives element e to one thread and one of its registers (`Layout`'s definition is a
function of e), so a tile is covered once if its rows are whole vectors and the threads that
execute the statement are those that the layout deals to, counted from the first of their role.
"""

from __future__ import annotations

from math import prod

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.polynomial import poly
from oracles.prover.sites import Site
from oracles.verdict import Finding

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


def judge(sites: tuple[Site, ...]) -> tuple[int, list[Finding]]:
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

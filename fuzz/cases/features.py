"""What a case is made of: the shape of its graph, the cells of the coverage table, its repeats.

A cell is a tuple of words: an operation and the type of its first tensor, the forms of two
operations one behind the other, an operation and how its results are reduced, a schedule and the
depth of its ring, a schedule and how its CTAs share tiles, a schedule and which operands it
computes in registers or is told by an index where they lie, or how long an axis is beside its tile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import ceil, prod
from random import Random
from typing import TypeGuard

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, IterType, TensorView
from fuser.fusion.ir import ancestry, reached, tensor_args
from fuser.fusion.ops import ALL, CASTS, FLOATS, MOVED, OPS, Form, result_dtype
from fuser.pipeline import tiled
from fuser.runtime.call import extents_of, kernel_extents, loops_of, with_parts
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import Domain
from fuser.schedule.matmul import PACKED, MatmulTiling, of_one, sizes
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import (
    MAX_STAGES,
    NormParams,
    ReductionParams,
    ScanParams,
)
from fuser.schedule.reduction import ReductionTiling
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import CallClass, Params
from fuzz.campaign.record import ENOUGH, Cell
from fuzz.cases.case import Case, compiled, specs
from fuzz.cases.params import FAMILIES, POINTWISE_FAMILIES
from fuzz.cases.schedules import MATMUL_FAMILIES, OBSERVES

DEPTHS = {n: "1" if n == 1 else "2" if n == 2 else "3-4" if n < 5 else "5-8" for n in range(1, 9)}
"""Ring depths, in slots, that count as one."""
assert max(DEPTHS) == MAX_STAGES
REDUCTIONS = tuple(op for op in OPS if OPS[op].form is Form.REDUCTION)
WISHES = 64
"""Rarest cells that a round of draws asks for."""
OFTEN = 4
"""Times that a cell which was never drawn is among the wishes, at most."""
ROUND = 12
"""Cases that an engine draws before it begins anew with another seed: most of them for the wishes
of the round.  Behind ten cases Hypothesis draws each further one five times over, with some of its
choices put in place of others: most of 72 were made for the same few wishes."""
LENGTHS = ("none", "one", "part", "tile", "tail", "tiles")
"""Extents of an axis of a kernel beside its tile: 0, 1, less than a tile, one, more, several."""


# --- graphs -------------------------------------------------------------------------------------


def live(fusion: Fusion) -> list[TensorView]:
    """Return what the outputs are computed from, and they themselves, in order."""
    return sorted(reached(fusion.outputs, tensor_args), key=lambda tv: tv.number)


def computes(tv: TensorView) -> bool:
    """Tell whether an operation computes: it neither moves, nor copies, nor only converts."""
    forms = (Form.UNARY, Form.BINARY, Form.TERNARY, Form.MMA, Form.REDUCTION, Form.SCAN)
    return tv.op not in ("input", "set", "cast") and OPS[tv.op].form in forms


def has_diamond(fusion: Fusion) -> bool:
    """Tell whether two users of a computed tensor meet again, in one of them or behind."""
    behind = _behind(fusion)
    users = _users(fusion)
    return any(
        computes(tv) and any(behind[a] & behind[b] for a, b in _pairs(users[tv])) for tv in behind
    )


def has_norm(fusion: Fusion) -> bool:
    """Tell whether a reduction is broadcast back to what it was computed from.

    That is: a pointwise operation takes a descendant of the reduction, stretched along what was
    reduced, and another tensor with the same origin that has those axes.
    """
    behind = _behind(fusion)
    for reduction in (tv for tv in behind if _is(tv, Form.REDUCTION)):
        origin = {*ancestry(reduction)}
        for tv in behind[reduction] - {reduction}:
            if not OPS[tv.op].pointwise:
                continue
            args = tensor_args(tv)
            low = [a for a in args if a in behind[reduction] and _stretches(a, tv)]
            whole = [a for a in args if a not in low and not _stretches(a, tv)]
            if low and any(origin & {*ancestry(a)} for a in whole):
                return True
    return False


def _stretches(arg: TensorView, tv: TensorView) -> bool:
    return any(
        a.iter_type is IterType.BROADCAST and b.iter_type is not IterType.BROADCAST
        for a, b in zip(arg.logical, tv.logical, strict=True)
    )


def _users(fusion: Fusion) -> dict[TensorView, list[TensorView]]:
    users: dict[TensorView, list[TensorView]] = {tv: [] for tv in live(fusion)}
    for tv in users:
        for arg in dict.fromkeys(tensor_args(tv)):
            users[arg].append(tv)
    return users


def _behind(fusion: Fusion) -> dict[TensorView, set[TensorView]]:
    """Return each live tensor with all that is computed from it, and itself."""
    users = _users(fusion)
    behind: dict[TensorView, set[TensorView]] = {}
    for tv in reversed(users):
        behind[tv] = {tv}.union(*(behind[user] for user in users[tv]))
    return {tv: behind[tv] for tv in users}


def _pairs(some: list[TensorView]) -> Iterator[tuple[TensorView, TensorView]]:
    return ((a, b) for n, a in enumerate(some) for b in some[n + 1 :])


def _is(tv: TensorView, form: Form) -> bool:
    return tv.op != "input" and OPS[tv.op].form is form


# --- kernels ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a case: its schedule, how long its axes are, the CTAs that share a tile.

    And which operands of products are `computed` in registers, if any; and whether some are
    `indexed`, and lie where numbers in memory say.
    """

    kind: str
    params: Params
    lengths: tuple[str, ...]
    sharing: int
    computed: str = ""
    indexed: bool = False

    @property
    def way(self) -> str:
        """How the CTAs of a tile put together what they have."""
        return self.params.meet if _shares(self.params) and self.sharing > 1 else "alone"


@dataclass(frozen=True, slots=True)
class Plan:
    """A case as far as it is known before it is compiled: its class, and its kernels."""

    call: CallClass
    kernels: tuple[Kernel, ...]


def plan(case: Case) -> Plan:
    """Return how a case is cut into kernels; ScheduleError where its params cannot be had."""
    said = specs(case)
    call = classify(case.fusion, case.params, said)
    cut = list(zip(segments(case.fusion, call.choices), call.schedules, strict=True))
    values = extents_of(case.fusion, said, None)
    values = with_parts(((segment.domain, schedule) for segment, schedule in cut), values)
    kernels = []
    for segment, schedule in cut:
        tiles = tiled(segment.domain, schedule)
        extents = kernel_extents(tiles, schedule, values)
        lengths = tuple(map(_length, extents, tiles.tile))
        sharing = schedule.splits if _shares(schedule) else 1
        if isinstance(tiles, MatmulTiling):
            kind = "product"
            if _shares(schedule) and sharing > 1 and schedule.meet != "cluster":
                _, depths = sizes(segment.domain, loops_of(segment.domain, values))
                sharing = min(sharing, *(ceil(depth / schedule.tile[-1]) for depth in depths))
        elif isinstance(schedule, NormParams):
            kind = "rows"
        elif isinstance(schedule, ScanParams):
            kind = "scan"
        elif isinstance(tiles, ReductionTiling):
            kind = "reduction"
            steps = (ceil(extents[axis] / tiles.tile[axis]) for axis in tiles.reduced)
            sharing = min(sharing, prod(steps))
        else:
            kind = "pointwise"
        sharing = sharing if 0 not in extents else 0
        computed, indexed = _computed(segment.domain), bool(segment.domain.indices)
        kernels.append(Kernel(kind, schedule, lengths, sharing, computed, indexed))
    return Plan(call, tuple(kernels))


def _computed(domain: Domain) -> str:
    """Say which operands of a kernel's products are computed in registers; or of what they are.

    Of bytes that are "packed", or with numbers of neighbours along K ("grouped").
    """
    made = {product.a: product for product in domain.products if product.leaves}
    if len(made) > 1:
        return "several"
    shared = [of_one(domain, one, leaf) for one in made.values() for leaf in one.leaves]
    if max(shared, default=1) > 1:
        return "packed" if PACKED in shared else "grouped"
    return "".join("second" if one.exchanged else "first" for one in made.values())


def asks(case: Case) -> bool:
    """Tell whether a case asks that CTAs share a tile."""
    return (_shares(case.params) and case.params.splits > 1) or any(
        tv.meet is not None for tv in case.fusion.tensors
    )


def identity(case: Case, found: Plan, texts: tuple[str, ...]) -> Hashable:
    """Return what cases have in common whose kernels and class of extents are the same.

    Params that change nothing make no other kernel, so it is their CUDA texts that count.
    """
    return texts, tuple(kernel.lengths for kernel in found.kernels), case.kind


def _shares(params: Params) -> TypeGuard[ReductionParams | MatmulParams | AmpereParams]:
    return isinstance(params, ReductionParams | MatmulParams | AmpereParams)


def _length(extent: int, tile: int) -> str:
    if extent < 2:
        return LENGTHS[extent]
    if extent <= tile:
        return "part" if extent < tile else "tile"
    return "tail" if extent % tile else "tiles"


# --- the table ----------------------------------------------------------------------------------


def cells(case: Case, found: Plan) -> set[Cell]:
    """Return the cells that a case is in."""
    made = operations(case.fusion) | pairs(case.fusion) | _reduced(case.fusion)
    for kernel in found.kernels:
        made |= {("extents", kernel.kind, length) for length in kernel.lengths}
    return made | scheduled(found)


def scheduled(found: Plan) -> set[Cell]:
    """Return the cells of the schedules of kernels."""
    depths = {(k.params.family, DEPTHS[k.params.stages]) for k in found.kernels}
    ways = {(k.params.family, k.way) for k in found.kernels}
    which = {(k.params.family, k.computed) for k in found.kernels if k.computed}
    which |= {(k.params.family, "indexed") for k in found.kernels if k.indexed}
    named = (("schedule", depths), ("sharing", ways), ("computed", which))
    return {(name, *one) for name, some in named for one in some}


def operations(fusion: Fusion) -> set[Cell]:
    """Return the cells of single operations."""
    return {("operation", tv.op, str(_first(tv))) for tv in live(fusion) if tv.op != "input"}


def pairs(fusion: Fusion) -> set[Cell]:
    """Return the cells of two operations, one behind the other."""
    seen = [(arg, _form(tv)) for tv in live(fusion) for arg in tensor_args(tv)]
    seen += [(tv, "output") for tv in fusion.outputs]
    return {("pair", _form(_through(tv)), form) for tv, form in seen}


def _reduced(fusion: Fusion) -> set[Cell]:
    """Return the cells of pointwise operations whose results are reduced.

    What lies behind the ends of a row is one of them, too, and must change nothing.
    """
    made = ((_through(tensor_args(tv)[0]), tv) for tv in live(fusion) if _is(tv, Form.REDUCTION))
    return {
        ("reduced", arg.op, tv.op) for arg, tv in made if computes(arg) and OPS[arg.op].pointwise
    }


@cache
def legal() -> frozenset[Cell]:
    """Return every cell that a case can be in; each is drawn within a few when it is asked for."""
    made: set[Cell] = set()
    for op in OPS:
        made |= {("operation", op, str(dtype)) for dtype in DType if dtype in _taken(op)}
    forms = [form.value for form in Form]
    made |= {
        ("pair", a, b)
        for a, b in product(["input", *forms], [*forms, "output"])
        if b != Form.FACTORY.value and (a, b) != ("input", "output")
    }
    made |= {
        ("reduced", op, reduction)
        for op, reduction in product((op for op in OPS if OPS[op].pointwise), REDUCTIONS)
        if op not in ("set", "cast") and any(reduces(op, dtype, reduction) for dtype in DType)
    }
    for family in FAMILIES:
        plain = "direct/" in family or OBSERVES.get(family) == "threads"
        depths = ["1"] if plain else list(dict.fromkeys(DEPTHS.values()))
        made |= {("schedule", family, depth) for depth in depths}
        ways = _ways(family)
        made |= {("sharing", family, way) for way in ways if len(ways) > 1}
    for family in MATMUL_FAMILIES:
        which = ["first", "several"]
        which += [] if family in OBSERVES else ["second", "packed", "grouped", "indexed"]
        made |= {("computed", family, one) for one in which}
    kinds = ("pointwise", "reduction", "rows", "scan", "product")
    made |= {("extents", kind, length) for kind, length in product(kinds, LENGTHS)}
    return frozenset(made)


def _ways(family: str) -> list[str]:
    """Return how CTAs can share tiles in a family."""
    if family == "hopper-ping_pong" or "specialized" in family or family.startswith("bulk"):
        return ["alone"]
    if family in POINTWISE_FAMILIES:
        return ["alone", "vectorized", "tma", "last"]
    if family in OBSERVES:
        return ["alone", "vectorized", "scatter", "last"]
    if family in MATMUL_FAMILIES:
        more = ["cluster"] if family == "hopper-pipelined" else []
        return ["alone", "vectorized", "tma", "scatter", "last", *more]
    return ["alone"]


def _taken(op: str) -> frozenset[DType]:
    """Return the types of the first tensor that an operation takes, or makes of none."""
    match op:
        case "cast":
            return CASTS
        case "sum" | "prod" | "cumsum":
            return ALL
        case "mean":
            return FLOATS
        case "set":
            return MOVED
        case _:
            return OPS[op].allowed


def reduces(op: str, dtype: DType, reduction: str) -> bool:
    """Tell whether an operation takes a type, and a reduction what it then makes."""
    return dtype in _taken(op) and result_dtype(OPS[op], dtype) in _taken(reduction)


def _first(tv: TensorView) -> DType:
    """Return the type of the first tensor that an operation computes with; of none, its own."""
    args = tensor_args(tv)
    values = args[1:] if tv.op == "where" and tv.args[0] in args else args
    return values[0].dtype if values else tv.dtype


def _through(tv: TensorView) -> TensorView:
    """Look through axes of extent 1, which come and go."""
    while tv.op in ("broadcast", "squeeze"):
        (tv,) = tensor_args(tv)
    return tv


def _form(tv: TensorView) -> str:
    return tv.op if tv.op == "input" else OPS[tv.op].form.value


@dataclass
class Coverage:
    """How often each cell was drawn; `seen` are hashes of cases, `repeats` counts those again.

    `part` of so many, counted from 0, are the cells that are asked for first, which others look
    after less; `others` is how often drivers beside this one drew each.  `latest` are the cells of
    the case that was counted last, `size` the characters of its longest kernel.
    """

    part: tuple[int, int] = (0, 1)
    counts: Counter[Cell] = field(default_factory=Counter)
    others: Counter[Cell] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)
    repeats: int = 0
    latest: frozenset[Cell] = frozenset()
    size: int = 0
    _key: int = 0

    def knows(self, case: Case) -> bool:
        """Tell whether a case repeats another one; else count its cells."""
        self.latest, self.size = frozenset(), 0
        try:
            found = plan(case)
            texts = tuple(launch.source for launch in compiled(case).launches)
            key = hash(identity(case, found, texts))
        except Exception:  # whoever judges it will say so
            return False
        if key in self.seen:
            self.repeats += 1
            return True
        self.seen.add(key)
        self._key = key
        self.size = max(map(len, texts), default=0)
        self.latest = frozenset(cells(case, found))
        self.counts.update(self.latest)
        return False

    def forget(self) -> None:
        """Count the case that was counted last no more: nobody judges it."""
        self.counts.subtract(self.latest)
        self.seen.discard(self._key)

    def missing(self) -> list[Cell]:
        """Return the legal cells that no case was in."""
        return sorted(cell for cell in legal() if not self._many(cell))

    def wanting(self) -> list[Cell]:
        """Return the legal cells that fewer cases were in than are wanted."""
        return sorted(cell for cell in legal() if self._lacks(cell))

    def rarest(self, many: int, seed: int) -> tuple[Cell, ...]:
        """Return the cells of its part that were drawn least; of equally rare ones a seed chooses.

        Of all, once none of its own is wanted any more.  Those that were never drawn are there
        several times where they are few.
        """
        rng = Random(seed)
        first, step = self.part
        every = sorted(legal())
        own = every[first::step]
        own = own if any(map(self._lacks, own)) else every
        rng.shuffle(own)
        never = [cell for cell in own if not self._many(cell)]
        times = min(OFTEN, many // (2 * len(never))) if never else 0
        out = [cell for cell in never for _ in range(times)] or never[:many]
        drawn = sorted((cell for cell in own if self._many(cell)), key=self._many)
        return (*out, *drawn[: many - len(out)])

    def _many(self, cell: Cell) -> int:
        return self.counts[cell] + self.others[cell]

    def _lacks(self, cell: Cell) -> bool:
        return self._many(cell) < ENOUGH

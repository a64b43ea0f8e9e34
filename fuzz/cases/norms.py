"""Hypothesis strategies for fusions of rows, and for schedules of kernels that have whole ones.

Rows are reduced, and the results broadcast back to them.  Valid by construction.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.fusion.ir import Symbol, TensorView
from fuser.pipeline import tiled
from fuser.runtime.classify import classify
from fuser.schedule.norm import copied
from fuser.schedule.params import NormParams
from fuser.schedule.reduction import ReductionTiling
from fuser.schedule.segment import segments
from fuzz.cases.case import Case, specs, symbols

NORM_FAMILIES = ("norm-direct/direct", "norm-cp_async/direct", "norm-cluster/direct")
"""Every schedule family of kernels that have whole rows; the name of `NormParams.family`."""
IDIOMS = (
    "softmax", "log_softmax", "layer_norm", "rms_norm", "add_rms_norm", "softmax_backward",
    "layer_norm_dx", "var_mean",
)  # fmt: skip
"""What a fusion may be, if not drawn step by step."""
MAX_COLUMNS = 640
"""Columns of a tile, so that a simulation stays short."""
HELD = 24
"""Elements of a row per thread, at most, so that a compile does."""
EXACT = 1 << 22
"""Integers up to this are exact in f32, added up in any order."""


class _Rows:
    """Draws one fusion over an input of two or three axes, whose last one or two are rows."""

    def __init__(self, draw: st.DrawFn, *, exact: bool) -> None:
        self.draw, self.exact = draw, exact
        self.fd = FusionDefinition()
        self.ops = self.fd.ops
        self.dtype = draw(st.sampled_from(["f32", "bf16", "f16", "bf16"]))
        self.rank = draw(st.sampled_from([2, 2, 3, 1]))
        self.reduced = 2 if self.rank == 3 and draw(st.booleans()) else 1
        self.padded = draw(st.booleans())
        self.stored: list[TensorView] = []

    def whole(self, dtype: str | None = None) -> TensorView:
        """Return an input with all axes; rows are contiguous, what is around them may not be."""
        shape = [-1] * self.rank
        contiguity = [True] * self.rank
        if self.padded and self.rank > self.reduced:
            contiguity[self.rank - self.reduced - 1] = False
        return self.fd.define_tensor(shape, dtype or self.dtype, contiguity=contiguity)

    def columns(self) -> TensorView:
        """Return an input with the axes of a row, broadcast to all of them."""
        made = self.fd.define_tensor([-1] * self.reduced, self.dtype)
        kept = self.rank - self.reduced
        return self.ops.broadcast(made, [True] * kept + [False] * self.reduced)

    def rows(self) -> TensorView:
        """Return an input with a number for each row, broadcast; only where there are several."""
        made = self.fd.define_tensor([-1] * (self.rank - self.reduced), "f32")
        return self.back(made)

    def back(self, tv: TensorView) -> TensorView:
        """Broadcast what there is one of for each row."""
        kept = self.rank - self.reduced
        return self.ops.broadcast(tv, [False] * kept + [True] * self.reduced)

    def reduce(self, op: str, tv: TensorView) -> TensorView:
        """Reduce rows."""
        made: TensorView = getattr(self.ops, op)(
            tv, list(range(self.rank - self.reduced, self.rank))
        )
        return made

    def wide(self, tv: TensorView) -> TensorView:
        """Return a tensor in f32."""
        return tv if tv.dtype is DType.F32 else self.ops.cast(tv, "f32")

    def out(self, tv: TensorView) -> None:
        """Add an output, rounded to the type of the inputs now and then."""
        narrow = self.draw(st.booleans()) and tv.dtype is DType.F32 and self.dtype != "f32"
        if narrow or tv not in self.stored:
            self.fd.add_output(self.ops.cast(tv, self.dtype) if narrow else tv)
        self.stored += [] if narrow else [tv]

    def idiom(self, name: str) -> None:
        """Define one of `IDIOMS`."""
        ops = self.ops
        x = self.wide(self.whole())
        match name:
            case "softmax" | "log_softmax":
                less = ops.sub(x, self.back(self.reduce("max", x)))
                e = ops.exp(less)
                total = self.reduce("sum", e)
                if name == "softmax":
                    self.out(ops.div(e, self.back(total)))
                else:
                    self.out(ops.sub(less, self.back(ops.log(total))))
            case "layer_norm" | "var_mean":
                mean = self.reduce("mean", x)
                less = ops.sub(x, self.back(mean))
                var = self.reduce("mean", ops.mul(less, less))
                if name == "var_mean":
                    self.fd.add_output(var)
                    self.fd.add_output(mean)
                    return
                scale = ops.rsqrt(ops.add(var, 1e-5))
                made = ops.mul(less, self.back(scale))
                self.out(ops.add(ops.mul(made, self.columns()), self.columns()))
                if self.draw(st.booleans()):
                    self.fd.add_output(mean)
                    self.fd.add_output(scale)
            case "rms_norm" | "add_rms_norm":
                if name == "add_rms_norm":
                    x = ops.add(x, self.whole())
                    self.out(x)
                scale = ops.rsqrt(ops.add(self.reduce("mean", ops.mul(x, x)), 1e-6))
                self.out(ops.mul(ops.mul(x, self.back(scale)), self.columns()))
            case "softmax_backward":
                grad = self.wide(self.whole())
                total = self.reduce("sum", ops.mul(x, grad))
                self.out(ops.mul(x, ops.sub(grad, self.back(total))))
            case _:
                grad = ops.mul(self.wide(self.whole()), self.columns())
                one = self.rows() if self.rank > self.reduced else 0.5
                hat = ops.mul(x, one)
                a = self.reduce("mean", grad)
                b = self.reduce("mean", ops.mul(grad, hat))
                rest = ops.sub(ops.sub(grad, self.back(a)), ops.mul(hat, self.back(b)))
                self.out(ops.mul(rest, one))

    def steps(self) -> None:
        """Define a few reductions, each of what the one before was broadcast back to."""
        ops, draw = self.ops, self.draw
        x, size = self.whole(), 4
        x = x if draw(st.booleans()) and draw(st.booleans()) else self.wide(x)
        for _ in range(draw(st.integers(1, 3))):
            values = x
            if draw(st.booleans()):
                values = getattr(ops, draw(st.sampled_from(["abs", "neg", "relu"])))(values)
            fits = not self.exact or size * MAX_COLUMNS <= EXACT
            ways = ["max", "min", *(["sum"] if fits else []), *([] if self.exact else ["mean"])]
            op = draw(st.sampled_from(ways))
            row = self.reduce(op, values)
            size *= MAX_COLUMNS if op == "sum" else 1
            other = self.wide(self.whole()) if draw(st.booleans()) and draw(st.booleans()) else x
            x = getattr(ops, draw(st.sampled_from(["sub", "add", "maximum"])))(
                other, self.back(row)
            )
            size *= 2
            if draw(st.booleans()) and draw(st.booleans()):
                self.fd.add_output(row)
            if draw(st.booleans()) and draw(st.booleans()):
                self.out(x)
        self.out(x)


@st.composite
def norm_fusions(draw: st.DrawFn, *, exact: bool = False) -> Fusion:
    """Fusions that reduce rows and use the results for each element of them.

    Shrinks towards x - max(x) in f32.
    """
    rows = _Rows(draw, exact=exact)
    if exact or draw(st.booleans()):
        rows.steps()
    else:
        rows.idiom(draw(st.sampled_from(IDIOMS)))
    return rows.fd.fusion()


@st.composite
def plain_rows(draw: st.DrawFn, *, exact: bool = False) -> Fusion:
    """Fusions that add rows up and do nothing else.  Shrinks towards a sum in bf16."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], draw(st.sampled_from(["bf16", "f16", "f32"])), draw(gaps()))
    source = fd.ops.abs(x) if draw(st.booleans()) else x
    made = "sum" if exact or draw(st.booleans()) else "mean"
    fd.add_output(getattr(fd.ops, made)(source, [1]))
    return fd.fusion()


def gaps() -> st.SearchStrategy[list[bool]]:
    """Whether rows lie one behind the other."""
    return st.sampled_from([[True, True], [False, True]])


def sliding(fusion: Fusion, params: NormParams) -> NormParams:
    """Return params whose rows slide, by vectors of 16 bytes, if they are loaded by one CTA."""
    if params.load != "direct" or params.cluster > 1:
        return params
    (rows, cols), wide = params.tile, 16 // _first(fusion).dtype.nbytes
    cols += -cols % (params.lanes * wide)
    rows = rows if rows * cols <= HELD * 32 * params.warps else 32 * params.warps // params.lanes
    return replace(params, tile=(rows, cols), vector=wide, slide=True)


@st.composite
def norm_params(draw: st.DrawFn, *, families: tuple[str, ...] = NORM_FAMILIES) -> NormParams:
    """Schedules of kernels that have whole rows.  Shrinks towards a warp a row, one of them."""
    family = draw(st.sampled_from(families))
    lanes = draw(st.sampled_from([32, 64, 8, 1, 4, 128, 16, 2, 96]))
    warps = draw(st.sampled_from([n for n in (1, 2, 4, 3, 6) if 32 * n % lanes == 0]))
    vector = draw(st.sampled_from([1, 2, 4, 8]))
    ctas = draw(st.sampled_from([2, 4, 8])) if family == "norm-cluster/direct" else 1
    most = max(1, min(MAX_COLUMNS // (lanes * vector * ctas), HELD // vector))
    cols = lanes * vector * draw(st.integers(1, min(most, 5)))
    each = max(1, min(3, HELD * lanes // cols))
    ring = family == "norm-cp_async/direct" or (ctas > 1 and draw(st.booleans()))
    stages = draw(st.integers(1, 4)) if ring else 1
    recompute = draw(st.booleans())
    return NormParams(
        (32 * warps // lanes * draw(st.integers(1, each)), cols),
        vector,
        warps,
        draw(st.sampled_from([None, 1, 2, 3])),
        "cp_async" if ring else "direct",
        "direct",
        stages,
        draw(st.integers(0, stages - 1)),
        lanes=lanes,
        recompute=recompute,
        resident=draw(st.sampled_from([1, 1, 2, 4])),
        reload=ring and recompute and draw(st.booleans()),
        hold=draw(st.booleans()),
        cluster=ctas,
        overlay=draw(st.booleans()),
    )


@st.composite
def norm_extents(draw: st.DrawFn, fusion: Fusion, params: NormParams) -> dict[str, int]:
    """Values of every symbol: rows that fill a tile and such that do not, of 1, of few, none.

    Shrinks towards rows of 1.
    """
    rows, cols = params.tile[0], params.columns
    out: dict[str, int] = {}
    left = cols
    around = [*_around(fusion)]
    for name in reversed(_along(fusion)):
        first = left == cols
        some = {1, 2, 3, left, left - 1, left - 8, left // 2, left // 3 * 2, left // 4}
        edges = sorted(n for n in some if 1 <= n <= left)
        value = draw(st.sampled_from(edges[::-1]) if first else st.sampled_from(edges))
        out[name] = draw(st.sampled_from([value] * 9 + [0]))
        left //= max(out[name], 1)
    for name in around:
        many = [rows, rows + 1, 1, 2 * rows, 3 * rows - 1, 5, rows * (params.stages + 1), 0]
        out[name] = draw(st.sampled_from([min(n, 40) for n in many]))
    left = cols
    for name in symbols(fusion):  # rows of another length than those that are reduced
        if name not in out:
            out[name] = draw(st.sampled_from([n for n in (1, 5, 16, 33) if n <= left]))
            left //= out[name]
    return out


def able(case: Case) -> Case:
    """Return the case with direct loads where cp.async can copy no rows of some kernel."""
    params = case.params
    if not isinstance(params, NormParams) or params.load == "direct":
        return case
    direct = replace(params, load="direct", stages=1, prefetch=0, reload=False)
    made = classify(case.fusion, direct, specs(case))
    for segment, shapes, schedule in zip(
        segments(case.fusion, made.choices), made.kernels, made.schedules, strict=True
    ):
        if isinstance(schedule, NormParams):
            tiles = tiled(segment.domain, schedule)
            assert isinstance(tiles, ReductionTiling), "a kernel that has whole rows"
            if not copied(tiles, schedule, shapes):
                return replace(case, params=direct)
    return case


def _first(fusion: Fusion) -> TensorView:
    return next(tv for tv in fusion.inputs if isinstance(tv, TensorView))


def _along(fusion: Fusion) -> list[str]:
    """Return the extents of a row, by what is reduced."""
    dims = next(
        dict(tv.attrs)["dims"] for tv in fusion.tensors if tv.op in ("max", "min", "sum", "mean")
    )
    return [str(_first(fusion).shape[int(axis)]) for axis in dims]


def _around(fusion: Fusion) -> list[str]:
    every = [str(n) for n in _first(fusion).shape if isinstance(n, Symbol)]
    rows = _along(fusion)
    return [name for name in dict.fromkeys(every) if name not in rows]

"""Graphs over one frame of axes: blocks, then what each of them computes.

Blocks are diamonds, reductions that are broadcast back, and idioms of models; an idiom may be
damaged, so that nothing of it can be taken for granted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.definition import FusionDefinition, Ops, TensorView
from fuser.fusion.ops import OPS, Rule
from fuser.fusion.promotion import promote
from fuser.fusion.recorder import Recorder
from fuzz.cases import draft as on
from fuzz.cases.case import SMALL
from fuzz.cases.draft import LARGEST, POINTWISE, Draft, rarely

BLOCKS = ("step", "diamond", "normalize", "norm", "idiom", "join") * 4 + ("many",)
"""What a skeleton is made of, the simplest first; many inputs once in 25 times."""
MOST = 5
"""Blocks of a fusion, at most."""
COMBINE = ("add", "mul", "sub", "maximum", "minimum", "where", "atan2", "div")
"""Operations in which branches meet, the simplest first; inexact ones last."""
_SAME = (Rule.PROMOTED, Rule.FLOAT)
"""Rules by which the result of an operation on f32 is f32."""
MANY = (5, 9, 17)
"""Inputs that are combined one after the other, or products, where there are to be many."""
MOST_CALLS = 12
"""Operations of an idiom, among which one is damaged."""


def extend(draw: st.DrawFn, draft: Draft, least: int, most: int) -> None:
    """Add so many blocks.  Shrinks towards the least number of steps."""
    for number in range(most):
        if number >= least and not draw(st.sampled_from([False, True, True, True, True])):
            return
        # What a block is made of is drawn right behind it, so that both go when a failure shrinks.
        grow(draw, draft, draw(st.sampled_from(BLOCKS)))


def grow(draw: st.DrawFn, draft: Draft, block: str) -> TensorView:
    """Add one block on tensors of the draft."""
    if block == "step":
        return on.step(draw, draft)
    a = draw(st.sampled_from(draft.live[::-1]))
    if block == "many":
        return _many(draw, draft, a)
    if block == "join":
        return combine(draw, draft, a, draw(st.sampled_from(draft.live)))
    if block == "diamond":
        return _diamond(draw, draft, a)
    if block in ("idiom", "norm") and not draft.exact and draft.allows("idioms"):
        return _idiom(draw, draft, a, [*NORMS, *(ACTIVATIONS if block == "idiom" else ())])
    return normalize(draw, draft, a) if draft.allows("reductions") else _diamond(draw, draft, a)


def combine(draw: st.DrawFn, draft: Draft, a: TensorView, b: TensorView) -> TensorView:
    """Add one operation that takes both tensors, and nothing else."""
    common = promote([a.dtype, b.dtype], [])
    able = [
        op
        for op in COMBINE
        if (common in OPS[op].allowed and not (draft.exact and OPS[op].rule is Rule.FLOAT))
    ]
    op = draw(st.sampled_from(able))
    sizes = [draft.size[a.name], draft.size[b.name]]
    size = on.largest(op, sizes)
    if draft.exact and size > LARGEST:
        op, size = "maximum", max(sizes)
    if op == "where":
        flag = draft.fd.ops.lt(a, b)
        return draft.add(draft.fd.ops.where(flag, a, b), size)
    return draft.add(getattr(draft.fd.ops, op)(a, b), size)


def _many(draw: st.DrawFn, draft: Draft, a: TensorView) -> TensorView:
    """Combine a tensor with many inputs, which a thread's registers may not hold all at once."""
    able = [op for op in ("maximum", "minimum", "add") if a.dtype in OPS[op].allowed]
    if not able:
        return combine(draw, draft, a, draw(st.sampled_from(draft.live)))
    op = draw(st.sampled_from(able))
    for _ in range(draw(st.sampled_from(MANY))):
        b = on.take_input(draw, draft, dtypes=[a.dtype], whole=draw(st.booleans()))
        size = on.largest(op, [draft.size[a.name], draft.size[b.name]])
        if draft.exact and size > LARGEST:
            return a
        a = draft.add(getattr(draft.fd.ops, op)(a, b), size)
    return a


def _diamond(draw: st.DrawFn, draft: Draft, a: TensorView) -> TensorView:
    """Compute something of two or three branches of one tensor, and bring them together."""
    shared = _some(draw, draft, a, [0, 1, 1, 1])
    made = _some(draw, draft, shared, [0, 1, 2, 1])
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        made = combine(draw, draft, made, _some(draw, draft, shared, [0, 1, 2, 1]))
    return made


def _some(draw: st.DrawFn, draft: Draft, a: TensorView, many: list[int]) -> TensorView:
    """Add operations one behind the other."""
    for _ in range(draw(st.sampled_from(many))):
        a = on.operation(draw, draft, a)
    return a


def normalize(draw: st.DrawFn, draft: Draft, a: TensorView) -> TensorView:
    """Reduce what is computed of a tensor, and combine the result with the tensor."""
    if a.op == "input" and rarely(draw):
        a = on.operation(draw, draft, a)
    reduced = on.reduce(draw, draft, on.operation(draw, draft, a) if rarely(draw) else a)
    if rarely(draw):
        reduced = on.operation(draw, draft, reduced)
    return combine(draw, draft, a, reduced)


# --- idioms -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """What an idiom is made of: a tensor in floats, what it is reduced along, inputs to come."""

    draw: st.DrawFn
    draft: Draft
    ops: Ops
    x: TensorView
    along: list[int]

    def whole(self) -> TensorView:
        """Take an input with all axes, in f32."""
        return self._wide(on.take_input(self.draw, self.draft, dtypes=self._floats, whole=True))

    def columns(self) -> TensorView:
        """Take an input with the axes that are reduced."""
        return self._wide(self._part(self.along, self._floats))

    def rows(self, dtype: DType = DType.F32) -> TensorView:
        """Take an input with the other axes."""
        return self._part([n for n in range(self.x.rank) if n not in self.along], [dtype])

    def reduce(self, op: str, tv: TensorView) -> TensorView:
        """Reduce, and keep axes of 1."""
        made: TensorView = getattr(self.ops, op)(tv, self.along, keepdim=True)
        return made

    def index(self) -> TensorView:
        """Count along the last axis that is reduced."""
        axis = self.along[-1]
        line = self.ops.iota(self.draft.axes[axis])
        return self.ops.broadcast(line, [n != axis for n in range(self.x.rank)])

    @property
    def _floats(self) -> list[DType]:
        return [d for d in self.draft.dtypes() if d.is_float and d is not DType.F64] or [DType.F32]

    def _part(self, axes: list[int], dtypes: list[DType]) -> TensorView:
        dtype = self.draw(st.sampled_from(dtypes))
        made = self.draft.fd.define_tensor([self.draft.axes[n] for n in axes], dtype)
        if len(axes) < self.x.rank:
            made = self.ops.broadcast(made, [n not in axes for n in range(self.x.rank)])
        return self.draft.add(made, SMALL)

    def _wide(self, tv: TensorView) -> TensorView:
        return tv if tv.dtype is DType.F32 else self.ops.cast(tv, "f32")


def _softmax(g: Given) -> TensorView:
    return g.ops.softmax(g.x, g.along)


def _log_softmax(g: Given) -> TensorView:
    return g.ops.log_softmax(g.x, g.along)


def _layer_norm(g: Given) -> TensorView:
    return g.ops.add(g.ops.mul(g.ops.layer_norm(g.x, g.along), g.columns()), g.columns())


def _rms_norm(g: Given) -> TensorView:
    return g.ops.mul(g.ops.rms_norm(g.x, g.along, None, 1e-6), g.columns())


def _add_rms_norm(g: Given) -> TensorView:
    x = g.draft.add(g.ops.add(g.x, g.whole()), SMALL)  # which nobody uses: an output
    return g.ops.mul(g.ops.rms_norm(x, g.along, None, 1e-6), g.columns())


def _softmax_backward(g: Given) -> TensorView:
    return g.ops.softmax_backward(g.whole(), g.x, g.along)


def _log_softmax_backward(g: Given) -> TensorView:
    return g.ops.log_softmax_backward(g.whole(), g.x, g.along)


def _layer_norm_dx(g: Given) -> TensorView:
    ops, grad, one = g.ops, g.ops.mul(g.whole(), g.columns()), g.rows()
    hat = ops.mul(g.x, one)
    b = g.reduce("mean", ops.mul(grad, hat))
    off = ops.sub(ops.sub(grad, g.reduce("mean", grad)), ops.mul(hat, b))
    return ops.mul(off, one)


def _rms_norm_dx(g: Given) -> TensorView:
    ops, grad, one = g.ops, g.whole(), g.rows()
    hat = ops.mul(g.x, one)
    return ops.mul(ops.sub(grad, ops.mul(hat, g.reduce("mean", ops.mul(grad, hat)))), one)


def _bias_act_residual(g: Given) -> TensorView:
    return g.ops.add(g.ops.gelu_tanh(g.ops.add(g.x, g.columns())), g.whole())


def _gated(g: Given) -> TensorView:
    return g.ops.mul(g.ops.silu(g.x), g.whole())


def _quantized(g: Given) -> TensorView:
    """Quantise by the largest magnitude of a row; the scale is an output."""
    ops, whole = g.ops, g.draw(st.booleans()) and g.draft.allows("8 bits")
    most = ops.maximum(g.reduce("max", ops.abs(g.x)), 1e-8)
    scale = g.draft.add(ops.div(most, 127.0 if whole else 448.0), SMALL)
    if whole:
        small = ops.cast(ops.clamp(ops.round(ops.div(g.x, scale)), -127.0, 127.0), "i8")
    else:
        small = ops.clamp(ops.div(g.x, scale), -448.0, 448.0)
        small = ops.cast(small, "f8e4m3" if g.draft.allows("8 bits") else "bf16")
    if g.draw(st.booleans()):
        g.draft.add(ops.set(g.x), SMALL)  # an output
    return ops.mul(ops.cast(small, "f32"), scale)


def _scores(g: Given) -> TensorView:
    """Scale, mask what lies ahead, and normalise rows."""
    ops = g.ops
    if g.x.rank < 2:
        return ops.softmax(ops.mul(g.x, 0.125), g.along)
    row, column = ops._indices(g.x)
    ahead = ops.where(ops.le(column, row), ops.mul(g.x, 0.125), float("-inf"))
    return ops.softmax(ahead, g.along)


def _cross_entropy(g: Given) -> TensorView:
    """Loss of each row against a class of the last axis."""
    ops = g.ops
    hit = ops.eq(g.index(), g.rows(DType.I64))
    return ops.sub(ops.logsumexp(g.x, g.along, True), g.reduce("sum", ops.where(hit, g.x, 0.0)))


def _rope(g: Given) -> TensorView:
    """Turn halves of an axis whose extent is known; else pairs of whole tensors."""
    ops, x = g.ops, g.x
    even = [n for n, axis in enumerate(x.shape) if isinstance(axis, int) and axis and axis % 2 == 0]
    if even:
        half, axis = int(str(x.shape[even[-1]])) // 2, even[-1]
        turned = ops.cat([ops.neg(ops.slice(x, axis, half)), ops.slice(x, axis, 0, half)], axis)
    else:
        turned = ops.neg(g.whole())
    return ops.add(ops.mul(x, g.columns()), ops.mul(turned, g.columns()))


def _group_norm(g: Given) -> TensorView:
    """Normalise groups of an axis whose extent is known; else rows."""
    known = [n for n, axis in enumerate(g.x.shape) if isinstance(axis, int) and axis > 3]
    if not known:
        return g.ops.layer_norm(g.x, g.along)
    axis = known[-1]
    inner = g.draw(
        st.sampled_from([n for n in (2, 4) if int(str(g.x.shape[axis])) % n == 0] or [1])
    )
    made = g.ops.layer_norm(g.ops.unflatten(g.x, axis, [-1, inner]), [axis + 1])
    return g.ops.flatten(made, axis, axis + 1)


Idiom = Callable[[Given], TensorView]
ACTIVATIONS: tuple[Idiom, ...] = (_bias_act_residual, _gated, _rope)
NORMS: tuple[Idiom, ...] = (
    _softmax, _rms_norm, _layer_norm, _log_softmax, _add_rms_norm, _softmax_backward,
    _log_softmax_backward, _layer_norm_dx, _rms_norm_dx, _quantized, _scores, _cross_entropy,
    _group_norm,
)  # fmt: skip
"""What models are made of, the simplest first: without, and with, a reduction of rows."""


def _idiom(draw: st.DrawFn, draft: Draft, a: TensorView, some: list[Idiom]) -> TensorView:
    """Add an idiom on a tensor, one in four damaged."""
    of = draw(st.sampled_from(some))
    last = [n for n in range(a.rank) if n not in on.ones(a)] if draft.along is None else draft.along
    if not last or a.dtype.is_f8:
        return _diamond(draw, draft, a)
    along = list(last[-1:])
    if len(last) > 1 and (draft.along is not None or rarely(draw)):
        along = list(last[-2:] if draft.along is None else last)
    ops = draft.fd.ops
    if rarely(draw):
        at, drawn = draw(st.integers(0, MOST_CALLS)), draw(st.sampled_from(POINTWISE))
        ops = Ops(cast(Recorder, Damaged(draft.fd, at, drawn)))
    wide = a if a.dtype is DType.F32 else draft.fd.ops.cast(a, "f32")
    made = of(Given(draw, draft, ops, wide, along))
    return draft.add(made, SMALL)


class Damaged:
    """The recorder of a definition, which takes one pointwise operation for another.

    It is the one `at` that place; the other takes as many operands, and gives the same type.
    """

    def __init__(self, fd: FusionDefinition, at: int, drawn: str) -> None:
        self._recorder = fd.ops._recorder
        self._at, self._drawn = at, drawn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)

    def pointwise(self, op: str, *operands: object) -> TensorView:
        """Record an operation, or another one."""
        self._at -= 1
        if self._at == -1 and OPS[op].rule in _SAME:
            many = len(operands)
            able = [o for o in POINTWISE if OPS[o].arity == many and OPS[o].rule in _SAME]
            number = POINTWISE.index(self._drawn)
            other = self._drawn if self._drawn in able else able[number % len(able)]
            with suppress(FusionError):
                return self._recorder.pointwise(other, *operands)
        return self._recorder.pointwise(op, *operands)

"""What a case returned, compared with the reference; which of its kernels is wrong itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import torch

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import Fusion, Symbol, TensorView
from fuser.fusion.ir import indexed_axis, tensor_args
from fuser.fusion.ops import unmoved
from fuser.pipeline import Program, build
from fuser.runtime.binding import bind
from fuser.runtime.call import Spec, with_parts, with_views
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import Params
from fuser.schedule.views import viewed
from fuzz.campaign.child import at_work
from fuzz.cases.case import Case, Value, specs
from fuzz.cases.draft import keeps_whole
from oracles import additions as walks
from oracles.differential import compare
from oracles.reference.evaluate import Expected, evaluate
from oracles.reference.evaluate import bind as sizes_of
from oracles.reference.products import Partials
from oracles.verdict import Finding, Status, Verdict


def partials(params: Params) -> Partials | None:
    """Return how CTAs hand sums on under a schedule, if that rounds them."""
    if not isinstance(params, MatmulParams | AmpereParams) or params.partial == "f32":
        return None
    return Partials(DType.of(params.partial), params.splits)


_ADDED_UP = ("sum", "mean", "mma")
_built = lru_cache(maxsize=8)(build)
"""A kernel is judged at many extents."""


def additions(case: Case, program: Program | None = None) -> int | None:
    """Return how many additions the kernels of a case put any number through.

    They are those of `program`, or compiled.  None where nothing is added up, where it is not
    known, and where the compiler refuses.
    """
    if not any(tv.op in _ADDED_UP for tv in case.fusion.tensors):
        return None
    lying = specs(case)
    try:
        if program is None:
            program = _built(case.fusion, case.params, classify(case.fusion, case.params, lying))
        bound = bind(program, lying, sms=SM_90A.sms)
    except (FusionError, ScheduleError):
        return None
    return walks.longest([(one.launch.kernel, one.grid, one.params) for one in bound])


def compared(
    case: Case, given: list[Value], got: Sequence[torch.Tensor], program: Program | None = None
) -> Verdict:
    """Compare what a case returned with the reference; sums that are exact must be equal.

    On integers all of them are, unless an operation makes other numbers of them: a case that is
    made smaller may have any.  `program` is what has run, if it is at hand.
    """
    wanted = expected(case, given, program)
    at_work("differential")
    return compare(wanted, list(got), exact=exactly(case))


def expected(
    case: Case,
    given: list[Value],
    program: Program | None = None,
    *,
    by: Case | None = None,
) -> list[Expected]:
    """Return what the reference says that a case returns.

    Where the kernels of another call compute it, at larger extents, theirs are the additions: `by`.
    """
    at_work("reference")
    many = additions(by or case, program)
    return evaluate(case.fusion, given, partials(case.params), many)


def exactly(case: Case) -> bool:
    """Tell whether all sums of a case are exact, in any order."""
    exact = case.kind == "integers" and partials(case.params) is None
    return exact and keeps_whole(case.fusion)


def blamed(
    program: Program,
    memory: Mapping[str, Value],
    extents: Mapping[str, int],
    partials: Partials | None = None,
    longest: int | None = None,
) -> Iterator[Finding]:
    """Yield a finding for every kernel whose outputs are wrong for its inputs.

    Parameters
    ----------
    program : Program
        Whose kernels have run.
    memory : mapping
        Inputs, outputs and intermediates as the last kernel has left them, by name.
    extents : mapping
        Value of every symbol, by name.
    partials : Partials, optional
        How sums of products go from CTA to CTA, where that rounds them.
    longest : int, optional
        How many additions the kernels put any number through.

    Notes
    -----
    What tiles leave of a reduction is not looked at, nor are means of such parts.
    """
    values = {Symbol(name): n for name, n in extents.items()}
    values = with_parts(((one.tiling.domain, one.params) for one in program.launches), values)
    known = viewed(program.fusion, program.shapes.choices)
    whole = {name: one for name, one in memory.items() if isinstance(one, torch.Tensor)}
    dtypes = {tv.name: tv.dtype for tv in (*program.fusion.tensors, *program.intermediates)}
    specs = {
        name: Spec(tuple(one.shape), tuple(one.stride()), 0, dtypes[name])
        for name, one in whole.items()
    }
    seen = with_views(known, specs, values)

    def tensor(tv: TensorView) -> torch.Tensor:
        lies = whole[known.views[tv.name].whole if tv.name in known.views else tv.name]
        spec = seen[tv.name]
        first = lies.storage_offset() + spec.address // lies.element_size()
        axis = indexed_axis(tv)
        if axis is None:
            return lies.as_strided(spec.shape, spec.strides, first)
        many, (index,) = spec.shape[axis], tensor_args(tv)
        places = tensor(unmoved(index)).flatten().long()
        every = lies.as_strided(spec.shape, spec.strides, first)
        made = every.index_select(axis, places.clamp(0, many - 1))
        there = ((places >= 0) & (places < many)).view(-1, *[1] * (tv.rank - 1 - axis))
        return torch.where(there, made, torch.zeros_like(made))

    cut = segments(program.fusion, program.shapes.choices)
    for segment, launch in zip(cut, program.launches, strict=True):
        outputs = tuple(tv for tv in segment.fusion.outputs if not tv.parts)
        part = replace(segment.fusion, outputs=outputs)
        given = [
            tensor(arg) if isinstance(arg, TensorView) else memory[arg.name] for arg in part.inputs
        ]
        means = any(tv.count for tv in part.tensors if tv.op != "input")
        if not outputs or means or _free(part, given):
            continue
        wanted = evaluate(part, given, partials, longest)
        names = [tv.name for tv in outputs]
        verdict = compare(wanted, [tensor(tv) for tv in outputs], exact=False, names=names)
        if verdict.status is Status.FAIL:
            for finding in verdict.findings:
                yield replace(finding, where=f"{finding.where} of kernel {launch.kernel.name}")


def _free(fusion: Fusion, given: list[Value]) -> bool:
    """Tell whether no input has some extent, which the reference then does not know."""
    known = sizes_of(fusion, given)
    extents = (axis.extent for tv in fusion.tensors for axis in tv.logical)
    return any(isinstance(n, Symbol) and n not in known for n in extents)

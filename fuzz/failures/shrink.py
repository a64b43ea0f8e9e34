"""A least case: what remains of a failing one when all is left out that it fails without.

Works on any case, drawn or not.  It leaves out whole kernels first, then operations, and then makes
the extents and the params simpler; what is tried is judged by the oracle that found the failure
alone, and must fail in the same way.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import Fusion, TensorView, to_python
from fuser.fusion.ops import OPS, Form
from fuser.schedule.params import ReductionParams
from fuser.schedule.segment import segments
from fuzz.cases.case import Case, compiled, from_text, symbols, to_text

Fails = Callable[[Case], bool]
Step = Callable[[Case], Iterable[Case]]


def least(case: Case, fails: Fails, steps: Sequence[Step] | None = None) -> Case:
    """Return a case that fails, too, and of which no step here makes a smaller one that does.

    Steps are all of `STEPS` where none are given.  `fails` is asked about each candidate once; it
    may raise to end the search, and has then seen the least so far.
    """
    seen = {to_text(case)}
    before = None
    while before is not case:
        before = case
        for step in STEPS if steps is None else steps:
            case = _repeated(step, case, fails, seen)
    return case


def _repeated(step: Step, case: Case, fails: Fails, seen: set[str]) -> Case:
    """Take a step until nothing that it proposes fails."""
    while True:
        for smaller in step(case):
            text = to_text(smaller)
            if text not in seen:
                seen.add(text)
                if fails(smaller):
                    case = smaller
                    break
        else:
            return case


# --- the fusion ---------------------------------------------------------------------------------


def one_kernel(case: Case) -> Iterator[Case]:
    """Keep one of the kernels: what others give it is an input, what it gives others an output."""
    try:
        program = compiled(case)
    except Exception:
        return
    if len(program.launches) == 1:
        return
    for segment in segments(program.fusion, program.shapes.choices):
        given = {tv.held for tv in segment.fusion.inputs if isinstance(tv, TensorView)}
        made = {tv.held for tv in segment.fusion.outputs}
        yield from _rebuilt(case, outputs=made, inputs=given - made)


def one_output(case: Case) -> Iterator[Case]:
    """Compute one tensor, the first ones first, and nothing behind it."""
    made = [tv for tv in case.fusion.tensors if tv.op != "input"]
    for tv in made:
        if len(made) > 1 or len(case.fusion.outputs) > 1:
            yield from _rebuilt(case, outputs={tv.name})


def fewer_outputs(case: Case) -> Iterator[Case]:
    """Leave out one of several outputs, the last ones first."""
    names = {tv.name for tv in case.fusion.outputs}
    for tv in reversed(case.fusion.outputs):
        if len(names) > 1:
            yield from _rebuilt(case, outputs=names - {tv.name})


def given(case: Case) -> Iterator[Case]:
    """Take a tensor that was computed as an input, the last ones first."""
    for tv in reversed(case.fusion.tensors):
        if tv.op != "input" and tv not in case.fusion.outputs:
            yield from _rebuilt(case, inputs={tv.name})


def left_out(case: Case) -> Iterator[Case]:
    """Leave an operation out: what it took stands for what it gave."""
    for tv in case.fusion.tensors:
        for arg in tv.args:
            if isinstance(arg, TensorView) and (arg.shape, arg.dtype) == (tv.shape, tv.dtype):
                yield from _rebuilt(case, instead={tv.name: arg.name})


def plain_operations(case: Case) -> Iterator[Case]:
    """Compute something plain instead: relu, add, and inputs in their usual order."""
    for tv in case.fusion.tensors:
        form = OPS[tv.op].form if tv.op in OPS else None
        plain = {Form.UNARY: "relu", Form.BINARY: "add"}.get(form) if form else None
        if plain and tv.op != plain and not tv.attrs and len({a.dtype for a in tv.args}) == 1:
            words = ", ".join(map(str, tv.args))
            yield from _rebuilt(case, calls={tv.name: f"fd.ops.{plain}({words})"})
        if tv.meet is not None:
            yield from _rebuilt(case, asked=False)
        if tv.op == "input" and not tv.is_row_major:
            yield from _rebuilt(case, inputs={tv.name})


def plain_types(case: Case) -> Iterator[Case]:
    """Take another type everywhere: f32, or one of 16 bits."""
    text = to_python(case.fusion)
    own = {str(tv.dtype) for tv in case.fusion.tensors}
    for dtype in ("f32", "bf16"):
        for other in sorted(own - {dtype, "f32"}):
            yield from _with_fusion(case, text.replace(f'dtype="{other}"', f'dtype="{dtype}"'))


def fewer_axes(case: Case) -> Iterator[Case]:
    """Leave an axis out of every tensor, where no operation names axes."""
    tensors = case.fusion.tensors
    rank = tensors[0].rank if tensors else 0
    if rank < 2 or any(tv.rank != rank or tv.attrs for tv in tensors):
        return
    for axis in range(rank):
        calls = {}
        for tv in tensors:
            if tv.op == "input":
                calls[tv.name] = _declared(tv, keep=[n for n in range(rank) if n != axis])
        yield from _rebuilt(case, calls=calls)


def _declared(tv: TensorView, keep: Iterable[int] | None = None) -> str:
    axes = range(tv.rank) if keep is None else keep
    shape = [n if isinstance(n, int) else n.name for n in (tv.shape[axis] for axis in axes)]
    return f"fd.define_tensor(shape={shape!r}, dtype={str(tv.dtype)!r})"


def _rebuilt(
    case: Case,
    *,
    outputs: Set[str] | None = None,
    inputs: Set[str] = frozenset(),
    instead: dict[str, str] | None = None,
    calls: dict[str, str] | None = None,
    asked: bool = True,
) -> Iterator[Case]:
    """Yield the case with some tensors as inputs, or others in their place, if that is a fusion.

    Only what the outputs need is kept; a tensor that is an output and now an input is none.
    """
    tensors = {tv.name: tv for tv in case.fusion.tensors}
    instead = instead or {}
    wanted = outputs if outputs is not None else {tv.name for tv in case.fusion.outputs}
    wanted = {instead.get(name, name) for name in wanted} - set(inputs)
    text = to_python(case.fusion)
    new = {name: _declared(tensors[name]) for name in inputs if name in tensors} | (calls or {})
    lines: list[tuple[str, str, set[str]]] = []  # what a line defines, its text, what it takes
    for stmt in ast.parse(text).body:
        match stmt:
            case ast.Assign([ast.Name(name)], value) if name not in ("fd", "fusion"):
                value = ast.parse(new[name], mode="eval").body if name in new else value
                for node in ast.walk(value):
                    if isinstance(node, ast.Name):
                        node.id = instead.get(node.id, node.id)
                taken = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
                lines.append((name, f"{name} = {ast.unparse(value)}", taken))
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name)))) if name != "fd" and asked:
                lines.append((name, ast.unparse(stmt), set()))
            case _:
                pass
    needed = set(wanted)
    for name, _, taken in reversed(lines):
        if name in needed:
            needed |= taken
    kept = [line for name, line, _ in lines if name in needed]
    ends = [f"fd.add_output({name})" for name in tensors if name in wanted]
    first = ["from fuser.fusion.definition import FusionDefinition", "fd = FusionDefinition()"]
    yield from _with_fusion(case, "\n".join([*first, *kept, *ends, "fusion = fd.fusion()"]))


def _with_fusion(case: Case, text: str) -> Iterator[Case]:
    """Yield the case with the fusion of a text, if it is one."""
    names: dict[str, Any] = {}
    try:
        exec(text, names)
    except (FusionError, ScheduleError):
        return
    fusion: Fusion = names["fusion"]
    if any(name not in case.extents for name in symbols(fusion)):
        return
    extents = {name: case.extents[name] for name in symbols(fusion)}
    # By its text, in which tensors have new numbers.
    yield from_text(to_text(replace(case, fusion=fusion, extents=extents)))


# --- everything else ----------------------------------------------------------------------------


def plain_inputs(case: Case) -> Iterator[Case]:
    """Take aligned inputs without gaps, small integers, and the first seed."""
    yield replace(case, gap=0)
    yield replace(case, offset=0)
    yield replace(case, kind="integers")
    yield replace(case, seed=0)


def shorter(case: Case) -> Iterator[Case]:
    """Make an extent smaller, by as much as goes; all of a length at once, or one."""
    for n in sorted(set(case.extents.values())):
        for m in _smaller(n, least=1):
            yield replace(case, extents={k: m if v == n else v for k, v in case.extents.items()})
    for name, n in case.extents.items():
        for m in _smaller(n, least=1):
            yield replace(case, extents=case.extents | {name: m})


def plain_params(case: Case) -> Iterator[Case]:
    """Make a field of the params simpler: fewer, not at all, or the first way there is."""
    params = case.params
    assert is_dataclass(params), "a schedule is plain data"
    if type(params) is ReductionParams:
        yield replace(case, params=params.pointwise())
    hints = get_type_hints(type(params))
    for field in fields(params):
        value = getattr(params, field.name)
        for simple in _simpler(value, hints.get(field.name)):
            try:
                changed: dict[str, Any] = {field.name: simple}
                yield replace(case, params=replace(params, **changed))
            except ScheduleError:
                continue


def _simpler(value: object, hint: object) -> Iterator[object]:
    match value:
        case bool():
            yield from [False] * value
        case str():
            words = get_args(hint)
            yield from words[: words.index(value)] if value in words else ()
        case int():
            if type(None) in get_args(hint):
                yield None
            yield from _smaller(value, least=0)
        case tuple():
            if type(None) in get_args(hint):
                yield None
            for n, part in enumerate(value):
                for less in _simpler(part, None):
                    yield (*value[:n], less, *value[n + 1 :])
        case _:
            pass


def _smaller(n: int, *, least: int) -> Iterator[int]:
    """Yield smaller numbers, the smallest first: halves, then a little less."""
    yield from sorted({m for m in (least, 1, 2, n // 4, n // 2, n - 8, n - 1) if least <= m < n})


def _of_other_seeds(step: Step) -> Step:
    def proposed(case: Case) -> Iterator[Case]:
        for smaller in step(case):
            yield smaller
            for number in range(SEEDS):
                yield replace(smaller, seed=number)

    return proposed


SEEDS = 8
"""Seeds under which a smaller fusion is tried, beside its own."""

FUSION_STEPS: tuple[Step, ...] = (one_kernel, one_output, fewer_outputs, given, left_out)

STEPS: tuple[Step, ...] = (
    *FUSION_STEPS,
    plain_inputs,
    shorter,
    plain_operations,
    fewer_axes,
    plain_types,
    plain_params,
)
"""What is tried, in this order, until nothing goes any more."""

SEEDED_STEPS = (*map(_of_other_seeds, FUSION_STEPS), *STEPS)
"""Of what is built by default: at which extents, hangs on the seed (`fuzz.cases.enlarged.usual`),
and a smaller fusion is seldom refused at the same ones."""

"""Kernels that scan: every schedule against all judges, types, and what shares a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from judged import complaints
from sample import covering
from scanned import PLAIN, SCHEDULES, scan

from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import FusionDefinition, Ops, TensorView
from fuser.kernel import ir as kir
from fuser.runtime.explain import explain
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, compiled

ODD, LONG = {"m": 9, "n": 520}, {"m": 70, "n": 40}


@pytest.mark.parametrize(
    ("name", "dim", "around", "extents"), covering(2, SCHEDULES, (1, 0), (False, True), (ODD, LONG))
)
def test_every_schedule_scans_rows_and_columns(
    name: str, dim: int, around: bool, extents: dict[str, int]
) -> None:
    """Tails of rows and columns, several tiles along both, several turns of a ring."""
    kind = "reals" if around else "integers"
    of = Case(scan(dim, around=around), SCHEDULES[name], extents, kind, 0)  # type: ignore[arg-type]
    assert not complaints(of)
    assert len(compiled(of).launches) == 1


@pytest.mark.parametrize("dim", [1, 0])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i32", "i64", "bool"])
def test_every_type_is_scanned(dtype: str, dim: int) -> None:
    """Each in the registers in which it is added up."""
    schedule = SCHEDULES["several warps a row"]
    assert not complaints(Case(scan(dim, dtype), schedule, {"m": 5, "n": 600}, "integers", 0))


@pytest.mark.parametrize("dim", [1, 0])
@pytest.mark.parametrize("extents", [{"m": 0, "n": 5}, {"m": 3, "n": 0}, {"m": 1, "n": 1}])
def test_of_nothing_and_of_one(extents: dict[str, int], dim: int) -> None:
    """Of no elements nothing is written."""
    assert not complaints(Case(scan(dim), PLAIN, extents, "reals", 0))


def test_what_was_carried_on_is_dropped_at_the_end_of_a_row() -> None:
    """A CTA that takes several rows begins each with nothing."""
    (launch,) = compiled(Case(scan(1), replace(PLAIN, ctas_per_sm=1), ODD, "reals", 0)).launches
    (tiles,) = (stmt for stmt in launch.kernel.body if isinstance(stmt, kir.ForLoop))
    begun = [s for s in tiles.body if isinstance(s, kir.Compute) and s.op == "promote"]
    assert [stmt.dst.name for stmt in begun] == ["carry_T1"]


# --- what shares a kernel -------------------------------------------------------------------------


def make(form: Callable[[Ops, TensorView], list[TensorView]], dtype: str = "f32") -> Case:
    """Return a case of a fusion of one matrix, by the default schedules."""
    fd = FusionDefinition()
    for out in form(fd.ops, fd.define_tensor(["m", "n"], dtype)):
        fd.add_output(out)
    other = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
    return Case(fd.fusion(), other, {"m": 9, "n": 70}, "reals", 0)


def stretched(o: Ops, x: TensorView) -> list[TensorView]:
    """Scan a row of sums, and use it for each column."""
    return [o.mul(x, o.broadcast(o.cumsum(o.sum(x, [0]), 0), [True, False]))]


FORMS: dict[str, tuple[Callable[[Ops, TensorView], list[TensorView]], list[str]]] = {
    "a scan of a scan": (lambda o, x: [o.cumsum(o.relu(o.cumsum(x, 1)), 1)], ["scan"]),
    "beside what is not scanned": (lambda o, x: [o.cumsum(x, 1), o.relu(x)], ["scan"]),
    "along both axes": (lambda o, x: [o.cumsum(o.cumsum(x, 0), 1)], ["scan", "scan"]),
    "two along two axes": (lambda o, x: [o.cumsum(x, 0), o.cumsum(x, 1)], ["scan", "scan"]),
    "shares of a sum": (
        lambda o, x: [o.div(o.cumsum(x, 1), o.sum(x, [1], keepdim=True))],
        ["reduction", "scan"],
    ),
    "a sum of a scan": (lambda o, x: [o.sum(o.cumsum(x, 1), [1])], ["scan", "reduction"]),
    "a softmax of a scan": (lambda o, x: [o.softmax(o.cumsum(x, 1), [1])], ["scan", "norm"]),
    "stretched": (stretched, ["reduction", "scan", "pointwise"]),
    "of one element": (lambda o, x: [o.cumsum(o.sum(x, [1], keepdim=True), 1)], ["reduction"]),
    "of a transposed matrix": (lambda o, x: [o.cumsum(o.permute(x, [1, 0]), 1)], ["scan"]),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_scans_along_one_axis_and_reduces_nothing(name: str) -> None:
    """What it needs besides is stored before; what needs a scan reads it."""
    form, kinds = FORMS[name]
    of = make(form)
    if name == "a softmax of a scan":  # plain params keep rows apart
        of = replace(of, params=PLAIN)
    found = [launch.kernel.name.rstrip("0123456789") for launch in compiled(of).launches]
    assert found == kinds
    assert not complaints(of)


@pytest.mark.parametrize("reduced", [False, True])
def test_what_is_multiplied_is_stored_once_for_a_scan(reduced: bool) -> None:
    """Also where the kernel of the product leaves parts of its rows: it scans nothing."""
    fd = FusionDefinition()
    a, b = fd.define_tensor(["m", 16], "bf16"), fd.define_tensor([16, "n"], "bf16")
    made = fd.ops.matmul(a, b)
    other = fd.ops.max(made, [1], keepdim=True) if reduced else made
    fd.add_output(fd.ops.minimum(made, other))
    fd.add_output(fd.ops.cumsum(made, 1))
    of = Case(fd.fusion(), PLAIN, {"m": 64, "n": 64}, "integers", 0)
    found = [launch.kernel.name.rstrip("0123456789") for launch in compiled(of).launches]
    assert found == ["matmul", *["norm"] * reduced, "scan"]
    assert not complaints(of)


def test_explain_names_what_a_scan_shares_its_kernel_with() -> None:
    """One kernel, which moves nothing but inputs and outputs."""
    said = str(explain(scan(1, around=True), (64, 512), (64, 512)))
    assert "1 kernel;" in said
    assert 'cumsum(T2, dim=1, dtype="bf16")' in said
    assert "ScanParams scan-direct/direct" in said


# --- what is refused ------------------------------------------------------------------------------

WRONG = {
    "lanes": ({"lanes": 48}, "use lanes=32"),
    "columns": ({"tile": (4, 128)}, "use 256 columns"),
    "rows": ({"tile": (3, 256)}, "use 4 rows"),
    "bulk": ({"load": "bulk", "stages": 2, "tile": (1, 256), "warps": 1}, "unknown mechanism"),
    "store": ({"store": "tma"}, "unknown mechanism"),
    "flat": ({"flat": True, "tile": (1, 256), "warps": 1}, "use False for both"),
}


@pytest.mark.parametrize("name", WRONG)
def test_params_out_of_range_are_refused_with_a_way_out(name: str) -> None:
    """Each message says what to use."""
    given, says = WRONG[name]
    with pytest.raises(ScheduleError, match=says):
        replace(PLAIN, **given)  # type: ignore[arg-type]


def test_a_box_has_too_few_columns_for_many_threads() -> None:
    """Down columns each thread has one, at least."""
    many = replace(PLAIN, warps=16, tile=(16, 256), load="tma", stages=2)
    with pytest.raises(ScheduleError, match="use warps=8"):
        compiled(Case(scan(0), many, {"m": 9, "n": 1024}, "reals", 0))


@pytest.mark.parametrize(
    ("dtype", "dim", "into", "says"),
    [("f32", 2, None, "none is axis 2"), ("i32", 1, "f32", "are i64"), ("i8", 1, None, "cast to")],
)
def test_what_cannot_be_scanned_is_refused(
    dtype: str, dim: int, into: str | None, says: str
) -> None:
    """As sums refuse it."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    with pytest.raises(FusionError, match=says):
        fd.ops.cumsum(x, dim, into)

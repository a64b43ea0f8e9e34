"""Outputs of a case against the reference: how strict that is depends on its schedule."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fuser.dtype import DType
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.shape_class import Params
from fuzz.cases.case import Case, Value
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.reference.mma import Partials
from oracles.verdict import Verdict


def partials(params: Params) -> Partials | None:
    """Return how CTAs hand sums on under a schedule, if that rounds them."""
    if not isinstance(params, MatmulParams | AmpereParams) or params.partial == "f32":
        return None
    return Partials(DType.of(params.partial), params.splits)


def compared(case: Case, given: list[Value], got: Sequence[torch.Tensor]) -> Verdict:
    """Compare what a case returned for some inputs with the reference.

    Sums of integers that are rounded on their way have a bound, which is 0 where they are exact.
    """
    rounded = partials(case.params)
    exact = case.kind == "integers" and rounded is None
    return compare(evaluate(case.fusion, given, rounded), list(got), exact=exact)

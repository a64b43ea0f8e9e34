"""The compiler: Fusion -> Kernel with every sync explicit -> CUDA C++ for sm_90a -> results.

.. include:: README.md
"""

from importlib import import_module
from typing import Any

JUDGES = {"judge_triton": "oracles.ptx.of_triton", "named_refusal": "oracles.prover.prove"}
"""What is found here of the judges, and where it is; loaded when it is asked for."""
OURS = {"Tuning": "fuser.runtime.tuning.search"}
"""The same of the compiler."""


def __getattr__(name: str) -> Any:
    """Return one of `JUDGES` or `OURS`; the compiler itself knows no judge."""
    where = {**JUDGES, **OURS}
    if name in where:
        return getattr(import_module(where[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def tune(*given: Any, **options: Any) -> Any:
    """Do as `fuser.runtime.executable.tune`; where no `judge` is named, `named_refusal` is.

    So no schedule is chosen of which the prover does not prove the named invariants.
    """
    judged = {"judge": __getattr__("named_refusal"), **options}
    return import_module("fuser.runtime.executable").tune(*given, **judged)

"""The compiler: Fusion -> Kernel with every sync explicit -> CUDA C++ for sm_90a -> results.

.. include:: README.md
"""

from importlib import import_module
from typing import Any

JUDGES = {"judge_triton": "oracles.ptx.of_triton"}
"""What is found here of the judges, and where it is; loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    """Return one of `JUDGES`; the compiler itself knows none."""
    if name in JUDGES:
        return getattr(import_module(JUDGES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

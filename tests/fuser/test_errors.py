"""Errors keep what a reader needs."""

import pickle

from fuser.errors import CompileError


def test_compile_error_survives_a_process_boundary() -> None:
    """Kernels are compiled in child processes; source and log must come back."""
    error = pickle.loads(
        pickle.dumps(CompileError("refused", "text", source="void f()", log="line 1"))
    )
    assert (str(error), error.kind) == ("refused", "text")
    assert (error.source, error.log) == ("void f()", "line 1")

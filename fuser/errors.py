"""The three exceptions of the project, by who must act.

Every message has one form: the call as the user wrote it: what is wrong, with numbers and
units; the way out.
"""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(word: object, known: Iterable[str]) -> str:
    """Return the way out of a name that does not exist: what is spelled nearly so, else all."""
    names = [name for name in known if not name.startswith("_")]
    near = get_close_matches(word.lower(), names, cutoff=0.7) if isinstance(word, str) else []
    return f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(names)}"


class FusionError(Exception):
    """The definition of a fusion is wrong; the user fixes the definition."""


class ScheduleError(Exception):
    """The params do not fit the fusion or the GPU; the user fixes the params.

    `kernel` is the number of the kernel that has them, where that was lowered.
    """

    kernel: int | None = None


class CompileError(Exception):
    """What the compiler made was refused: a kernel after a pass, or its text; ours to fix.

    `kind` says what in two or three words, such as ``invalid kernel``; `source` is the whole text
    that was given to the next tool, `log` what that tool said.
    """

    def __init__(self, message: str, kind: str, *, source: str = "", log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.source = source
        self.log = log

    def __reduce__(self) -> tuple[type["CompileError"], tuple[str, str], dict[str, str]]:
        """Carry source and log across a process boundary (judges run in child processes)."""
        return type(self), (str(self), self.kind), {"source": self.source, "log": self.log}

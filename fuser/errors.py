"""The three exceptions of the project, by who must act.

Every message has one form: the call as the user wrote it: what is wrong, with numbers and
units; the way out.
"""


class FusionError(Exception):
    """The definition of a fusion is wrong; the user fixes the definition."""


class ScheduleError(Exception):
    """The params do not fit the fusion or the GPU; the user fixes the params."""


class CompileError(Exception):
    """The compiler's own text was refused; ours to fix.

    Parameters
    ----------
    message : str
        What was refused, and how to see more.
    source : str
        The whole text that was given to the next tool.
    log : str
        What that tool said.
    """

    def __init__(self, message: str, *, source: str = "", log: str = "") -> None:
        super().__init__(message)
        self.source = source
        self.log = log

    def __reduce__(self) -> tuple[type["CompileError"], tuple[str], dict[str, str]]:
        """Carry source and log across a process boundary (judges run in child processes)."""
        return type(self), (str(self),), {"source": self.source, "log": self.log}

"""What a failure is called: the same name on every machine, and for every case that shows it.

Cases of one cause have one **signature** (`fuzz.campaign.record.signature`): who refuted them, for
what, and a `cause`, which is the barrier that is used wrongly, or the two statements that nothing
orders, or the scheduler of wrong values.  The least of these cases has an **identity** too, which
says what is left of its fusion and of the syncs of its kernel.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import astuple, dataclass

from fuser.dtype import DType
from fuser.fusion.definition import TensorView
from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
from fuzz.campaign.record import Record
from fuzz.cases.case import Case

DIGITS = "0123456789"
_OPCODE = re.compile(r"\s*(?:@!?%\w+\s+)?(\w+(?:\.\w+)?)")
"""Behind its guard, an instruction and the first of its modifiers."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A failure, whatever case, driver or machine shows it.

    Parameters
    ----------
    oracle, symptom : str
        Who found it; the hazard, or another kind of finding.
    scheduler : str
        Of the kernel: ``pointwise``, ``reduction``, ``norm``, ``hopper`` or ``ampere``.
    skeleton : str
        Syncs of the kernel: of each role, each kind once, in order.
    operators, dtypes : str
        Of the fusion, each once, sorted; types by class, such as ``float16`` for f16 and bf16.
    """

    oracle: str
    symptom: str
    scheduler: str
    skeleton: str
    operators: str
    dtypes: str

    @property
    def id(self) -> str:
        """Eight hexadecimal digits."""
        return hashlib.sha256("\n".join(astuple(self)).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        return f"{self.oracle} {self.symptom} {self.scheduler}: {self.operators} of {self.dtypes}"


def identified(record: Record, case: Case) -> Identity:
    """Return the identity of a failure, given the record of its least case."""
    made = [tv for tv in case.fusion.tensors if tv.op != "input"]
    read = [arg for tv in made for arg in tv.args if isinstance(arg, TensorView)]
    return Identity(
        record.oracle,
        record.kind or record.status,
        scheduler(record),
        record.skeleton,
        " ".join(sorted({tv.op for tv in made})),
        " ".join(sorted({dtype_class(tv.dtype) for tv in (*made, *read)})),
    )


def scheduler(record: Record) -> str:
    """Return whose kernel a record is about; of a whole program, whose params the case has."""
    group = record.family.split("-")[0]
    group = group if group in ("norm", "scan", "ampere", "hopper") else "pointwise"
    of_kernel = record.subject.split(" ")[0].rstrip(DIGITS)
    if of_kernel == "matmul":
        return group if group == "ampere" else "hopper"
    return of_kernel if of_kernel in ("pointwise", "reduction", "norm", "scan") else group


def dtype_class(dtype: DType) -> str:
    """Return the class of a type: bool, int, or float with its bits."""
    if dtype is DType.BOOL:
        return "bool"
    return f"float{8 * dtype.nbytes}" if dtype.is_float else "int"


def cause(record: Record, kernel: kir.Kernel | None) -> str:
    """Return what a failure of a kernel has in common with others of the same cause.

    The barrier that its finding is about, without its number; or else the statements, the earlier
    first; where it is about none, the scheduler.
    """
    if kernel is None or not record.lines:
        return scheduler(record)
    by_line = dict(numbered(kernel))
    named = [by_line[n] for n in map(int, record.lines.split()) if n in by_line]
    for stmt in named:
        barrier = getattr(stmt, "barrier", None)
        if isinstance(barrier, kir.MBarrier) and isinstance(stmt, kir.SYNCS):
            return barrier.name.rstrip(DIGITS)
    return " ".join(type(stmt).__name__ for stmt in named) or scheduler(record)


def cause_in_ptx(record: Record, text: str) -> str:
    """Return what a failure of a kernel's PTX has in common with others of the same cause.

    The instructions that its finding names, without their types: ``st.shared cp.async``.
    """
    lines = text.splitlines()
    named = [lines[n - 1] for n in map(int, record.lines.split()) if n <= len(lines)]
    opcodes = [match[1] for line in named if (match := _OPCODE.match(line))]
    return " ".join(opcodes) or scheduler(record)


def skeleton(kernel: kir.Kernel) -> str:
    """Return the kinds of syncs of a kernel: of each role, each kind once, in order."""
    roles = {stmt.name: stmt.body for stmt in kernel.body if isinstance(stmt, kir.Role)}
    rest = tuple(stmt for stmt in kernel.body if not isinstance(stmt, kir.Role))
    said = []
    for role, body in {"all": rest, **roles}.items():
        kinds = [type(stmt).__name__ for stmt in kir.walk(body) if isinstance(stmt, kir.SYNCS)]
        if kinds:
            said.append(f"{role}: {' '.join(dict.fromkeys(kinds))}")
    return " | ".join(said)

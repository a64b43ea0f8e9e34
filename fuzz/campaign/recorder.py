"""The recorder: asks an oracle, times it, and writes down what it says as a Record."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace

from fuser.errors import CompileError, FusionError, ScheduleError
from fuser.schedule.params import TensorCoreParams
from fuzz.campaign.child import OVERHEAD, account, at_work
from fuzz.campaign.record import Record
from fuzz.cases.case import Case, case_id
from oracles.verdict import Verdict
from oracles.witness import Witness, dumps

BY_DEFAULT = "by default"
"""Subject of the build of a case where no schedule is named; at other extents it names them."""
DRAWN = ContextVar("DRAWN", default=True)
"""Whether witnesses are searched for."""


class Recorder:
    """Runs oracles on one case and writes what they say into Records."""

    def __init__(self, case: Case, text: str, *, phase: str = "generate") -> None:
        self.records: list[Record] = []
        self._blank = replace(blank_record(case, text), phase=phase)
        self._products = isinstance(case.params, TensorCoreParams)

    def ask(
        self,
        oracle: str,
        subject: str,
        judge: Callable[[], Verdict],
        *,
        mutant: str = "",
        part: str = "",
    ) -> Verdict | None:
        """Record a verdict; None, and a record of the exception, where there is none.

        Of `build` that is the compiler's fault, of other oracles the harness's.  `part` is what the
        CPU time counts for, where that is not the oracle.
        """
        at_work(oracle, f"{subject} {mutant}".strip(), part=part or oracle)
        start = time.process_time()
        try:
            verdict = judge()
        except (FusionError, ScheduleError) as error:
            status, kind, reason = "invalid", "", f"{type(error).__name__}: {error}"
            refused = isinstance(error, ScheduleError)
            by_default = subject.startswith(BY_DEFAULT) and _named(error)
            if refused and (by_default or self._chosen(error)):
                status, kind = "fail", "heuristic refused"
        except CompileError as error:
            said = [f"CompileError: {error}", *getattr(error, "__notes__", ()), error.log]
            reason = "\n".join(said).strip()[:4000]
            status, kind = "fail", error.kind
        except Exception as error:
            status = "fail" if oracle == "build" else "error"
            kind, reason = _broken(error)
        else:
            self.hear(oracle, subject, verdict, start, mutant=mutant)
            return verdict
        blank = replace(self._blank, oracle=oracle, subject=subject, mutant=mutant)
        self._note(replace(blank, status=status, kind=kind, reason=reason), start)
        return None

    def hear(
        self, oracle: str, subject: str, verdict: Verdict, start: float, *, mutant: str = ""
    ) -> None:
        """Record a verdict that was given since `start`."""
        errors = [finding for finding in verdict.findings if finding.severity == "error"]
        said = replace(
            self._blank,
            oracle=oracle,
            subject=subject,
            mutant=mutant,
            status=verdict.status.value,
            checked=verdict.checked,
            kind=errors[0].kind if errors else "",
            reason="\n".join([*map(str, verdict.findings), verdict.reason]).strip(),
            confirmed=" ".join(verdict.confirmed_by),
            lines=" ".join(map(str, errors[0].lines)) if errors else "",
        )
        self._note(said, start)

    def show(self, subject: str, search: Callable[[], Witness | None]) -> None:
        """Add a witness to the latest record; a search that breaks is an error of its own.

        Of cases that are tried on the way to a smaller one nobody looks at it: see `DRAWN`.
        """
        if not DRAWN.get():
            return
        what = f"{subject} witness"
        at_work("prover", what)
        start = time.process_time()
        try:
            found = search()
        except Exception as error:
            blank = replace(self._blank, oracle="prover", subject=what, status="error")
            kind, reason = _broken(error)
            self._note(replace(blank, kind=kind, reason=reason), start)
        else:
            if found is not None:
                self.records[-1] = replace(self.records[-1], witness=dumps(found))

    def _chosen(self, error: Exception) -> bool:
        """Tell whether params are refused that the heuristics chose, as the case's are no such."""
        return str(error).startswith(("MatmulParams(", "AmpereParams(")) and not self._products

    def _note(self, record: Record, start: float) -> None:
        self.records.append(replace(record, seconds=time.process_time() - start))
        account.turn(OVERHEAD)


def _named(error: Exception) -> bool:
    """Tell whether params are refused; a fusion may ask for what no params can give it."""
    return str(error).split("(")[0].endswith("Params")


def _broken(error: Exception) -> tuple[str, str]:
    """Return the name of an exception, and what it says before where that was."""
    says = "".join(traceback.format_exception_only(error))
    return type(error).__name__, says + "".join(traceback.format_exception(error))[-4000:]


def blank_record(case: Case, text: str) -> Record:
    """Return a record of the case that says nothing yet."""
    schedule = case.params
    return Record(
        case=case_id(text),
        oracle="build",
        subject="",
        status="pass",
        checked=0,
        seconds=0.0,
        kind="",
        reason="",
        family=schedule.family,
        load=schedule.load,
        store=schedule.store,
        stages=schedule.stages,
        values=case.kind,
    )

"""One Case through every oracle that needs no GPU: build, prove, simulate, compare, read the log.

A kernel is simulated on small launches made up for it, in which one CTA gets 0, 1, S - 1, S and
2 S + 1 tiles, and as many as each witness of the prover names; and on the case's own launch.  Then
the same program is judged at other extents (`fuzz.cases.calls`), and the case under other schedules
(`fuzz.cases.metamorphic`).  Of a program that returns wrong values each kernel is compared on what
it read.  Last, what no other judge fails is executed as PTX (`fuzz.ptx`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from typing import Generic, TypeVar

import torch

from fuser.pipeline import Launch, Program
from fuser.runtime.binding import bind
from fuser.runtime.nvrtc import compile_cubin
from fuzz.campaign.child import DRAWING, account
from fuzz.campaign.launches import Array, Call, calls, trip_counts, with_trips
from fuzz.campaign.record import FAILED, Record
from fuzz.campaign.recorder import BY_DEFAULT, Recorder
from fuzz.cases.calls import named, others
from fuzz.cases.case import Case, Value, by_default, compiled, from_text, inputs, specs, to_text
from fuzz.cases.enlarged.usual import usual
from fuzz.cases.metamorphic import agree, rescheduled
from fuzz.ptx.cases import Execution, Run
from fuzz.values import additions, blamed, compared, partials
from oracles.assembler import judge_log
from oracles.prover.prove import LIMIT_S, prove, witness, witness_trips
from oracles.ptx.judge import NAME as PTX
from oracles.simulator import simulate
from oracles.verdict import Finding, Status, Verdict

T = TypeVar("T")

CPU_ORACLES = (
    "prover",
    "simulator",
    "differential",
    "schedules",
    "assembler",
    "agreement",
    "ptx",
)
"""Oracles that a campaign can name; `build` always answers."""
POLICY = "strict"
"""What the compiler owes: every fence that a disputed rule could ask for (an H200 decided one)."""
SCHEDULES = 2
"""Other schedules that a case is compared with."""
OTHERS_S = 0.2
"""CPU seconds in which other calls of a program begin, and other schedules of a case: a tenth of
the launches took three quarters of the time of all (measured).  There is always one."""
DEAR = 0.5
"""Part of that time which the own call of a case may take; where it takes longer, other calls are
smaller ones, of which there is time for several (a tenth of all took seven tenths of the time)."""
LOST = "not compared: the case itself does not pass"
PTX_SHARE = 0.5
"""Of the time of other calls in the simulator, that in which they begin as PTX."""
NOT_EXECUTED = "not executed: another judge fails the case"
PTX_WORK = 30_000_000
"""What a launch may take as PTX (`oracles.ptx.machine.WORK`): two CPU seconds (measured)."""
REPLAYS = 12
"""Schedules tried on the trip count of a prover's witness: each strategy twice."""


def judge_text(asked: str, *, seconds: float = OTHERS_S, proof_s: float = LIMIT_S) -> list[Record]:
    """Judge the case of a text whose first line is `# oracles: a, b`; for any process."""
    head, text = asked.split("\n", 1)
    names = head.removeprefix("# oracles: ").split(", ")
    wanted = [name for name in names if name]
    return judge(from_text(text), wanted, seconds=seconds, proof_s=proof_s)


def request(text: str, oracles: Iterable[str]) -> str:
    """Return what `judge_text` is asked."""
    return f"# oracles: {', '.join(oracles)}\n{text}"


def judge(
    case: Case,
    oracles: Iterable[str] = CPU_ORACLES,
    *,
    seconds: float = OTHERS_S,
    proof_s: float = LIMIT_S,
) -> list[Record]:
    """Return a record per kernel and oracle of a case, simulator and agreement one per trip count.

    Of a case that the compiler refuses there is one record, `invalid`.  Other calls of a program,
    and other schedules, begin within so many CPU seconds each, one if there is any.  A proof that
    takes more than `proof_s` is unknown.
    """
    wanted = frozenset(oracles)
    recorder = Recorder(case, to_text(case))
    for program in programs(recorder, case):
        other = Others(case, program)
        for launch in program.launches:
            judge_kernel(recorder, launch, wanted, seed=case.seed, proof_s=proof_s)
            if "assembler" in wanted:
                recorder.ask("assembler", launch.kernel.name, partial(_read_log, launch.source))
        if wanted & {"simulator", "differential", "schedules"}:
            judge_values(recorder, case, program, other, wanted, seconds)
        if "ptx" in wanted:
            judge_ptx(recorder, case, program, other, PTX_SHARE * seconds)
    return recorder.records


def programs(recorder: Recorder, case: Case) -> list[Program]:
    """Return the program of a case, or none where the compiler makes none of it.

    It has to make one where no schedule is named, too, and at extents that people have: whatever is
    refused then is its fault.
    """
    made: list[Program] = []

    def built(make: Callable[[Case], Program], keep: list[Program], of: Case = case) -> Verdict:
        keep.append(make(of))
        return Verdict("build", Status.PASS, len(keep[0].launches))

    recorder.ask("build", "", partial(built, compiled, made))
    if made:
        recorder.ask("build", BY_DEFAULT, partial(built, by_default, []))
        larger = usual(case)
        if larger is not None:
            of = partial(built, by_default, [], larger.case)
            recorder.ask("build", f"{BY_DEFAULT} at {larger}", of)
    return made


def judge_kernel(
    recorder: Recorder,
    launch: Launch,
    wanted: frozenset[str],
    *,
    seed: int,
    proof_s: float = LIMIT_S,
) -> None:
    """Prove a kernel, simulate it on small launches, and hold both against each other."""
    kernel, name = launch.kernel, launch.kernel.name
    proof = (
        recorder.ask("prover", name, lambda: prove(kernel, policy=POLICY, limit=proof_s))
        if "prover" in wanted
        else None
    )
    if proof is not None and proof.status is Status.FAIL:
        recorder.show(name, lambda: witness(kernel, policy=POLICY))
    if "simulator" not in wanted:
        return
    said = sorted(witness_trips(proof)) if proof is not None else []
    seen: dict[int, Verdict] = {}
    for trips in trip_counts(launch):
        if trips not in said:
            verdict = _simulated(recorder, launch, trips, seed=seed + trips, schedules=1)
            seen |= {} if verdict is None else {trips: verdict}
    for trips in said:
        verdict = _simulated(recorder, launch, trips, seed=seed, schedules=REPLAYS)
        seen |= {} if verdict is None else {trips: verdict}
    if proof is not None and "agreement" in wanted:
        start = time.process_time()
        recorder.hear("agreement", name, agreement(proof, said, seen), start)


def agreement(proof: Verdict, said: list[int], seen: dict[int, Verdict]) -> Verdict:
    """Compare a proof, of all trip counts, or its witnesses, of theirs, with the simulator."""
    failed = [trips for trips, verdict in seen.items() if verdict.status is Status.FAIL]
    if proof.status is Status.PASS and failed:
        trips = failed[0]
        witness = f"proved for every trip count, but at {trips}: {seen[trips].findings[0]}"
        finding = Finding("prover blind", f"trips={trips}", witness, trips=trips)
        return Verdict("agreement", Status.FAIL, len(seen), (finding,))
    quiet = [trips for trips in said if trips in seen and seen[trips].status is Status.PASS]
    if proof.status is Status.FAIL and said and not any(trips in failed for trips in said):
        first = next(f for f in proof.findings if f.severity == "error")
        witness = f"refuted at {said} ({first}), but {REPLAYS} schedules pass there"
        where = f"trips={quiet or said}"
        finding = Finding("not replayed", where, witness, trips=min(quiet or said))
        return Verdict("agreement", Status.FAIL, max(len(quiet), 1), (finding,))
    if proof.status in (Status.PASS, Status.FAIL) and seen:
        return Verdict("agreement", Status.PASS, len(seen))
    reason = f"the prover says {proof.status.value}: {proof.reason}"
    return Verdict("agreement", Status.UNKNOWN, 0, reason=reason)


class Drawn(Generic[T]):
    """What is drawn one by one, once for all who go through it."""

    def __init__(self, some: Iterator[T]) -> None:
        self._some, self._drawn = some, list[T]()

    def __iter__(self) -> Iterator[T]:
        """Go through what is drawn so far, and draw more."""
        for n in count():
            if n == len(self._drawn):
                more = next(self._some, None)
                if more is None:
                    return
                self._drawn.append(more)
            yield self._drawn[n]


class Others:
    """Other calls of a program, drawn once for all judges."""

    def __init__(self, case: Case, program: Program) -> None:
        self._all = Drawn(others(case, program))
        self._smaller = Drawn(others(case, program, smaller=True))

    def within(self, seconds: float, own_s: float) -> Iterator[Case]:
        """Yield as many as begin in time, smaller ones if the own call of the case took `own_s`."""
        return _in_time(self._smaller if own_s > DEAR * seconds else self._all, seconds)


@dataclass(frozen=True, slots=True)
class _Ran:
    """A launch that was simulated: what it was given, what was said, and what it left."""

    call: Call
    seed: int
    given: dict[str, bytes]
    verdict: Verdict
    left: dict[str, Array]


class Simulated:
    """The launches of a case; one that is the same under another schedule is not run again.

    Of two programs of a fusion many kernels are the same object, and a run depends on nothing but
    its kernel, launch, data and seed.
    """

    def __init__(self) -> None:
        self._ran: list[_Ran] = []

    def once(self, case: Case, call: Call, arrays: dict[str, Array]) -> Verdict:
        """Simulate a launch, or take what it has left before."""
        given = {name: array.tobytes() for name, array in arrays.items()}
        for ran in self._ran:
            same = ran.call.kernel is call.kernel and ran.call.launch == call.launch
            if same and ran.seed == case.seed and _alike(ran, call, given):
                for name, array in ran.left.items():
                    arrays[name][...] = array
                return ran.verdict
        verdict = _simulated_once(case, call, arrays)
        left = {name: array.copy() for name, array in arrays.items()}
        self._ran.append(_Ran(call, case.seed, given, verdict, left))
        return verdict


def _alike(ran: _Ran, call: Call, given: Mapping[str, bytes]) -> bool:
    """Tell whether a launch is given the same bits; numbers by their text: NaN is NaN, 0 not -0."""
    return ran.given == given and repr(ran.call.scalars) == repr(call.scalars)


def judge_values(
    recorder: Recorder,
    case: Case,
    program: Program,
    others: Others,
    wanted: frozenset[str],
    seconds: float,
) -> None:
    """Compare what a program returns: with the reference, at many extents, and other schedules."""
    simulated, start = Simulated(), time.process_time()
    memory = _called(recorder, case, program, wanted, "own launch", simulated.once)
    if memory is None:
        if "schedules" in wanted:
            recorder.ask("schedules", "", lambda: Verdict("schedules", Status.UNKNOWN, 0, (), LOST))
        return
    if wanted & {"simulator", "differential"}:
        account.turn(DRAWING)
        for other in others.within(seconds, time.process_time() - start):
            if _called(recorder, other, program, wanted, named(other)) is None:
                return
            account.turn(DRAWING)
    if "schedules" in wanted:
        recorder.ask(
            "schedules", "", partial(_under_others, case, program, memory, simulated, seconds)
        )


def judge_ptx(
    recorder: Recorder, case: Case, program: Program, others: Others, seconds: float
) -> None:
    """Execute the PTX of the kernels, at the case's own launch and of other calls of the program.

    A case that another judge fails is not executed: a right compiler behind it shows nothing.
    """
    if any(record.status in FAILED for record in recorder.records):
        said = Verdict(PTX, Status.UNKNOWN, 0, reason=NOT_EXECUTED)
        recorder.ask(PTX, "", lambda: said)
        return
    start = time.process_time()
    if not _executed(recorder, case, program, "own launch"):
        return
    account.turn(DRAWING)
    for other in others.within(seconds, time.process_time() - start):
        if not _executed(recorder, other, program, named(other)):
            return
        account.turn(DRAWING)


def _executed(recorder: Recorder, case: Case, program: Program, at: str) -> bool:
    """Execute a call as PTX and compare; tell whether all is right.

    Engines are late at the case's own launch, and its events compared with the Kernel IR's; at
    others the order is drawn.
    """
    made: list[Execution] = []
    own = at == "own launch"

    def bound() -> Verdict:
        seed = 0 if own else case.seed
        made.append(Execution(case, program, seed=seed, work=PTX_WORK, refined=own))
        return Verdict("build", Status.PASS, 1)

    recorder.ask("build", f"launch at {at}", bound, part="inputs")
    for execution in made:
        for run in execution.launches():
            verdict = recorder.ask(PTX, f"{run.name} {at}", partial(_of_order, run))
            if verdict is None or verdict.status is not Status.PASS:
                return False
            if own:
                verdict = recorder.ask(PTX, f"{run.name} refinement", run.refinement)
                if verdict is None or verdict.status is Status.FAIL:
                    return False
        verdict = recorder.ask(PTX, at, execution.values)
        return verdict is not None and verdict.status is not Status.FAIL
    return False


def _of_order(run: Run) -> Verdict:
    return run.order().verdict


def _in_time(some: Iterable[T], seconds: float) -> Iterator[T]:
    """Yield some, the first always, while there is CPU time for another."""
    start = time.process_time()
    for one in some:
        yield one
        if time.process_time() - start > seconds:
            return


Simulate = Callable[[Case, Call, dict[str, Array]], Verdict]
"""Runs a launch on arrays."""


def _called(
    recorder: Recorder,
    case: Case,
    program: Program,
    wanted: frozenset[str],
    at: str,
    simulated: Simulate | None = None,
) -> dict[str, Value] | None:
    """Simulate the launches of a call and compare; return what is in memory, if all is right."""
    made: list[tuple[list[Call], dict[str, Value]]] = []

    def bound() -> Verdict:
        made.append(_bound(case, program))
        return Verdict("build", Status.PASS, 1)

    recorder.ask("build", f"launch at {at}", bound, part="inputs")
    for launches, memory in made:
        once = simulated or _simulated_once
        bad = [
            call.kernel.name
            for call in launches
            if not _run(recorder, case, call, wanted, at, once)
        ]
        said: Verdict | None = None
        if "differential" in wanted:
            said = recorder.ask(
                "differential",
                at,
                partial(_not_compared, bad) if bad else partial(_located, case, program, memory),
            )
        wrong = said is None or said.status is Status.FAIL
        return None if bad or ("differential" in wanted and wrong) else memory
    return None


def _bound(case: Case, program: Program) -> tuple[list[Call], dict[str, Value]]:
    bindings = bind(program, specs(case), sms=1 + case.seed % 4)
    return calls(case, inputs(case), program, bindings)


def _under_others(
    case: Case,
    program: Program,
    memory: Mapping[str, Value],
    simulated: Simulated,
    seconds: float,
) -> Verdict:
    """Compare what a case returned with what it returns under other schedules.

    Where all of them add up reals in another order, hold one against the reference.
    """
    mine = [_tensor(memory[tv.name]) for tv in case.fusion.outputs]
    checked, tried = 0, []
    for other, made, alike in _in_time(islice(rescheduled(case, program), SCHEDULES), seconds):
        verdict = _under_another(case, other, made, simulated, mine if alike else None)
        if verdict.status is not Status.PASS or not alike:
            return verdict
        checked += verdict.checked
        tried.append(f"under {other.params}")
    if tried:
        return Verdict("schedules", Status.PASS, checked, reason="\n".join(tried))
    return Verdict("schedules", Status.UNKNOWN, 0, reason="there is no other schedule")


def _under_another(
    case: Case,
    other: Case,
    program: Program,
    simulated: Simulated,
    mine: list[torch.Tensor] | None,
) -> Verdict:
    """Simulate a case under another schedule; compare bit by bit with `mine`, or the reference."""
    launches, memory = _bound(other, program)
    both = f"under {other.params}, beside {case.params}"
    for call in launches:
        if call.launch is None:
            continue
        arrays = call.arrays()
        found = _launched(simulated.once(other, call, arrays), call.kernel.name)
        if found.status is not Status.PASS:
            status = Status.FAIL if found.status is Status.FAIL else Status.UNKNOWN
            reason = f"{call.kernel.name} {both}: {found.reason}"
            return replace(found, oracle="schedules", status=status, reason=reason)
        call.store(arrays)
    got = [_tensor(memory[tv.name]) for tv in case.fusion.outputs]
    if mine is not None:
        return replace(agree(mine, got, case.params, other.params), oracle="schedules")
    said = compared(other, [memory[arg.name] for arg in case.fusion.inputs], got, program)
    return replace(said, oracle="schedules", reason=f"{said.reason} {both}".strip())


def _located(case: Case, program: Program, memory: dict[str, Value]) -> Verdict:
    """Compare what a case returned; if it is wrong, name the kernels that are wrong themselves."""
    given = [memory[arg.name] for arg in case.fusion.inputs]
    left = [_tensor(memory[tv.name]) for tv in case.fusion.outputs]
    verdict = compared(case, given, left, program)
    if verdict.status is not Status.FAIL or len(program.launches) == 1:
        return verdict
    found = blamed(program, memory, case.extents, partials(case.params), additions(case, program))
    return replace(verdict, findings=(*verdict.findings, *found))


def _tensor(value: Value) -> torch.Tensor:
    assert isinstance(value, torch.Tensor), "outputs are no numbers"
    return value


def _not_compared(bad: list[str]) -> Verdict:
    reason = f"not compared: the simulator does not pass the launch of {', '.join(bad)}"
    return Verdict("differential", Status.UNKNOWN, 0, reason=reason)


def _run(
    recorder: Recorder,
    case: Case,
    call: Call,
    wanted: frozenset[str],
    at: str,
    simulated: Simulate,
) -> bool:
    """Simulate one launch of a call; tell whether its values can be compared."""
    if call.launch is None:
        return True
    before = len(recorder.records)
    arrays, name = call.arrays(), call.kernel.name
    verdict = recorder.ask(
        "simulator",
        f"{name} {at}",
        lambda: _launched(simulated(case, call, arrays), name),
        part="simulator, launches with values",
    )
    if "simulator" not in wanted:
        del recorder.records[before:]
    call.store(arrays)
    return verdict is not None and verdict.status is Status.PASS


def _simulated_once(case: Case, call: Call, arrays: dict[str, Array]) -> Verdict:
    assert call.launch is not None, "launches of nothing are left out"
    return simulate.simulate(
        call.kernel, call.launch, arrays, call.scalars, seed=case.seed, policy=POLICY
    )


def _launched(found: Verdict, name: str) -> Verdict:
    """Refute a launch that breaks what its kernel asks of it: the compiler chose both."""
    if found.status is not Status.UNSUPPORTED or not found.reason.startswith("launch: "):
        return found
    finding = Finding("launch", f"kernel {name}", found.reason.removeprefix("launch: "))
    return Verdict(found.oracle, Status.FAIL, 1, (finding,))


def _read_log(source: str) -> Verdict:
    return judge_log(compile_cubin(source).log)


def _simulated(
    recorder: Recorder, launch: Launch, trips: int, *, seed: int, schedules: int
) -> Verdict | None:
    small = with_trips(launch, trips)
    return recorder.ask(
        "simulator",
        f"{launch.kernel.name} trips={trips}",
        lambda: simulate.search(
            launch.kernel, small, schedules=schedules, seed=seed, policy=POLICY
        ),
        part="simulator, made-up launches",
    )

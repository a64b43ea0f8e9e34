"""The execution that shows a violation, as a witness: one row for each statement, in order."""

from __future__ import annotations

from dataclasses import replace

from fuser import kernel_ir as kir
from fuser.kernel_text import line
from oracles import closure
from oracles.closure_code import assemble
from oracles.closure_static import readings, stands
from oracles.closure_threads import kinds
from oracles.closure_world import World
from oracles.witness import Mark, Row, Witness


def replay(kernel: kir.Kernel, *, policy: str) -> Witness | None:
    """Return the execution at the smallest trip count that goes wrong, None if none is found."""
    threads = kinds(kernel)
    for trips in range(closure.PINNED):
        for reading in readings(kernel):
            code = assemble(kernel, threads, reading.fixed)
            world = World(code, policy=policy, without=frozenset(), turn=reading.turn)
            world.pinned = dict.fromkeys(code.counts, trips)
            world.log = []
            stands(world)
            closure.explore(world)
            if world.failed:
                return _witness(world, trips)
    return None


def _witness(world: World, trips: int) -> Witness:
    wrong = next(v for v in world.violations.values() if v.severity == "error")
    rows: list[Row] = []
    second = first = -1
    assert world.log is not None, "this world keeps a log"
    for agent, site, k, note in world.log:
        here = world.code.sites[site]
        if site == wrong.later.index and k == wrong.k:
            second = len(rows)
        if second < 0 and wrong.earlier is not None and site == wrong.earlier.index:
            first = len(rows)
        moment = f" (k={k})" if k >= 0 else ""
        rows.append(Row(str(world.kinds[agent]), here.line, line(here.stmt) + moment, note))
    nearest = ""
    for at, mark in ((first, Mark.FIRST), (second, Mark.SECOND)):
        if at >= 0:
            rows[at] = replace(rows[at], mark=mark)
    for row, (_, site, _, _) in zip(rows[: max(second, 0)], world.log, strict=False):
        stmt = world.code.sites[site].stmt
        if row.lane == rows[second].lane and isinstance(
            stmt, kir.MBarrierWaitParity | kir.BlockSync | kir.AsyncAwait | kir.FenceAsyncProxy
        ):
            nearest = f"line {row.line}: {line(stmt)}"
    counts = world.code.counts
    pairs = tuple((str(e), trips) for e, n in world.code.atoms.found.items() if n in counts)
    lanes = tuple(dict.fromkeys(row.lane for row in rows))
    return Witness(world.kernel.name, wrong.kind, pairs, wrong.says, nearest, lanes, tuple(rows))

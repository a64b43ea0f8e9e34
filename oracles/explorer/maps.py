"""Tensor maps that a kernel writes: a record of each, and which fences cover its last write.

A record is found wrong from what its second user knows, in whichever order the two come (`memory`).

Source: PTX ISA, "tensormap.replace", "fence.proxy.tensormap", "Asynchronous copy".
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.explorer.plan import Plan
from oracles.explorer.rules import Rule
from oracles.explorer.state import MapRecord, MapUse, State, Step


def use_map(plan: Plan, st: State, i: int, step: Step, use: MapUse) -> None:
    """Let an agent write a map, release all, acquire one, or start a copy that goes by it."""
    known = st.g[i] | st.own[i]
    match step.stmt:
        case kir.TensorMapRelease():
            for at, old in st.maps.items():
                if old.written & known:
                    st.maps[at] = old._replace(released=old.released | step.bit)
        case kir.TensorMapAcquire():
            record = st.maps.get(use.at)
            if record is not None and record.released & known:
                st.maps[use.at] = record._replace(acquired=record.acquired | step.bit)
        case kir.TensorMapReplace():
            record = st.maps.get(use.at)
            if record is not None and not record.written & known:
                says = f"writes {use.what}; nothing orders it after its last write"
                plan.refuse(Rule.WAW, "WAW", step.where, says)
            if record is not None and record.reads & ~known:
                says = f"writes {use.what}; nothing orders it after the end of a copy through it"
                plan.refuse(Rule.WAR, "WAR", step.where, says)
            st.maps[use.at] = MapRecord(use.says, step.bit)
        case _:
            _read(plan, st, known, step, use)


def _read(plan: Plan, st: State, known: int, step: Step, use: MapUse) -> None:
    """Let a copy start that finds in the map what it says by its end."""
    record = st.maps.get(use.at)
    if record is None or not record.written & known:
        what = "any write" if record is None else "the last write"
        says = f"goes by {use.what}; nothing orders it after {what} of that"
        plan.refuse(Rule.RAW, "RAW", step.where, says)
    if record is None:
        return
    if not record.acquired & known:
        missing = "acquire" if record.released & known else "release"
        says = f"no {missing} of {use.what} stands between its last write and the copy"
        plan.refuse(Rule.PROXY_MAP, "proxy", step.where, says)
    if record.says != use.says:
        says = f"{use.what} is of elements {record.says}, the copy takes it to be of {use.says}"
        plan.refuse(Rule.MAP, "map", step.where, says)
    st.maps[use.at] = record._replace(reads=record.reads | use.read)

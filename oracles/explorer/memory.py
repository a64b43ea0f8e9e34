"""Conflicts: an access meets the records of earlier ones that its thread does not know of.

A record stays until a later write that knew it covers it.  Since a conflict is found from what the
second of two accesses knows, and not from what is in flight at that moment, it is found in
whichever order the two happen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from oracles.explorer.plan import Plan
from oracles.explorer.rules import Defect, Rule
from oracles.explorer.state import ALIVE, Access, State
from oracles.explorer.tiles import apart, union


def all_written(name: str, size: int, accesses: Iterable[Access]) -> None:
    """Demand that accesses write every element of an output."""
    missing = ((1 << size) - 1) & ~union(access.mask for access in accesses if access.write)
    if missing:
        first = (missing & -missing).bit_length() - 1
        says = f"{missing.bit_count()} elements are not written, the first is {first}"
        raise Defect(Rule.COVERAGE, "coverage", f"tensor {name}", says)


@dataclass(slots=True)
class Memory:
    """Checks accesses against records."""

    plan: Plan
    policy: str
    without: frozenset[Rule]
    warnings: dict[tuple[str, str], str] = field(default_factory=dict)
    checked: int = 0
    footprint: dict[int, list[Access]] = field(default_factory=dict)
    """Accesses of global memory, by tensor, for those of CTAs that never meet."""

    def touch(
        self,
        st: State,
        agents: tuple[int, ...],
        new: Access,
        others: tuple[Access, ...] = (),
    ) -> None:
        """Check, and record, an access that these agents make together, or that `others` may."""
        if not new.shared and (new.write or new.space not in self.plan.early):
            self.ended(st, agents, new.where)
        g = a = -1
        for i in agents:
            g &= st.g[i]
            a &= st.a[i]
        kept = []
        for old in st.memory.get(new.space, ()):
            if old.high <= new.low or new.high <= old.low or not old.mask & new.mask:
                kept.append(old)
                continue
            if not (old.write or new.write):
                if not any(self._repeated(st, old, one) for one in (new, *others)):
                    kept.append(old)
                continue
            self.checked += 1
            known = bool(old.bit & g) or self._private(st, agents, old, new)
            if known:
                fenced = bool(old.bit & a)
                if not fenced and old.agent in agents:
                    fenced = bool(old.bit & st.a[old.agent])
                if new.engine and not fenced:
                    self._proxy(old, new)
                elif new.engine and old.bit & st.foreign:
                    self._late_fence(st, old, new)
                self._once(old, new)
                if new.number not in (-1, old.number) and not new.write:
                    says = f"fetches number {new.number} of its CTA, and {old.where} has put "
                    says += "there another one"
                    self.plan.refuse(Rule.RAW, "RAW", new.where, says)
                if new.write and not old.mask & ~new.mask and not new.adds:
                    continue
                kept.append(old)
            else:
                self._conflict(st, agents, old, new)
                kept.append(old)
        fresh = new.shared or new.space in self.plan.blank
        if fresh and not new.write:
            unwritten = new.mask & ~union(
                e.mask & ~e.void for e in kept if e.write and not e.barrier
            )
            if unwritten:
                says = f"reads {new.what} before anything is written there"
                self.plan.refuse(Rule.RAW, "RAW", new.where, says)
        if new.barrier and new.adds:
            kept = [e for e in kept if not (e.barrier and e.adds and self._older(e, new))]
        kept += [new, *others]
        st.memory[new.space] = tuple(kept)
        if self.plan.tracked and new.shared and not new.barrier:
            self._alive(st, new)
        if not new.shared:
            self.footprint.setdefault(new.space, []).append(new)

    def ended(self, st: State, agents: tuple[int, ...], where: str) -> None:
        """Demand that the launches before this one have ended, which is over for the whole grid."""
        if any(self.plan.ended & ~st.s[i] for i in agents):
            says = "nothing orders it after the end of the launches before this one"
            self.plan.refuse(Rule.DEPENDENCY, "dependency", where, says)

    def covered(self, st: State) -> None:
        """Demand that this way has written every element of every output."""
        plan = self.plan
        for name in plan.kernel.outputs if Rule.COVERAGE not in self.without else ():
            self.checked += 1
            all_written(name, prod(plan.extents[name]), st.memory.get(plan.spaces[name], ()))

    def _once(self, old: Access, new: Access) -> None:
        """Demand that an element of an output is written once; additions may follow."""
        plain = old.write and new.write and not old.adds and not new.adds
        if plain and new.space in self.plan.results:
            says = f"{new.what} was written before, by {old.where}"
            self.plan.refuse(Rule.COVERAGE, "coverage", new.where, says)

    def _repeated(self, st: State, old: Access, new: Access) -> bool:
        """Tell whether who knows of a read knows of an earlier one of the same threads."""
        return (
            old.agent == new.agent
            and old.mask == new.mask
            and old.threads == new.threads
            and old.engine == new.engine
            and old.bit == old.issue
            and not (old.bit & st.a[old.agent])
        )

    def _older(self, old: Access, new: Access) -> bool:
        return old.agent == new.agent and old.mask == new.mask and old.bit == old.issue

    def _private(self, st: State, agents: tuple[int, ...], old: Access, new: Access) -> bool:
        """Tell whether the thread that did `old` is the one that does `new`, and knows its end."""
        if old.agent not in agents or Rule.SAME_THREAD in self.without:
            return False
        if not old.bit & (st.g[old.agent] | st.own[old.agent]):
            return False
        if new.any_lane and len(agents) > 1:
            return False
        if len(agents) > 1 or not old.threads or not new.threads:
            return True
        return apart(old.threads, new.threads, new.base - old.base)

    def _proxy(self, old: Access, new: Access) -> None:
        remote = not old.shared and old.cta != new.cta
        if old.engine and not remote:
            return
        if not (old.write or new.write):
            return
        rule = Rule.PROXY_REMOTE if remote else Rule.PROXY_WRITE
        rule = rule if old.write else Rule.PROXY_READ
        if rule in self.without:
            return
        says = f"no proxy fence between it and {old.what} of {old.where}"
        if rule is Rule.PROXY_READ and self.policy != "strict":
            says += "; an H200 has been seen to read what is written"
            self.warnings.setdefault(("proxy", new.where), says)
            return
        raise Defect(rule, "proxy", new.where, says, (old.agent, old.where))

    def _late_fence(self, st: State, old: Access, new: Access) -> None:
        """Warn of a fence by a thread that observed a write, where the writer could have fenced."""
        if old.engine or not old.write or old.cta != new.cta:
            return
        if old.bit != old.issue and not old.bit & st.own[old.agent]:
            return  # a cp.async that its thread has not awaited: nobody but an observer can fence
        if Rule.PROXY_WRITE not in self.without:
            says = f"{old.what} of {old.where} is fenced by who observed it, not by who wrote it"
            self.warnings.setdefault(("proxy", new.where), says)

    def _conflict(self, st: State, agents: tuple[int, ...], old: Access, new: Access) -> None:
        if old.barrier and new.barrier:
            if new.adds or Rule.INIT in self.without:
                return  # a use: `Barriers.alive` demands that it knows of the begin
            says = f"nothing orders it after {old.where}"
            raise Defect(Rule.INIT, "init", new.where, says, (old.agent, old.where))
        if old.adds and old.adds == new.adds:
            sums = self.plan.kernel.determinism == "bitwise" and not new.exact
            if sums:
                says = f"its additions to {new.what} and those of {old.where} have no order"
                self.plan.refuse(Rule.DETERMINISM, "determinism", new.where, says)
            return
        known = -1
        for i in agents:
            known &= st.g[i]
        rule = Rule.WAR if not old.write else Rule.WAW if new.write else Rule.RAW
        kind = rule.name
        if old.cta != new.cta:
            plain = all(old.bit & st.s[i] for i in agents)
            if old.bit != old.issue and all(old.issue & st.g[i] for i in agents):
                rule, kind = (Rule.DRAIN, "drain") if not old.shared else (rule, kind)
            elif plain:
                rule, kind = Rule.SCOPE, "scope"
        if rule in self.without:
            return
        if rule is Rule.WAR and self.policy != "strict" and old.whole & known:
            says = f"{old.where} is awaited by another warp of its warpgroup only"
            self.warnings.setdefault(("WAR", new.where), says)
            return
        verb = "writes" if new.write else "reads"
        done = "the end of " if old.bit != old.issue else ""
        says = f"{verb} {new.what}; nothing orders it after {done}{old.where}"
        raise Defect(rule, kind, new.where, says, (old.agent, old.where))

    def _alive(self, st: State, new: Access) -> None:
        if Rule.INIT in self.without:
            return
        plan = self.plan
        for barrier in plan.kernel.barriers:
            low = plan.places[barrier.name] // plan.granule
            mask = (1 << 8 * barrier.slots // plan.granule) - 1 << low
            slot = new.space * plan.slots_per_cta + plan.first_slot[barrier.name]
            if mask & new.mask and st.slots[slot][ALIVE]:
                says = f"{new.what} lies on bytes of the barrier {barrier.name}, which is alive"
                raise Defect(Rule.INIT, "init", new.where, says)

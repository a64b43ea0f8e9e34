"""The counters of a CTA or a cluster: mbarriers, named barriers, the cluster's barrier."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from oracles.explorer.plan import Plan
from oracles.explorer.rules import Defect, Rule
from oracles.explorer.state import (
    ALIVE,
    ARRIVED,
    BYTES_DUE,
    COUNTED_S,
    DONE,
    DONE_A,
    DONE_FAR,
    DONE_S,
    EMPTY_SLOT,
    GIVEN,
    GIVEN_A,
    GIVEN_FAR,
    GIVEN_S,
    PHASE,
    PLEDGES,
    WAITS,
    Op,
    State,
    Step,
)

_NAMED = (0, 0, 0, 0, 0, 0, 0)
_CLUSTER = (0, 0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class Barriers:
    """What arrivals and waits do to a state."""

    plan: Plan
    seen: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    """The phase that each wait (its event) has seen, in any interleaving so far in which its CTA
    was the last to come in the same elections."""
    ends: dict[tuple[object, ...], int] = field(default_factory=dict)
    """The event of the completion of each phase."""

    def _end(self, *key: object) -> int:
        if key not in self.ends:
            self.ends[key] = self.plan.event()
        return self.ends[key]

    # --- mbarriers --------------------------------------------------------------------------

    def life(self, st: State, step: Step) -> None:
        """Begin or end the life of all slots of a barrier."""
        begins = step.op is Op.INIT
        for slot in range(step.slot, step.slot + step.number):
            if bool(st.slots[slot][ALIVE]) == begins and Rule.INIT not in self.plan.without:
                says = f"{self.plan.slot_name(slot)} is {'already' if begins else 'not'} alive"
                raise Defect(Rule.INIT, "init", step.where, says)
            fields = list(EMPTY_SLOT)
            if begins:
                fields[ARRIVED] = self.plan.counts[slot % self.plan.slots_per_cta]
                fields[ALIVE] = step.bit
            st.slots[slot] = tuple(fields)

    def alive(self, st: State, i: int, slot: int, step: Step) -> None:
        """Demand that an agent knows of the begin of the slot that it uses."""
        if Rule.INIT in self.plan.without:
            return
        begin, known = st.slots[slot][ALIVE], st.g[i] | st.own[i]
        home = slot // self.plan.slots_per_cta == self.plan.agents[i].cta
        if begin & known:
            if home or self.plan.publications[begin] & known:
                return
            why = "no fence_mbarrier_init makes it visible to other CTAs"
        else:
            why = "nothing orders it after its mbarrier_init" if begin else "it is not alive"
        raise Defect(Rule.INIT, "init", step.where, f"{self.plan.slot_name(slot)}: {why}")

    def count(self, st: State, i: int, step: Step) -> None:
        """Execute an arrival, an announcement of bytes, or the issue of an arrival by cp.async."""
        fields = list(st.slots[step.slot])
        self._lands(st, step.slot, fields[PHASE], st.s[i], step.where)
        if step.op is Op.EXPECT:
            self._record(st, step.slot, step.bit, plain=False)
            fields[BYTES_DUE] += step.flag * step.number
            fields[PLEDGES] |= step.bit
            st.slots[step.slot] = tuple(fields)
            return
        if step.op is Op.CP_ARRIVE:
            if not step.flag:
                fields[ARRIVED] += step.number
                fields[PLEDGES] |= step.bit
                st.slots[step.slot] = tuple(fields)
            st.flight += ((step.slot, step.number, 0, step.grants, st.s[i], step.flag),)
            return
        self._record(st, step.slot, step.bit, plain=not step.flag)
        fields[BYTES_DUE] += step.flag * step.number
        fields[GIVEN_S] |= st.s[i]
        fields[COUNTED_S] |= st.s[i]
        if Rule.MBARRIER_RELEASE not in self.plan.without:
            agent, known = self.plan.agents[i], st.g[i] | st.own[i]
            if not step.flag:
                known |= self.plan.speaks(agent, known)
            if step.slot // self.plan.slots_per_cta == agent.cta:
                fields[GIVEN] |= known
                fields[GIVEN_A] |= st.a[i]
            else:
                wide = step.reach is not kir.Scope.CTA
                fields[GIVEN_FAR] |= known if wide else st.near[i]
                fields[GIVEN_A] |= st.a[i] & self.plan.shared_bits
        self._arrive(st, fields, step.slot, step.number, step.where)
        self._complete(st, step.slot, fields, step.where)

    def land(self, st: State, landing: tuple[int, ...]) -> None:
        """Count the end of an asynchronous operation on its barrier."""
        slot, arrivals, nbytes, events, issued, counted = landing
        fields = list(st.slots[slot])
        where = f"{self.plan.slot_name(slot)}: end of a copy"
        if not fields[ALIVE]:
            if Rule.INIT in self.plan.without:
                return
            raise Defect(Rule.INIT, "init", where, "the barrier is not alive any more")
        self._lands(st, slot, fields[PHASE], issued, where)
        fields[GIVEN_S] |= issued | events
        if counted:
            fields[COUNTED_S] |= issued | events
        rule = Rule.CP_ASYNC_ARRIVE if arrivals else Rule.COMPLETE_TX
        if rule not in self.plan.without:
            fields[GIVEN] |= events
        if arrivals:
            self._record(st, slot, events, plain=False)
            self._arrive(st, fields, slot, arrivals, where)
        fields[BYTES_DUE] -= nbytes
        self._complete(st, slot, fields, where)

    def _record(self, st: State, slot: int, events: int, *, plain: bool) -> None:
        running, last = st.arrivals.get(slot, ((), ()))
        st.arrivals[slot] = ((*running, (events, plain)), last)

    def _lands(self, st: State, slot: int, phase: int, knows: int, where: str) -> None:
        """See whether it can land in the phase before (`search`, 6)."""
        if not phase or self._end(slot, phase - 1) & knows:
            return
        last = st.arrivals.get(slot, ((), ()))[1]
        if last and all(plain and event & knows for event, plain in last):
            return
        says = f"it may come before phase {phase - 1} of {self.plan.slot_name(slot)} has ended"
        st.early = st.early or ("parity", where, says)
        st.loose = st.loose or f"{where}: {says}"

    def _arrive(self, st: State, fields: list[int], slot: int, n: int, where: str) -> None:
        if n > fields[ARRIVED] and Rule.ARRIVALS not in self.plan.without:
            says = f"{n} arrivals on {self.plan.slot_name(slot)}, which misses {fields[ARRIVED]}"
            raise Defect(Rule.ARRIVALS, "arrivals", where, f"{says} in phase {fields[PHASE]}")
        fields[ARRIVED] -= n

    def _complete(self, st: State, slot: int, fields: list[int], where: str) -> None:
        while fields[ARRIVED] <= 0 and not fields[BYTES_DUE]:
            given, phase = fields[GIVEN_S], fields[PHASE]
            if fields[WAITS] & ~given and not st.loose:
                st.loose = f"{where}: phase {phase} may end before a wait for the one before passes"
            if fields[PLEDGES] & ~fields[COUNTED_S] and not st.loose:
                st.loose = f"{where}: phase {phase} may end before all of it is announced"
            st.arrivals[slot] = ((), st.arrivals.get(slot, ((), ()))[0])
            fields[DONE] = fields[GIVEN]
            fields[DONE_FAR], fields[DONE_A] = fields[GIVEN_FAR], fields[GIVEN_A]
            fields[DONE_S] = given | self._end(slot, phase)
            fields[GIVEN] = fields[GIVEN_FAR] = fields[GIVEN_A] = fields[GIVEN_S] = 0
            fields[WAITS] = fields[PLEDGES] = fields[COUNTED_S] = 0
            fields[PHASE] += 1
            fields[ARRIVED] += self.plan.counts[slot % self.plan.slots_per_cta]
        st.slots[slot] = tuple(fields)

    def wait(self, st: State, i: int, step: Step) -> None:
        """Pass a wait."""
        fields = list(st.slots[step.slot])
        phase = fields[PHASE] - 1
        outcomes = self.plan.outcomes(st, self.plan.agents[i].cta)
        first = self.seen.setdefault((step.bit, outcomes), phase)
        if first != phase and Rule.PHASE not in self.plan.without:
            says = f"passes for phase {phase} of {self.plan.slot_name(step.slot)} in this"
            says += f" interleaving, and for phase {first} in another"
            raise Defect(Rule.PHASE, "parity", step.where, says)
        if phase > 0 and not st.loose and not self._end(step.slot, phase - 1) & st.s[i]:
            st.loose = f"{step.where}: it may begin before phase {phase - 1} has ended"
        st.s[i] |= fields[DONE_S]
        if Rule.MBARRIER_ACQUIRE not in self.plan.without:
            far = step.reach is not kir.Scope.CTA
            st.g[i] |= fields[DONE] | (fields[DONE_FAR] if far else 0)
            st.a[i] |= fields[DONE_A]
        fields[WAITS] |= step.bit
        st.slots[step.slot] = tuple(fields)

    # --- barriers of threads ----------------------------------------------------------------

    def block(self, st: State, i: int, step: Step) -> None:
        """Arrive at a named barrier; sleep there, or go on."""
        agent, without = self.plan.agents[i], self.plan.without
        key = (agent.cta, step.slot)
        count, promised, turn, g, a, s, sleepers = st.named.get(key, _NAMED)
        if count and promised != step.number and Rule.COLLECTIVE not in without:
            says = f"{step.number} threads at barrier {step.slot}, where others say {promised}"
            raise Defect(Rule.COLLECTIVE, "collective", step.where, says)
        if turn and not self._end(*key, turn - 1, "named") & st.s[i]:
            says = f"it may come before turn {turn - 1} of barrier {step.slot} is over"
            st.early = st.early or ("collective", step.where, says)
            st.loose = st.loose or f"{step.where}: {says}"
        count += agent.lanes
        if count > step.number and Rule.COLLECTIVE not in without:
            says = f"{count} threads arrive at barrier {step.slot}, made for {step.number}"
            raise Defect(Rule.COLLECTIVE, "collective", step.where, says)
        s |= st.s[i]
        blocks = step.op is Op.BLOCK_SYNC
        if (Rule.BLOCK_SYNC if blocks else Rule.NAMED_ARRIVE) not in without:
            g, a = g | st.g[i] | st.own[i], a | st.a[i]
        if blocks:
            sleepers |= 1 << i
            st.asleep |= 1 << i
        if count < step.number:
            st.named[key] = (count, step.number, turn, g, a, s, sleepers)
            return
        s |= self._end(*key, turn, "named")
        for j in range(len(st.pcs)):
            if sleepers >> j & 1:
                st.g[j] |= g
                st.a[j] |= a
                st.s[j] |= s
        st.asleep &= ~sleepers
        st.named[key] = (0, 0, turn + 1, 0, 0, 0, 0)

    def cluster_ready(self, st: State, i: int, step: Step) -> bool:
        """Tell whether the turn of the cluster's barrier at which agent `i` arrived is over."""
        key = self.plan.ctas[self.plan.agents[i].cta] // self.plan.kernel.cluster
        state = st.cluster.get(key, _CLUSTER)
        if not state[7] >> i & 1 and Rule.COLLECTIVE not in self.plan.without:
            raise Defect(
                Rule.COLLECTIVE, "collective", step.where, "no cluster_arrive stands before it"
            )
        return bool(state[8] >> i & 1)

    def cluster_arrive(self, st: State, i: int, step: Step) -> None:
        """Arrive at the barrier of the cluster."""
        plan, agent = self.plan, self.plan.agents[i]
        key = plan.ctas[agent.cta] // plan.kernel.cluster
        count, g, a, s, done_g, done_a, done_s, owed, ready = st.cluster.get(key, _CLUSTER)
        if owed >> i & 1 and Rule.COLLECTIVE not in plan.without:
            says = "it arrives again before a cluster_wait"
            raise Defect(Rule.COLLECTIVE, "collective", step.where, says)
        given = st.g[i] | st.own[i]
        if step.flag:
            given = st.near[i] | plan.published(st.own[i])
        if Rule.CLUSTER_BARRIER not in plan.without:
            g, a = g | given, a | st.a[i] & plan.shared_bits
        late = plan.remote_bits & ~st.near[i] if step.flag else 0
        count, s, owed = count + agent.lanes, s | st.s[i] & ~late, owed | 1 << i
        if count == plan.kernel.threads * plan.kernel.cluster:
            st.cluster[key] = (0, 0, 0, 0, g, a, s, owed, owed)
        else:
            st.cluster[key] = (count, g, a, s, done_g, done_a, done_s, owed, ready)

    def cluster_wait(self, st: State, i: int) -> None:
        """Pass the barrier of the cluster."""
        key = self.plan.ctas[self.plan.agents[i].cta] // self.plan.kernel.cluster
        *head, g, a, s, owed, ready = st.cluster[key]
        st.g[i] |= g
        st.a[i] |= a
        st.s[i] |= s
        st.cluster[key] = (*head, g, a, s, owed & ~(1 << i), ready & ~(1 << i))

    def end(self, st: State) -> None:
        """Check counters when all agents are done."""
        for slot, fields in enumerate(st.slots):
            if fields[BYTES_DUE] and Rule.BYTES not in self.plan.without:
                says = f"phase {fields[PHASE]} ends with {fields[BYTES_DUE]} bytes pending"
                raise Defect(Rule.BYTES, "bytes", self.plan.slot_name(slot), says)
        for (cta, barrier), named in st.named.items():
            if named[0] and Rule.COLLECTIVE not in self.plan.without:
                says = f"{named[0]} of {named[1]} threads have arrived at the end"
                where = f"barrier {barrier} of cta {self.plan.ctas[max(cta, 0)]}"
                raise Defect(Rule.COLLECTIVE, "collective", where, says)
        for group in st.cluster.values():
            if group[7] and Rule.COLLECTIVE not in self.plan.without:
                first = (group[7] & -group[7]).bit_length() - 1
                says = "it has arrived at the cluster's barrier and never waits"
                raise Defect(Rule.COLLECTIVE, "collective", self.plan.agents[first].name, says)

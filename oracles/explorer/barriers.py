"""The counters at which agents wait: mbarriers, barriers of threads and of CTAs, semaphores."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from oracles.explorer.plan import Plan, value
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
_FRESH = (0, -1, 0, 0, 0, -1, 0)
_NONE_ARRIVED = (0, 0, 0, 0, 0, 0)


def wake(st: State, key: tuple[int, int], end: int) -> None:
    """Let go who sleeps where the last thread has arrived; `end` is the event of its completion."""
    _, _, turn, g, a, s, sleepers = st.named[key]
    for j in range(len(st.pcs)):
        if sleepers >> j & 1:
            st.g[j] |= g
            st.a[j] |= a
            st.s[j] |= s | end
    st.asleep &= ~sleepers
    st.named[key] = (0, 0, turn + 1, 0, 0, 0, 0)


@dataclass(slots=True)
class Barriers:
    """What arrivals, waits, turns of semaphores and meetings of CTAs do to a state."""

    plan: Plan
    seen: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    """The phase that each wait (its event) has seen, in any interleaving so far in which its CTA
    was the last-arriving one in the same elections."""
    ends: dict[tuple[object, ...], int] = field(default_factory=dict)
    """The event of the completion of each phase, meeting of CTAs, or arrival of a last CTA."""
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)
    """The only CTA that may be the last to arrive at an integer (`search`, 5)."""
    _waits: dict[tuple[str, int, int], dict[int, int]] = field(default_factory=dict)
    """The last wait for each number of an integer: agent to position."""

    def __post_init__(self) -> None:
        for n, agent in enumerate(self.plan.agents):
            for pc, step in enumerate(agent.steps):
                if isinstance(step.stmt, kir.BlockSerializeWait):
                    key = (step.stmt.semaphore.name, step.slot, step.number)
                    self._waits.setdefault(key, {})[n] = pc

    def _end(self, *key: object) -> int:
        if key not in self.ends:
            self.ends[key] = self.plan.event()
        return self.ends[key]

    # --- mbarriers --------------------------------------------------------------------------

    def life(self, st: State, step: Step) -> None:
        """Begin or end the life of all slots of a barrier."""
        begins = step.op is Op.INIT
        for slot in range(step.slot, step.slot + step.number):
            if bool(st.slots[slot][ALIVE]) == begins:
                says = f"{self.plan.slot_name(slot)} is {'already' if begins else 'not'} alive"
                self.plan.refuse(Rule.INIT, "init", step.where, says)
            cta, at = divmod(slot, self.plan.slots_per_cta)
            for other in self.plan.beside[at] if begins else ():
                if st.slots[cta * self.plan.slots_per_cta + other][ALIVE]:
                    says = f"it has bytes of {self.plan.names[other]}, which is alive"
                    self.plan.refuse(Rule.INIT, "init", step.where, says)
            fields = list(EMPTY_SLOT)
            if begins:
                fields[ARRIVED] = self.plan.counts[slot % self.plan.slots_per_cta]
                fields[ALIVE] = step.bit
            st.slots[slot] = tuple(fields)

    def alive(self, st: State, i: int, slot: int, step: Step) -> bool:
        """Demand that an agent knows of the begin of the slot that it uses.

        Return whether it also knows of a fence behind that, which in one CTA nobody needs.
        """
        if Rule.INIT in self.plan.without:
            return True
        begin, known = st.slots[slot][ALIVE], st.g[i] | st.own[i]
        home = slot // self.plan.slots_per_cta == self.plan.agents[i].cta
        if begin & known:
            fenced = bool(self.plan.publications[begin] & known)
            if home or fenced:
                return fenced
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
                known |= self.plan.released_parts(agent, known)
            if isinstance(step.stmt, kir.MBarrierArrive) and step.stmt.space is kir.Space.SHARED:
                known = self.plan.of_shared(known, agent.cta)
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
            fields[GIVEN_FAR if events & self.plan.far_bits else GIVEN] |= events
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
        if n > fields[ARRIVED]:
            says = f"{n} arrivals on {self.plan.slot_name(slot)}, which misses {fields[ARRIVED]}"
            self.plan.refuse(Rule.ARRIVALS, "arrivals", where, f"{says} in phase {fields[PHASE]}")
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
        if first != phase:
            says = f"passes for phase {phase} of {self.plan.slot_name(step.slot)} in this"
            says += f" interleaving, and for phase {first} in another"
            self.plan.refuse(Rule.PHASE, "parity", step.where, says)
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
        if count and promised != step.number:
            says = f"{step.number} threads at barrier {step.slot}, where others say {promised}"
            self.plan.refuse(Rule.COLLECTIVE, "collective", step.where, says)
        if turn and not self._end(*key, turn - 1, "named") & st.s[i]:
            says = f"it may come before generation {turn - 1} of barrier {step.slot} is over"
            st.early = st.early or ("collective", step.where, says)
            st.loose = st.loose or f"{step.where}: {says}"
        count += agent.lanes
        if count > step.number:
            says = f"{count} threads arrive at barrier {step.slot}, made for {step.number}"
            self.plan.refuse(Rule.COLLECTIVE, "collective", step.where, says)
        s |= st.s[i]
        blocks = step.op is Op.BLOCK_SYNC
        if (Rule.BLOCK_SYNC if blocks else Rule.NAMED_ARRIVE) not in without:
            g, a = g | st.g[i] | st.own[i], a | st.a[i]
        if blocks:
            sleepers |= 1 << i
            st.asleep |= 1 << i
        st.named[key] = (count, step.number, turn, g, a, s, sleepers)
        if count >= step.number:
            wake(st, key, self._end(*key, turn, "named"))

    def cluster_ready(self, st: State, i: int, step: Step) -> bool:
        """Tell whether the turn of the cluster's barrier at which agent `i` arrived is over."""
        key = self.plan.ctas[self.plan.agents[i].cta] // self.plan.kernel.cluster
        state = st.cluster.get(key, _CLUSTER)
        if not state[7] >> i & 1:
            self.plan.refuse(
                Rule.COLLECTIVE, "collective", step.where, "no cluster_arrive stands before it"
            )
        return bool(state[8] >> i & 1)

    def cluster_arrive(self, st: State, i: int, step: Step) -> None:
        """Arrive at the barrier of the cluster."""
        plan, agent = self.plan, self.plan.agents[i]
        key = plan.ctas[agent.cta] // plan.kernel.cluster
        count, g, a, s, done_g, done_a, done_s, owed, ready = st.cluster.get(key, _CLUSTER)
        if owed >> i & 1:
            says = "it arrives again before a cluster_wait"
            plan.refuse(Rule.COLLECTIVE, "collective", step.where, says)
        given = st.g[i] | st.own[i]
        if step.flag:
            given = st.near[i] | plan.published(st.own[i])
        if Rule.CLUSTER_BARRIER not in plan.without:
            g, a = g | given, a | st.a[i] & plan.shared_bits
        late = plan.remote_bits & ~st.near[i] if step.flag else 0
        count, s, owed = count + agent.lanes, s | st.s[i] & ~late, owed | 1 << i
        if count == plan.kernel.threads * plan.kernel.cluster:
            s |= plan.begun.get(key, 0)
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

    # --- semaphores -------------------------------------------------------------------------

    def turn(self, st: State, step: Step) -> tuple[int, ...]:
        """Return the state of the semaphore that a step names."""
        assert isinstance(step.stmt, kir.BlockSerializeWait | kir.BlockSerializeRelease)
        return st.turns.get((step.stmt.semaphore.name, step.slot), _FRESH)

    def turn_wait(self, st: State, i: int, step: Step) -> None:
        """See the value of a turn."""
        assert isinstance(step.stmt, kir.BlockSerializeWait)
        key = (step.stmt.semaphore.name, step.slot)
        number, by, far, s, known, event, waits = self.turn(st, step)
        cta = self.plan.agents[i].cta
        if not st.loose and any(
            old[0] == step.number and not end & st.s[i] for old, end in st.past.get(key, ())
        ):
            st.loose = f"{step.where}: it may see an earlier turn of that number"
        st.turns[key] = (number, by, far, s, known, event, waits | step.bit)
        by, far, known, event = self._oldest(st, i, step, (by, far, known, event))
        if by >= 0 and by != cta:
            self._resident(by, cta, step)
        st.g[i] |= max(event, 0)
        if by == cta:
            st.g[i] |= known
        elif step.reach is kir.Scope.GPU:
            st.g[i] |= far
        st.s[i] |= s

    def _oldest(
        self, st: State, i: int, step: Step, now: tuple[int, int, int, int]
    ) -> tuple[int, int, int, int]:
        """Return the first release of a turn's number that a wait may see, and learns least from.

        An earlier one may be seen until what ended it happened before the wait, though that has
        been executed: the later release may not have become visible yet.
        """
        assert isinstance(step.stmt, kir.BlockSerializeWait)
        if Rule.SEEN in self.plan.without:
            return now
        before = st.g[i] | st.own[i]
        for old, end in st.past.get((step.stmt.semaphore.name, step.slot), ()):
            number, by, far, known, event = old
            less = not (far & ~now[1] or known & ~now[2])
            if number == step.number and not end & before and less:
                return by, far, known, event
        return now

    def _may_be_seen(self, st: State, key: tuple[str, int], old: tuple[int, ...], end: int) -> bool:
        """Whether some agent that does not know of a turn's end yet waits for its number."""
        return any(
            st.pcs[n] <= pc and not end & (st.g[n] | st.own[n])
            for n, pc in self._waits.get((*key, old[0]), {}).items()
        )

    def _resident(self, by: int, cta: int, step: Step) -> None:
        """Demand that a CTA may wait for another one."""
        kernel, ctas = self.plan.kernel, self.plan.ctas
        one, other = ctas[cta], ctas[by]
        sure = kernel.residency == "co-resident" or one // kernel.cluster == other // kernel.cluster
        near = other - one < value(kernel.together, self.plan.values)
        sure = sure or (kernel.residency == "ticket" and near)
        if not sure:
            says = f"cta {one} waits for cta {other}; residency is {kernel.residency!r}"
            self.plan.refuse(Rule.RESIDENCY, "residency", step.where, says)

    def turn_release(self, st: State, i: int, step: Step) -> None:
        """Give the turn away."""
        assert isinstance(step.stmt, kir.BlockSerializeRelease)
        key = (step.stmt.semaphore.name, step.slot)
        number, by, far, _, known, event, waits = self.turn(st, step)
        if event > 0 and not event & (st.g[i] | st.own[i]):
            says = f"nothing orders it after the release of turn {number}"
            self.plan.refuse(Rule.TURNS, "semaphore", step.where, says)
        if waits & ~st.s[i] and not st.loose:
            st.loose = f"{step.where}: turn {number} may be over before a wait has seen it"
        before = number, by, far, known, event
        known = st.g[i] | st.own[i]
        wide = step.reach is kir.Scope.GPU and not step.flag
        far = known if wide else st.far[i]
        if Rule.SEMAPHORE in self.plan.without:
            known = far = 0
        turns = (*st.past.get(key, ()), (before, step.bit))
        st.past[key] = tuple(turn for turn in turns if self._may_be_seen(st, key, *turn))
        cta = self.plan.agents[i].cta
        st.turns[key] = (step.number, cta, far, st.s[i], known, step.bit, 0)

    def grid(self, st: State, i: int, step: Step) -> None:
        """Arrive where CTAs meet, and sleep there until all of them are here."""
        assert isinstance(step.stmt, kir.GridSync)
        plan, name = self.plan, step.stmt.semaphore.name
        number = next(n for n, s in enumerate(plan.kernel.semaphores) if s.name == name)
        key = (-1 - number, step.slot)
        count, promised, turn, g, a, s, sleepers = st.named.get(key, _NAMED)
        threads = step.number
        if count and promised != threads:
            says = f"{threads} threads are to meet at {name}[{step.slot}], others say {promised}"
            plan.refuse(Rule.COLLECTIVE, "collective", step.where, says)
        count, sleepers = count + plan.agents[i].lanes, sleepers | 1 << i
        s |= st.s[i]
        if Rule.GRID_SYNC not in plan.without:
            g |= st.g[i] | st.own[i]
        st.asleep |= 1 << i
        st.named[key] = (count, threads, turn, g, a, s, sleepers)
        if count >= threads:
            self._gathered(sleepers, step)
            wake(st, key, self._end(*key, turn))

    def _gathered(self, sleepers: int, step: Step) -> None:
        """Demand that the same role of each CTA has met, and all were sure to run at once."""
        plan, kernel = self.plan, self.plan.kernel
        met = [agent for agent in plan.agents if sleepers >> agent.index & 1]
        found = {plan.ctas[agent.cta] for agent in met}
        warps = {agent.warp for agent in met}
        same = len({(agent.cta, agent.warp) for agent in met}) == len(found) * len(warps)
        same = same and step.number == len(found) * len(warps) * 32
        if not same:
            says = f"warps {sorted(warps)} of ctas {sorted(found)} meet, not the same of each"
            plan.refuse(Rule.COLLECTIVE, "collective", step.where, says)
        row = max(found) - min(found) + 1 == len(found)
        sure = len({cta // kernel.cluster for cta in found}) == 1 and len(found) <= kernel.cluster
        sure = sure or kernel.residency == "co-resident"
        sure = sure or (kernel.residency == "ticket" and row and bool(step.flag))
        if not sure:
            says = f"ctas {sorted(found)} wait for each other; residency is {kernel.residency!r}"
            says += "" if kernel.residency == "any" else ", and nothing says they run at once"
            plan.refuse(Rule.RESIDENCY, "residency", step.where, says)

    # --- arrivals ---------------------------------------------------------------------------

    def choices(self) -> list[tuple[tuple[int, int], tuple[int, ...]]]:
        """Return the integers of which any of several CTAs can be the last, and these CTAs."""
        places = dict.fromkeys(one.integer for one in self.plan.elections)
        out = []
        for at in places:
            mine = [one for one in self.plan.elections if one.integer == at]
            if self._once(at) and len(mine) >= mine[0].ctas > 1:
                out.append((at, tuple(one.cta for one in mine)))
        return out

    def _once(self, at: tuple[int, int]) -> bool:
        """Whether each CTA arrives at an integer once at most, and all agree on their number."""
        mine = [one for one in self.plan.elections if one.integer == at]
        once = len({one.cta for one in mine}) == len(mine)
        return once and len({one.ctas for one in mine}) == 1

    def may_arrive(self, st: State, step: Step) -> bool:
        """Whether a CTA may come now, where it is chosen who is the last."""
        mine = self.plan.elections[step.flag]
        if mine.integer not in self.chosen:
            return True
        ends = st.arriving.get(mine.integer, _NONE_ARRIVED)[0] + 1 == step.number
        return ends == (self.chosen[mine.integer] == mine.cta)

    def count_in(self, st: State, i: int, step: Step) -> None:
        """Count a CTA in by one thread, which learns whether it is the last."""
        plan, mine = self.plan, self.plan.elections[step.flag]
        without, name = plan.without, plan.kernel.semaphores[mine.integer[0]].name
        where = f"{name}[{step.slot}]"
        came, there, g, s, turn, over = st.arriving.get(mine.integer, _NONE_ARRIVED)
        others = [one for n, one in enumerate(plan.elections) if there >> n & 1]
        if any((one.ctas, one.role) != (mine.ctas, mine.role) for one in others):
            says = f"{mine.ctas} CTAs are to arrive at {where} by warps {mine.role}, others say "
            says += f"{others[0].ctas} by {others[0].role} (first, how many)"
            plan.refuse(Rule.COLLECTIVE, "collective", step.where, says)
        twice = any(one.cta == mine.cta for one in others)
        if twice or over & ~st.s[i]:
            says = f"cta {plan.ctas[mine.cta]} arrives at {where} twice"
            if not twice:
                says = f"nothing orders it after the last of the CTAs that arrived at {where}"
            self.plan.refuse(Rule.TURNS, "semaphore", step.where, says)
        if mine.ctas > 1 and (turn or not self._once(mine.integer)):
            st.loose = st.loose or f"{step.where}: another CTA may be the last"
        came, there, s = came + 1, there | 1 << step.flag, s | st.s[i]
        if Rule.ELECT_LAST not in without:
            g |= st.g[i] | st.own[i]
        last = st.elected[step.flag] = came == mine.ctas
        if not last:
            st.arriving[mine.integer] = (came, there, g, s, turn, over)
            return
        over = self._end(-1 - mine.integer[0], mine.integer[1], turn)
        st.g[i] |= g
        st.s[i] |= s | over
        st.arriving[mine.integer] = (0, 0, 0, 0, turn + 1, over)

    def goes_on(self, st: State, step: Step, body: int) -> int:
        """Return the step at which an agent goes on: the one of the body, or behind it."""
        if step.flag not in st.elected:
            says = "its threads have joined before one of them has counted"
            self.plan.refuse(Rule.COLLECTIVE, "collective", step.where, says)
        return body if st.elected.get(step.flag) else step.number

    def left_out(self, st: State) -> int:
        """Return the events of bodies that were skipped."""
        out = 0
        for number, last in st.elected.items():
            out |= 0 if last else self.plan.elections[number].body
        return out

    def end(self, st: State) -> None:
        """Check counters and semaphores when all agents are done."""
        for slot, fields in enumerate(st.slots):
            if fields[BYTES_DUE]:
                says = f"phase {fields[PHASE]} ends with {fields[BYTES_DUE]} bytes pending"
                self.plan.refuse(Rule.BYTES, "bytes", self.plan.slot_name(slot), says)
        for (cta, barrier), named in st.named.items():
            if named[0]:
                says = f"{named[0]} of {named[1]} threads have arrived at the end"
                where = f"barrier {barrier} of cta {self.plan.ctas[max(cta, 0)]}"
                self.plan.refuse(Rule.COLLECTIVE, "collective", where, says)
        for group in st.cluster.values():
            if group[7]:
                first = (group[7] & -group[7]).bit_length() - 1
                says = "it has arrived at the cluster's barrier and never waits"
                self.plan.refuse(Rule.COLLECTIVE, "collective", self.plan.agents[first].name, says)
        for (number, index), arriving in st.arriving.items():
            if arriving[0]:
                says = f"{arriving[0]} CTAs have arrived at the end of the launch, "
                says += "and none is the last"
                name = self.plan.kernel.semaphores[number].name
                self.plan.refuse(Rule.SEMAPHORE_ZERO, "semaphore", f"{name}[{index}]", says)
        for (name, index), turn in st.turns.items():
            if turn[0]:
                says = f"it is {turn[0]} at the end of the launch, where 0 is expected next"
                self.plan.refuse(Rule.SEMAPHORE_ZERO, "semaphore", f"{name}[{index}]", says)

"""The machine: what one step does to a state, with counters as the hardware has them.

`State.loose` is set where another interleaving might take another way; see `search`.

Source: PTX ISA 9.0, sections "mbarrier", "Memory consistency model", "Async proxy".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from oracles.explorer.barriers import Barriers
from oracles.explorer.maps import use_map
from oracles.explorer.memory import Memory
from oracles.explorer.plan import Plan
from oracles.explorer.rules import Defect, Rule
from oracles.explorer.state import ALIVE, Access, Op, State, Step
from oracles.explorer.unroll import JOIN_ACCESS, JOIN_AWAIT, JOIN_MEMORY, JOIN_TIME

Choice = tuple[int, int]
"""Who goes next: (0, agent) or (1, position in flight)."""


@dataclass(slots=True)
class Machine:
    """Executes the steps of a plan."""

    plan: Plan
    policy: str
    memory: Memory = field(init=False)
    barriers: Barriers = field(init=False)

    def __post_init__(self) -> None:
        self.memory = Memory(self.plan, self.policy, self.plan.without)
        self.barriers = Barriers(self.plan)

    def next_step(self, st: State, i: int) -> Step | None:
        """Return the step that agent `i` stands before; None at its end."""
        steps, pc = self.plan.agents[i].steps, st.pcs[i]
        return steps[pc] if pc < len(steps) else None

    def enabled(self, st: State, i: int) -> bool:
        """Tell whether agent `i` can go on now."""
        step = self.next_step(st, i)
        if step is None or st.asleep >> i & 1:
            return False
        match step.op:
            case Op.WAIT:
                slot = st.slots[step.slot]
                return not slot[ALIVE] or slot[2] % 2 != step.flag
            case Op.TURN_WAIT:
                return self.barriers.turn(st, step)[0] == step.number
            case Op.CLUSTER_WAIT:
                return self.barriers.cluster_ready(st, i, step)
            case Op.COUNT_IN:
                return self.barriers.may_arrive(st, step)
            case Op.POOL:
                return step.number <= st.pool.get(self.plan.agents[i].cta, 0)
            case Op.JOIN:
                issued = all(e in st.issues for events in step.mates for e in events)
                mates = self.plan.agents[i].mates
                return issued and all(self._meets(st, mate, step) for mate in mates)
            case _:
                return True

    def _meets(self, st: State, mate: int, step: Step) -> bool:
        other = self.next_step(st, mate)
        return (
            other is not None
            and other.op is Op.JOIN
            and other.stmt is step.stmt
            and other.number == step.number
        )

    def local(self, st: State, i: int) -> bool:
        """Tell whether the next step of agent `i` is one that no other agent can see."""
        step = self.next_step(st, i)
        return step is not None and step.op < Op.ARRIVE and self.enabled(st, i)

    def _has_begun(self, st: State, i: int, access: Access) -> None:
        """Check that a CTA of the cluster runs that threads store into.

        Source: CUDA programming guide, "distributed shared memory": before that, all have met.
        """
        far = access.shared and access.space != access.cta
        if far and access.write and not (access.engine or access.barrier):
            begun = self.plan.begun[self.plan.ctas[access.cta] // self.plan.kernel.cluster]
            if not st.s[i] & begun:
                says = f"{access.what} is of a CTA that may not have begun"
                self.plan.refuse(Rule.BEGUN, "residency", access.where, says)

    def advance(self, st: State, i: int) -> None:
        """Execute the next step of agent `i`, which is enabled."""
        step = self.next_step(st, i)
        assert step is not None, "an enabled agent has a step"
        barriers = self.barriers
        if step.op is Op.JOIN:
            self._join(st, i, step)
            return
        st.pcs[i] += 1
        if step.op in (Op.INIT, Op.INVALIDATE):
            barriers.life(st, step)
        for slot, _, _ in step.lands:
            engine = not isinstance(step.stmt, kir.StAsync)
            if not barriers.alive(st, i, slot, step) and engine and self.policy == "strict":
                says = f"no fence_mbarrier_init behind the init of {self.plan.slot_name(slot)}"
                self.memory.warnings.setdefault(("init", step.where), says)
        for access in step.accesses:
            self._has_begun(st, i, access)
            self.memory.touch(st, (i,), access)
        if isinstance(step.stmt, kir.OnSemaphore | kir.TensorMapReplace):
            self.memory.ended(st, (i,), step.where)
        if step.map is not None:
            self.memory.checked += 1
            use_map(self.plan, st, i, step, step.map)
        st.own[i] |= step.bit
        st.s[i] |= step.bit
        match step.op:
            case Op.ACCESS | Op.INIT | Op.INVALIDATE | Op.MAP:
                pass
            case Op.AWAIT:
                st.own[i] |= step.grants
                st.s[i] |= step.grants
            case Op.FENCE:
                self._fence(st, i, step)
            case Op.THREAD_FENCE:
                if Rule.THREAD_FENCE not in self.plan.without:
                    known = st.g[i] | st.own[i]
                    if step.reach is not kir.Scope.CTA:
                        st.near[i] |= known
                    if step.reach is kir.Scope.GPU:
                        st.far[i] |= known
            case Op.INIT_FENCE:
                if Rule.INIT_FENCE not in self.plan.without:
                    st.own[i] |= self.plan.publication(st.own[i])
            case Op.TMA_LOAD:
                issued = tuple((s, 0, n, bit, st.s[i], 0) for s, n, bit in step.lands)
                st.flight += issued
            case Op.ARRIVE | Op.EXPECT | Op.CP_ARRIVE:
                barriers.alive(st, i, step.slot, step)
                barriers.count(st, i, step)
            case Op.WAIT:
                barriers.alive(st, i, step.slot, step)
                barriers.wait(st, i, step)
            case Op.BLOCK_SYNC | Op.NAMED_ARRIVE:
                barriers.block(st, i, step)
            case Op.CLUSTER_ARRIVE:
                barriers.cluster_arrive(st, i, step)
            case Op.CLUSTER_WAIT:
                barriers.cluster_wait(st, i)
            case Op.TURN_WAIT:
                self.barriers.turn_wait(st, i, step)
            case Op.TURN_RELEASE:
                self.barriers.turn_release(st, i, step)
            case Op.GRID_SYNC:
                self.barriers.grid(st, i, step)
            case Op.COUNT_IN:
                self.barriers.count_in(st, i, step)
            case Op.SKIP:
                st.pcs[i] = self.barriers.goes_on(st, step, st.pcs[i])
            case Op.POOL:
                self._pool(st, i, step)

    def finish(self, st: State, position: int) -> None:
        """End an operation in flight."""
        landing = st.flight[position]
        st.flight = st.flight[:position] + st.flight[position + 1 :]
        self.barriers.land(st, landing)

    def _fence(self, st: State, i: int, step: Step) -> None:
        space = 0
        if step.flag & 1 and Rule.PROXY_FENCE_SHARED not in self.plan.without:
            space |= self.plan.shared_bits
        if step.flag & 2 and Rule.PROXY_FENCE_GLOBAL not in self.plan.without:
            space |= self.plan.global_bits
        st.foreign |= st.g[i] & space & ~st.own[i] & ~st.a[i]
        st.a[i] |= (st.g[i] | st.own[i]) & space

    def _join(self, st: State, i: int, step: Step) -> None:
        mates = self.plan.agents[i].mates
        if step.flag == JOIN_ACCESS:
            theirs = [self.next_step(st, mate) for mate in mates]
            access, *others = (a for one in theirs if one is not None for a in one.accesses)
            self.memory.touch(st, mates, access, tuple(others))
        else:
            for access in step.accesses:
                self.memory.touch(st, mates, access)
        time = known = fenced = 0
        for mate in mates:
            time |= st.s[mate]
            known |= st.g[mate] | st.own[mate]
            fenced |= st.a[mate]
        for events in step.mates:
            for event in events:
                time |= st.issues[event]
        if step.flag == JOIN_TIME and step.grants:
            st.issues[step.grants] = time
        joins = step.flag == JOIN_MEMORY and Rule.WARP_SYNC not in self.plan.without
        for mate in mates:
            done = self.plan.agents[mate].steps[st.pcs[mate]].bit
            st.pcs[mate] += 1
            st.own[mate] |= done
            st.s[mate] = time | done
            if joins:
                st.g[mate] |= known
                st.a[mate] |= fenced
            if step.flag == JOIN_AWAIT:
                st.g[mate] |= step.grants
                st.s[mate] |= step.grants

    def _pool(self, st: State, i: int, step: Step) -> None:
        known = st.g[i] | st.own[i]
        late = any(event & ~known for events in step.mates for event in events)
        if late:
            says = "nothing orders it after the change before of every warp of its warpgroup"
            self.plan.refuse(Rule.REGISTER_POOL, "registers", step.where, says)
        cta = self.plan.agents[i].cta
        st.pool[cta] = st.pool.get(cta, 0) - step.number
        if step.number > 0:
            st.taken |= step.bit
        elif st.s[i] & st.taken:
            st.loose = st.loose or f"{step.where}: registers are given back after some were taken"

    def held(self, st: State) -> bool:
        """Tell whether some agent waits only because another CTA was chosen to be the last."""
        steps = [self.next_step(st, i) for i in range(len(st.pcs)) if not st.asleep >> i & 1]
        come = [step for step in steps if step is not None and step.op is Op.COUNT_IN]
        return any(not self.barriers.may_arrive(st, step) for step in come)

    def done(self, st: State) -> bool:
        """Tell whether every agent is at its end."""
        ends = zip(st.pcs, self.plan.agents, strict=True)
        return not st.asleep and all(pc == len(agent.steps) for pc, agent in ends)

    def end(self, st: State) -> None:
        """Check what is left when all agents are done: in flight, on barriers and semaphores."""
        seen = [0] * len(self.plan.ctas)
        for agent in self.plan.agents:
            seen[agent.cta] |= st.s[agent.index]
        left_out = self.barriers.left_out(st)
        for cta, event, what in self.plan.leaving:
            self.memory.checked += 1
            if not event & (seen[cta] | left_out):
                where = f"the end of cta {self.plan.ctas[cta]}"
                self.plan.refuse(Rule.EXIT, "exit", where, f"nobody there has waited for {what}")
        self.barriers.end(st)
        if self.plan.elections:
            self.memory.covered(st)

    def stuck(self, st: State) -> Defect:
        """Say what is wrong in a state in which nobody can go on."""
        rule, kind, waits = Rule.DEADLOCK, "deadlock", []
        for agent in self.plan.agents:
            step = self.next_step(st, agent.index)
            if st.asleep >> agent.index & 1:
                step = agent.steps[st.pcs[agent.index] - 1]
            if step is None:
                continue
            note = ""
            if step.op is Op.WAIT:
                slot = st.slots[step.slot]
                note = f" (phase {slot[2]}, {slot[0]} arrivals and {slot[1]} bytes pending)"
                if not slot[0] and slot[1]:
                    rule, kind = Rule.BYTES, "bytes"
            elif step.op is Op.POOL:
                rule, kind = Rule.REGISTER_POOL, "registers"
            waits.append(f"{agent.name} waits at {step.where}{note}")
        return Defect(rule, kind, waits[0].split(" at ", 1)[1], "; ".join(waits[:8]))

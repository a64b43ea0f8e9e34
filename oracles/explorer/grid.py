"""The counters by which CTAs learn of each other: turns of semaphores, meetings and arrivals."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from oracles.explorer.plan import Plan
from oracles.explorer.rules import Defect, Rule
from oracles.explorer.state import State, Step

_FRESH = (0, -1, 0, 0, 0, -1, 0)
_NOBODY = (0, 0, 0, 0, 0, 0, 0)
_NONE_CAME = (0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class Semaphores:
    """What turns and meetings of CTAs do to a state."""

    plan: Plan
    ends: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """The event of the completion of each meeting, or of the coming of a last CTA."""
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)
    """The only CTA that may be the last to come to an integer (`search`, 5)."""

    def _end(self, semaphore: int, index: int, turn: int) -> int:
        key = (semaphore, index, turn)
        if key not in self.ends:
            self.ends[key] = self.plan.event()
        return self.ends[key]

    def turn(self, st: State, step: Step) -> tuple[int, ...]:
        """Return the state of the semaphore that a step speaks of."""
        assert isinstance(step.stmt, kir.BlockSerializeWait | kir.BlockSerializeRelease)
        return st.turns.get((step.stmt.semaphore.name, step.slot), _FRESH)

    def turn_wait(self, st: State, i: int, step: Step) -> None:
        """See the value of a turn."""
        assert isinstance(step.stmt, kir.BlockSerializeWait)
        key = (step.stmt.semaphore.name, step.slot)
        number, by, far, s, known, event, waits = self.turn(st, step)
        cta = self.plan.agents[i].cta
        if by >= 0 and by != cta:
            self._resident(by, cta, step)
        if not st.loose and any(
            old == step.number and not end & st.s[i] for old, end in st.past.get(key, ())
        ):
            st.loose = f"{step.where}: it may see an earlier turn of that number"
        if by == cta:
            st.g[i] |= known
        elif step.reach is kir.Scope.GPU:
            st.g[i] |= far
        st.s[i] |= s
        st.turns[key] = (number, by, far, s, known, event, waits | step.bit)

    def _resident(self, by: int, cta: int, step: Step) -> None:
        """Demand that a CTA may wait for another one."""
        kernel, ctas = self.plan.kernel, self.plan.ctas
        one, other = ctas[cta], ctas[by]
        sure = kernel.residency == "co-resident" or one // kernel.cluster == other // kernel.cluster
        sure = sure or (kernel.residency == "ticket" and other < one)
        if not sure and Rule.RESIDENCY not in self.plan.without:
            says = f"cta {one} waits for cta {other}; residency is {kernel.residency!r}"
            raise Defect(Rule.RESIDENCY, "residency", step.where, says)

    def turn_release(self, st: State, i: int, step: Step) -> None:
        """Give the turn away."""
        assert isinstance(step.stmt, kir.BlockSerializeRelease)
        key = (step.stmt.semaphore.name, step.slot)
        number, _, _, _, _, event, waits = self.turn(st, step)
        if event > 0 and not event & st.s[i] and Rule.TURNS not in self.plan.without:
            says = f"nothing orders it after the release of turn {number}"
            raise Defect(Rule.TURNS, "semaphore", step.where, says)
        if waits & ~st.s[i] and not st.loose:
            st.loose = f"{step.where}: turn {number} may be over before a wait has seen it"
        known = st.g[i] | st.own[i]
        wide = step.reach is kir.Scope.GPU and not step.flag
        far = known if wide else st.far[i]
        if Rule.SEMAPHORE in self.plan.without:
            known = far = 0
        st.past[key] = (*st.past.get(key, ()), (number, step.bit))
        cta = self.plan.agents[i].cta
        st.turns[key] = (step.number, cta, far, st.s[i], known, step.bit, 0)

    def grid(self, st: State, i: int, step: Step) -> None:
        """Arrive where CTAs meet, and sleep there until all of them are here."""
        assert isinstance(step.stmt, kir.GridSync)
        plan, name = self.plan, step.stmt.semaphore.name
        number = next(n for n, s in enumerate(plan.kernel.semaphores) if s.name == name)
        key = (-1 - number, step.slot)
        count, promised, turn, g, a, s, sleepers = st.named.get(key, _NOBODY)
        threads = step.number
        if count and promised != threads and Rule.COLLECTIVE not in plan.without:
            says = f"{threads} threads are to meet at {name}[{step.slot}], others say {promised}"
            raise Defect(Rule.COLLECTIVE, "collective", step.where, says)
        count, sleepers = count + plan.agents[i].lanes, sleepers | 1 << i
        s |= st.s[i]
        if Rule.GRID_SYNC not in plan.without:
            g |= st.g[i] | st.own[i]
        st.asleep |= 1 << i
        if count < threads:
            st.named[key] = (count, threads, turn, g, a, s, sleepers)
            return
        self._gathered(sleepers, step)
        s |= self._end(*key, turn)
        for j in range(len(st.pcs)):
            if sleepers >> j & 1:
                st.g[j] |= g
                st.s[j] |= s
        st.asleep &= ~sleepers
        st.named[key] = (0, 0, turn + 1, 0, 0, 0, 0)

    def _gathered(self, sleepers: int, step: Step) -> None:
        """Demand that the same role of each CTA has met, and all were sure to run at once."""
        plan, kernel = self.plan, self.plan.kernel
        met = [agent for agent in plan.agents if sleepers >> agent.index & 1]
        found = {plan.ctas[agent.cta] for agent in met}
        warps = {agent.warp for agent in met}
        same = len({(agent.cta, agent.warp) for agent in met}) == len(found) * len(warps)
        same = same and step.number == len(found) * len(warps) * 32
        if not same and Rule.COLLECTIVE not in plan.without:
            says = f"warps {sorted(warps)} of ctas {sorted(found)} meet, not the same of each"
            raise Defect(Rule.COLLECTIVE, "collective", step.where, says)
        row = max(found) - min(found) + 1 == len(found)
        sure = len({cta // kernel.cluster for cta in found}) == 1 and len(found) <= kernel.cluster
        sure = sure or kernel.residency == "co-resident"
        sure = sure or (kernel.residency == "ticket" and row and bool(step.flag))
        if not sure and Rule.RESIDENCY not in plan.without:
            says = f"ctas {sorted(found)} wait for each other; residency is {kernel.residency!r}"
            says += "" if kernel.residency == "any" else ", and nothing says they run at once"
            raise Defect(Rule.RESIDENCY, "residency", step.where, says)

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
        """Whether each CTA comes to an integer once, if it does, and all agree on their number."""
        mine = [one for one in self.plan.elections if one.integer == at]
        once = len({one.cta for one in mine}) == len(mine)
        return once and len({one.ctas for one in mine}) == 1

    def may_come(self, st: State, step: Step) -> bool:
        """Whether a CTA may come now, where it is chosen who is the last."""
        mine = self.plan.elections[step.flag]
        if mine.integer not in self.chosen:
            return True
        ends = st.comers.get(mine.integer, _NONE_CAME)[0] + 1 == step.number
        return ends == (self.chosen[mine.integer] == mine.cta)

    def come(self, st: State, i: int, step: Step) -> None:
        """Count a CTA in by one thread, which learns whether it is the last."""
        plan, mine = self.plan, self.plan.elections[step.flag]
        without, name = plan.without, plan.kernel.semaphores[mine.integer[0]].name
        where = f"{name}[{step.slot}]"
        came, there, g, s, turn, over = st.comers.get(mine.integer, _NONE_CAME)
        others = [one for n, one in enumerate(plan.elections) if there >> n & 1]
        if any((one.ctas, one.role) != (mine.ctas, mine.role) for one in others):
            says = f"{mine.ctas} CTAs are to come to {where} by warps {mine.role}, others say "
            says += f"{others[0].ctas} by {others[0].role} (first, how many)"
            if Rule.COLLECTIVE not in without:
                raise Defect(Rule.COLLECTIVE, "collective", step.where, says)
        twice = any(one.cta == mine.cta for one in others)
        if (twice or over & ~st.s[i]) and Rule.TURNS not in without:
            says = f"cta {plan.ctas[mine.cta]} comes to {where} twice"
            if not twice:
                says = f"nothing orders it after the last of the CTAs that came to {where}"
            raise Defect(Rule.TURNS, "semaphore", step.where, says)
        if mine.ctas > 1 and (turn or not self._once(mine.integer)):
            st.loose = st.loose or f"{step.where}: another CTA may be the last"
        came, there, s = came + 1, there | 1 << step.flag, s | st.s[i]
        if Rule.ELECT_LAST not in without:
            g |= st.g[i] | st.own[i]
        last = st.elected[step.flag] = came == mine.ctas
        if not last:
            st.comers[mine.integer] = (came, there, g, s, turn, over)
            return
        over = self._end(-1 - mine.integer[0], mine.integer[1], turn)
        st.g[i] |= g
        st.s[i] |= s | over
        st.comers[mine.integer] = (0, 0, 0, 0, turn + 1, over)

    def goes_on(self, st: State, step: Step, body: int) -> int:
        """Return the step at which an agent goes on: the one of the body, or behind it."""
        if step.flag not in st.elected and Rule.COLLECTIVE not in self.plan.without:
            says = "its threads have joined before one of them has counted"
            raise Defect(Rule.COLLECTIVE, "collective", step.where, says)
        return body if st.elected.get(step.flag) else step.number

    def left_out(self, st: State) -> int:
        """Return the events of bodies that were skipped."""
        out = 0
        for number, last in st.elected.items():
            out |= 0 if last else self.plan.elections[number].body
        return out

    def end(self, st: State) -> None:
        """Check semaphores when all agents are done."""
        for (number, index), comers in st.comers.items():
            if comers[0] and Rule.SEMAPHORE_ZERO not in self.plan.without:
                says = f"{comers[0]} CTAs have come at the end of the launch, and none is the last"
                name = self.plan.kernel.semaphores[number].name
                raise Defect(Rule.SEMAPHORE_ZERO, "semaphore", f"{name}[{index}]", says)
        for (name, index), turn in st.turns.items():
            if turn[0] and Rule.SEMAPHORE_ZERO not in self.plan.without:
                says = f"it is {turn[0]} at the end of the launch, where 0 is expected next"
                raise Defect(Rule.SEMAPHORE_ZERO, "semaphore", f"{name}[{index}]", says)

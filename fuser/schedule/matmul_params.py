"""How to compute a fusion with matrix products, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fuser.arch import SPARE_REGISTERS, launch_registers
from fuser.schedule.params import (
    MECHANISM,
    Mechanism,
    Meet,
    Partial,
    Prologue,
    Residency,
    TensorCoreParams,
)

Split = Literal["pipelined", "cooperative", "ping_pong"]
"""Who loads and who multiplies: all threads; a load role beside warpgroups that share a tile; a
load role beside two warpgroups that take whole tiles in turn."""

BESIDE_SUMS = 30
"""Registers that the assembler wants for a wgmma beside its accumulators: 26, and 4 for an A in
registers.  Source: measured (NVRTC 13.0, error C7602; `setmaxnreg` does not count)."""
CLUSTERS = ((1, 1), (2, 1), (1, 2), (4, 1), (1, 4))
"""Shapes of clusters."""
MOST_STAGING = 4
"""Slots of shared memory for columns of a result, at most."""
SHARING_CLUSTERS = (2, 4, 8)
"""CTAs that share a tile as a cluster: 8 is the portable size, and powers of two divide the SMs of
a GPC (16, some 18), in which a cluster lies, without a rest that no other cluster fits."""
WARPGROUP_ROWS = 64
"""Rows of an accumulator that one wgmma takes.  Source: PTX ISA, "wgmma.mma_async"."""


@dataclass(frozen=True, slots=True)
class MatmulParams(TensorCoreParams):
    """Schedule of a fusion with matrix products on Hopper's tensor cores.

    Parameters
    ----------
    tile : tuple of int
        Rows (M), columns (N) and depth (K) of a CTA's tile: 64..256 in steps of 64 rows for each
        warpgroup, 8..256 in steps of 8, and one swizzle span of 128 bytes or several.
    warpgroups : int
        Computing warpgroups, 1..3; rows are dealt to them (`ping_pong`: each takes all rows).
    split : {"pipelined", "cooperative", "ping_pong"}
        Who loads and who multiplies.
    stages : int
        Slots of the operand rings, 1..8; shared memory grows by that factor.
    prefetch : int
        K tiles that are loaded while one is multiplied, 0..stages-1.  The other slots belong to
        multiplications in flight: `stages - prefetch - 1` groups of them stay unfinished (none
        where results are stored directly).
    persistent : bool
        One CTA per SM takes tiles in turn; else one CTA a tile.  With `splits`, so many CTAs take
        the same tiles in turn, each one part of the K of all of them.
    raster : int
        Rows of tiles that are walked together before the next columns, so that neighbours in
        time share operands in the L2; the launch takes its largest divisor that divides the rows.
    columns : int
        Columns of the result that the epilogue computes at a time; divides the tile's.
    store : {"direct", "tma"}
        Mechanism of the outputs; those that TMA cannot write are stored directly.
    staging : int
        Slots of shared memory, 1..4, in which the epilogue's columns wait for TMA to store them:
        they take these in turn, and each waits until what its slot held before is read.  Fewer
        where a tile has not so many parts.
    inputs : {"direct", "tma"}
        Mechanism of what the epilogue reads; TMA brings whole tiles into a ring of the tiles, so
        `persistent` only, and those that it cannot move, and vectors, are loaded directly.
    cluster : tuple of int
        CTAs of a cluster along rows and columns of tiles: (1, 1), or 2 or 4 along one of them.
        Those along rows share the columns' operand, and the other way round: one loads it for all.
    prologue : {"memory", "registers"}
        Where an operand that is computed from other tensors comes from: a kernel before stores it,
        or it is computed from their tiles for every tile of the result, in registers (16-bit types,
        rows along K, pointwise, small enough; any other is stored).  That is the one which has the
        rows of tiles: the second one, such as weights of 8 bits, with `transpose`.
    splits : int
        CTAs that share a tile of the result, each a part of K, 1..64, and add up their sums;
        fewer where K has not so many steps.  Not in ping-pong.
    meet : {"vectorized", "tma", "scatter", "cluster", "last"}
        How they do: in turns, all threads load, add and store the sums so far, or TMA adds to them;
        or without turns: each CTA stores its sums, all wait for each other, each adds up every
        `splits`-th group of the epilogue's columns, and goes on with that.  Sums are stored in
        global memory, or with "cluster" in shared memory: then `splits` of 2, 4 or 8 are a cluster,
        whatever steps K has.  With "last" nobody waits: each CTA stores its sums, and the
        last-arriving one adds up all of them, in their order, and goes on.
    residency : {"ticket", "co-resident"}
        Why CTAs that share a tile may wait for each other.  They draw numbers as they start, and
        those of a tile follow one another.  Or the launch asks for all CTAs at once, and refuses
        more than the device runs; then neighbours take tiles of one part of K, and the L2 serves
        what they read in common once.
    partial : {"f32", "f16", "bf16"}
        Type of f32 sums on their way from one CTA to another.  Those of 16 bits are half the
        traffic, but rounded: in turns once a turn, with TMA in every addition, too; with "scatter"
        once a CTA, and added up in f32.
    stacked : bool
        One wgmma for all products of a loop that share their A, where their tiles of B can lie
        behind each other: A is read once for all.
    transpose : bool
        Tiles are those of the transposed result: their rows lie along its columns, so that few rows
        of a result, in steps of 8, leave no part of a wgmma empty.  Results have 16 bits, and go
        through shared memory.  Not with ``inputs="tma"``, nor where ``meet="cluster"``.
    resident : int
        CTAs, 1..4, that an SM is to have registers for at once; with more than one ``registers`` is
        None, as roles that take registers from others ask for all of an SM.
    overlay : bool
        What the epilogue needs of shared memory lies in the rings, which are empty by then, where a
        CTA has one tile (with several, loads of the next one would wait for stores of the last).
    registers : tuple of int, or None
        Registers per thread of the load role and of the computing ones (`setmaxnreg`); None leaves
        the equal shares of the launch.

    Raises
    ------
    ScheduleError
        If a value is out of its range, or two contradict each other.
    """

    tile: tuple[int, int, int]
    warpgroups: int
    split: Split
    stages: int
    prefetch: int
    persistent: bool
    raster: int = 8
    columns: int = 64
    store: Mechanism = "tma"
    registers: tuple[int, int] | None = None
    cluster: tuple[int, int] = (1, 1)
    prologue: Prologue = "memory"
    inputs: Mechanism = "direct"
    stacked: bool = False
    splits: int = 1
    meet: Meet = "vectorized"
    residency: Residency = "ticket"
    partial: Partial = "f32"
    overlay: bool = True
    resident: int = 1
    transpose: bool = False
    staging: int = 2

    def __post_init__(self) -> None:
        """Check every range and every contradiction."""
        self.check_ints("warpgroups stages prefetch raster columns resident staging", use=1)
        self.check_tile("M, N and K", use=(128, 256, 64))
        if not 1 <= self.warpgroups <= 3:
            self.refuse("warpgroups", "need 1..3; use warpgroups=2")
        share = 1 if self.split == "ping_pong" else self.warpgroups
        self.check_rows("tile warpgroups", "warpgroup", share, WARPGROUP_ROWS)
        self.check_columns("a wgmma takes")
        k = self.tile[2]
        if k % 16 or k > 256:
            self.refuse(
                "tile",
                f"K steps of {k}; use 64, or another multiple of the 128-byte swizzle up to 256",
            )
        self.check_word("split", get_args(Split))
        if self.split == "ping_pong" and (self.warpgroups, self.persistent) != (2, True):
            self.refuse(
                "split warpgroups persistent",
                "two warpgroups take the tiles of a CTA in turn; use warpgroups=2, persistent=True",
            )
        self.check_word("store", MECHANISM, "unknown mechanism")
        self.check_word("inputs", MECHANISM, "unknown mechanism")
        if not 1 <= self.staging <= MOST_STAGING:
            self.refuse("staging", f"need 1..{MOST_STAGING} slots; use staging=2")
        if self.inputs == "tma" and not self.persistent:
            self.refuse(
                "inputs persistent",
                'their ring is one of tiles; use persistent=True, or inputs="direct"',
            )
        self.check_shared()
        if not 0 <= self.prefetch < self.stages:
            near = max(self.stages - 2, 0)
            why = f"prefetch must be 0..{self.stages - 1}; use prefetch={near}"
            self.refuse("stages prefetch", why)
        if self.cluster not in CLUSTERS:
            words = ", ".join(map(str, CLUSTERS))
            self.refuse("cluster", f"one of {words}; use cluster=(2, 1)")
        if self.cluster != (1, 1) and self.split == "pipelined":
            why = 'a load role fills the slots of other CTAs; use split="cooperative"'
            self.refuse("split cluster", why)
        if self.splits > 1:
            self._check_split_k()
        self._check_transpose()
        self._check_registers()
        self._check_accumulators()

    def _check_split_k(self) -> None:
        if self.split == "ping_pong":
            self.refuse(
                "splits split",
                "one role of each CTA puts sums together, and here two take its tiles in turn; use "
                'split="cooperative", or splits=1',
            )
        if self.inputs == "tma":
            self.refuse(
                "splits inputs",
                "whole tiles are brought to CTAs of which one goes on, or each with some columns; "
                'use inputs="direct", or splits=1',
            )
        if self.cluster != (1, 1):
            why = "CTAs of a cluster draw no tickets; use cluster=(1, 1), or splits=1"
            self.refuse("splits cluster", why)
        if self.meet != "cluster":
            return
        if self.splits not in SHARING_CLUSTERS:
            few = max((n for n in SHARING_CLUSTERS if n <= self.splits), default=2)
            self.refuse(
                "splits meet",
                f"the CTAs of a tile are a cluster, of 2, 4 or 8; use splits={few}, or "
                'meet="scatter"',
            )
        if self.split != "pipelined":
            self.refuse(
                "splits meet split",
                "all threads of the cluster wait for each other, and a load role has no sums; use "
                'split="pipelined", or meet="scatter"',
            )
        if self.residency != "ticket":
            self.refuse(
                "splits meet residency",
                "the CTAs of a cluster run at once anyway; use "
                'residency="ticket", or meet="scatter"',
            )

    def _check_transpose(self) -> None:
        if not self.transpose:
            return
        if self.inputs == "tma":
            self.refuse(
                "transpose inputs",
                "what the epilogue reads lies as the result does, and tiles are transposed; use "
                'inputs="direct", or transpose=False',
            )
        if self.store != "tma":
            self.refuse(
                "transpose store",
                'transposed tiles go through shared memory; use store="tma", or transpose=False',
            )
        if self.splits > 1 and self.meet == "cluster":
            self.refuse(
                "transpose meet",
                "CTAs of a cluster store rows of the result from the sums of all; use "
                'meet="scatter", or transpose=False',
            )

    def _check_registers(self) -> None:
        if not 1 <= self.resident <= 4:
            self.refuse("resident", "an SM is to have 1..4 of these CTAs; use resident=1")
        if self.registers is None:
            return
        if self.resident > 1:
            self.refuse(
                "registers resident",
                "roles that take registers have the SM alone; use registers=None, or resident=1",
            )
        if self.split == "pipelined":
            why = "only roles differ in registers; use registers=None"
            self.refuse("split registers", why)
        if not isinstance(self.registers, tuple) or len(self.registers) != 2:
            why = "need two ints, of the load role and of each computing one; use registers=None"
            self.refuse("registers", why)
        load, compute = self.registers
        if any(n % 8 or not 24 <= n <= 240 for n in self.registers):
            self.refuse(
                "registers",
                "need multiples of 8 in 24..240; use registers=(40, 232) for two computing "
                "warpgroups",
            )
        have = launch_registers(self.threads)
        if have > 240:
            self.refuse(
                "warpgroups registers",
                f"{self.threads} threads get {have} each, as many as they can use; "
                "use registers=None",
            )
        # Source: measured; where no role asks for more than its share, ptxas gives all the least.
        if (
            load > have
            or compute <= have
            or load + compute * self.warpgroups > have * (1 + self.warpgroups)
        ):
            self.refuse(
                "registers warpgroups",
                f"{self.threads} threads get {have} each; the load role gives some back and the "
                f"others share them: use registers={nearest_registers(self.warpgroups)}",
            )

    def _check_accumulators(self) -> None:
        m, n, _ = self.tile
        most = self.widest
        if n > most:
            self.refuse(
                "tile warpgroups",
                f"in {self.threads * self.resident} threads the assembler gives a wgmma room for "
                f"{most} columns, whatever registers says; use {most} columns, or fewer warpgroups",
            )
        accumulators = m * n // self.sharing
        if accumulators > self.room:
            self.refuse(
                "tile warpgroups registers",
                f"{accumulators} accumulators per thread, of its {self.room + SPARE_REGISTERS} "
                f"registers at most {self.room} may be; use a smaller tile or more warpgroups",
            )

    @property
    def widest(self) -> int:
        """Columns of a wgmma for which the assembler finds registers."""
        return widest(self.threads * self.resident)

    @property
    def threads(self) -> int:
        """Threads of a CTA, with those of the load role: a warpgroup of its own, if any."""
        return 128 * (self.warpgroups + (self.split != "pipelined"))

    @property
    def sharing(self) -> int:
        """Threads that share a tile."""
        return 128 * (1 if self.split == "ping_pong" else self.warpgroups)

    @property
    def room(self) -> int:
        """Registers of a computing thread that accumulators and operands may take."""
        every = self.threads * self.resident
        have = self.registers[1] if self.registers else launch_registers(every)
        return have - SPARE_REGISTERS

    def computes(self, products: int, tensors: int) -> bool:
        """Tell whether threads can compute tiles of A from so many tensors, beside their sums.

        In registers: all that is loaded is f32, and elements become pairs of 16 bits.  Source:
        measured; beyond, the assembler serialises wgmma (C7512).
        """
        m, n, k = self.tile
        computed = max(3, 2 * tensors) * m * k // 2
        return (products * m * n + computed) // self.sharing <= self.room

    @property
    def load(self) -> str:
        """Mechanism of the operands."""
        return "tma"

    @property
    def in_flight(self) -> int:
        """Groups of wgmma that stay unfinished while the next one is issued."""
        return self.stages - self.prefetch - 1

    @property
    def family(self) -> str:
        """Name of the schedule family, such as `hopper-ping_pong`; rows of reports."""
        return f"hopper-{self.split}"


def widest(threads: int) -> int:
    """Return the columns of a wgmma for which the assembler finds registers in such a CTA."""
    return min(256, 2 * (launch_registers(threads) - BESIDE_SUMS) // 8 * 8)


def nearest_registers(warpgroups: int) -> tuple[int, int]:
    """Return registers of a load role and of so many computing warpgroups that fit together."""
    have = launch_registers(128 * (warpgroups + 1))
    load = 40 if warpgroups == 2 else 32
    return load, min(240, (have * (warpgroups + 1) - load) // warpgroups // 8 * 8)

"""Products on tensor cores in CUDA C++, and the instructions of a kernel's shapes.

Source: PTX ISA, "wgmma.mma_async".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.codegen.expr import spell
from fuser.codegen.registers import Registers
from fuser.codegen.tile import slot
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.swizzle import BLOCK, STEP, descriptor
from fuser.kernel.text import line

_Types = tuple[DType, DType, DType]
"""Types of A, B and accumulator."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How `wgmma` multiplies operands of one type and adds them up in another.

    `ptx` has the types of accumulator, A and B, as in the instruction's name; one takes `steps`
    elements along K: 32 bytes.  A register of the accumulator has the type `register`, the
    constraint `letter` in asm, and `share` elements.  Immediates say if A and B are negated where
    it `scales`, and if they are MN-major where it `transposes`: only 16-bit types have the choice.
    """

    ptx: str
    steps: int
    register: str = "float"
    letter: str = "f"
    share: int = 1
    scales: bool = True
    transposes: bool = True


_KINDS = {
    (DType.BF16, DType.BF16, DType.F32): _Kind("f32.bf16.bf16", 16),
    (DType.F16, DType.F16, DType.F32): _Kind("f32.f16.f16", 16),
    (DType.F16, DType.F16, DType.F16): _Kind("f16.f16.f16", 16, "uint32", "r", share=2),
    (DType.F32, DType.F32, DType.F32): _Kind("f32.tf32.tf32", 8, transposes=False),
    (DType.I8, DType.I8, DType.I32): _Kind(
        "s32.s8.s8", 32, "int", "r", scales=False, transposes=False
    ),
    **{
        (a, b, DType.F32): _Kind(f"f32.{a.cuda}.{b.cuda}", 32, transposes=False)
        for a in (DType.F8E4M3, DType.F8E5M2)
        for b in (DType.F8E4M3, DType.F8E5M2)
    },
}
"""By types of A, B and accumulator."""


def product_line(stmt: kir.Wgmma | kir.Mma, registers: Registers) -> str:
    """Write a product; ScheduleError if the tensor core cannot read an operand where it is."""
    names = registers.names
    match stmt:
        case kir.Mma(acc, a, b):
            steps = a.layout.shape[-1] * a.dtype.nbytes // STEP
            which = f"{a.dtype.cuda}, {acc.layout.shape[-1]}, {steps}"
            ends = f"{_pairs(stmt, a, registers)}, {_pairs(stmt, b, registers)}"
            return f"mma::add_product<{which}>({names[acc]}, {ends});"
        case kir.Wgmma(acc, a, b, accumulate, b_transposed, a_transposed):
            groups = acc.layout.threads // kir.WARPGROUP
            along = b.buffer.shape[-2 if b_transposed else -1]
            key = _types(stmt)
            which = f"{_operands(key)}, {acc.layout.shape[-1]}, {along // _KINDS[key].steps}"
            right = f"{_tile(stmt, b, transposed=b_transposed)}({slot(b)})"
            plus = spell(accumulate)
            if isinstance(a, kir.Fragment):
                ends = f"{names[acc]}, {_pairs(stmt, a, registers)}, {right}, {plus}"
                return f"wgmma::multiply_registers<{which}>({ends});"
            block = ", warpgroup" if needs_warpgroup(stmt) else ""
            left = f"{_tile(stmt, a, transposed=a_transposed)}({slot(a)}{block})"
            return f"wgmma::multiply<{which}, {groups}>({names[acc]}, {left}, {right}, {plus});"


def needs_warpgroup(stmt: kir.Stmt) -> bool:
    """Tell whether a statement is a product of which each warpgroup takes other rows of a slot."""
    match stmt:
        case kir.Wgmma(acc, kir.Slot()):
            return acc.layout.threads > kir.WARPGROUP
        case _:
            return False


def instructions(kernel: kir.Kernel) -> Iterator[str]:
    """Spell the wgmma instructions of a kernel's shapes, each once."""
    shapes: dict[tuple[_Types, int], set[bool]] = {}
    for stmt in kernel.walk():
        if isinstance(stmt, kir.Wgmma):
            key = (_types(stmt), stmt.acc.layout.shape[-1])
            shapes.setdefault(key, set()).add(isinstance(stmt.a, kir.Fragment))
    for (types, n), sources in sorted(shapes.items(), key=str):
        kind = _KINDS[types]
        many = BLOCK * n // kir.WARPGROUP // kind.share
        yield f"template <> struct wgmma::Instruction<{_operands(types)}, {kind.register}, {n}> {{"
        yield f"  static constexpr int kRegisters = {many};"
        for from_registers in sorted(sources):
            yield from _instruction(kind, n, many, from_registers=from_registers)
        yield "};"


def _types(stmt: kir.Wgmma) -> _Types:
    a = stmt.a.dtype if isinstance(stmt.a, kir.Fragment) else stmt.a.buffer.dtype
    return a, stmt.b.buffer.dtype, stmt.acc.dtype


def _operands(types: _Types) -> str:
    a, b, _ = types
    return a.cuda if a is b else f"wgmma::Mixed<{a.cuda}, {b.cuda}>"


def _instruction(kind: _Kind, n: int, many: int, *, from_registers: bool) -> Iterator[str]:
    left = ["r"] * 4 if from_registers else ["l"]
    a, b = many, many + len(left)
    plus, turns = b + 1, b + 2
    acc = ", ".join(f"%{i}" for i in range(many))
    words = [f"{{{acc}}}"]
    words.append(f"{{{', '.join(f'%{i}' for i in range(a, b))}}}" if from_registers else f"%{a}")
    words += [f"%{b}", "p"]
    if kind.scales:
        words += ["1", "1"]
    immediates = ["TURN_B"] if from_registers else ["TURN_A", "TURN_B"]
    if kind.transposes:
        words += [f"%{turns + i}" for i in range(len(immediates))]
    outputs = ", ".join(f'"+{kind.letter}"(d[{i}])' for i in range(many))
    registers = [f'"r"(a[{i}])' for i in range(4)] if from_registers else ['"l"(a)']
    inputs = [*registers, '"l"(b)', '"r"(accumulate)']
    if kind.transposes:
        inputs += [f'"n"({name})' for name in immediates]
    turned = ", ".join(f"int {name}" for name in immediates)
    given = "const uint32* a" if from_registers else "uint64 a"
    name = f"wgmma.mma_async.sync.aligned.m{BLOCK}n{n}k{kind.steps}.{kind.ptx}"
    yield f"  template <{turned}>"
    yield (
        "  static __device__ __forceinline__ void issue"
        f"({kind.register}* d, {given}, uint64 b, int accumulate) {{"
    )
    yield f'    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{plus}, 0; {name}"'
    yield f'                 " {", ".join(words)}; }}"'
    yield f"                 : {outputs}"
    yield f"                 : {', '.join(inputs)});"
    yield "  }"


def _tile(stmt: kir.Wgmma, ref: kir.Slot, *, transposed: bool) -> str:
    buffer = ref.buffer
    if not buffer.swizzle:
        row = buffer.shape[-1] * buffer.dtype.nbytes
        fits = next((s for s in (128, 64, 32) if row % s == 0), 0)
        way_out = f"use swizzle={fits}" if fits else f"use rows of {STEP} bytes and swizzle={STEP}"
        raise ScheduleError(
            f"`{line(stmt)}`: {buffer.name} has rows of {row} bytes without swizzle, which the "
            f"tensor core cannot read; {way_out}"
        )
    made = descriptor(buffer, transposed=transposed)
    flag = "true" if transposed else "false"
    numbers = (made.leading, made.step, made.per_panel, made.panel, made.block)
    return f"wgmma::Tile<{flag}, {made.high:#x}, {', '.join(map(str, numbers))}>"


def _pairs(stmt: kir.Stmt, frag: kir.Fragment, registers: Registers) -> str:
    name = registers.names[frag]
    if frag in registers.packed:
        return name
    if frag.dtype.nbytes != 2:
        raise ScheduleError(
            f"`{line(stmt)}`: {frag.name} of {frag.dtype} does not come straight from shared "
            "memory; load it with matrix=True, for products alone"
        )
    return f"types::Pairs<{frag.dtype.cuda}, {frag.layout.registers // 2}>({name}).at"

"""What a kernel declares: threads, names, memory, parameters, and facts about its launch."""

from __future__ import annotations

from collections.abc import Iterable

from fuser.arch import SM_90A
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, variables
from fuser.kernel import ir as kir
from fuser.kernel.tensor_map import template_of
from fuser.kernel.text import line

RESIDENCIES = ("any", "ticket", "co-resident")
DETERMINISMS = ("bitwise", "unordered")
CLUSTER = 16
"""CTAs of a cluster at most (8 without an opt-in).  Source: CUDA programming guide, "Thread block
clusters"."""
ARRIVALS = 1 << 20
"""Arrivals and bytes of a phase are below it.  Source: PTX ISA, "mbarrier, contents"."""
SLOT = 16
"""Copies move multiples of so many bytes."""
SWIZZLES = (32, 64, 128)
"""Spans of a swizzle in bytes.  Source: PTX ISA, "tensor swizzling modes"."""
TMA_SHARED = 128
"""Alignment of a tile in shared memory, in bytes.  Source: PTX ISA, "cp.async.bulk.tensor"."""


def declarations(kernel: kir.Kernel) -> Iterable[str]:
    """Say what is wrong with the declarations of a kernel."""
    yield from _facts(kernel)
    yield from _names(kernel)
    yield from _tensors(kernel)
    yield from _maps(kernel)
    yield from _memory(kernel)
    launched = {*kernel.params, kir.GRID}
    for condition in kernel.requires:
        yield from _unknown(f"requires {condition}", condition, launched)
    yield from _unknown(f"together {kernel.together}", kernel.together, launched)
    for s in kernel.semaphores:
        yield from _unknown(f"semaphore {s.name}", s.count, launched)
        if isinstance(s.count, int) and s.count < 1:
            yield f"semaphore {s.name} has {s.count} integers; declare at least 1"


def _unknown(what: str, expr: Expr, launched: set[Var]) -> Iterable[str]:
    for var in sorted(variables(expr) - launched, key=str):
        yield (
            f"`{what}` uses {var}, which is neither a parameter nor {kir.GRID}; "
            "add it to Kernel.params"
        )


def _facts(kernel: kir.Kernel) -> Iterable[str]:
    most = SM_90A.max_threads
    if kernel.threads % kir.WARP or not 0 < kernel.threads <= most:
        yield (
            f"{kernel.name} has {kernel.threads} threads; "
            f"use a multiple of {kir.WARP}, at most {most}"
        )
    if not 1 <= kernel.cluster <= CLUSTER:
        yield f"{kernel.name} has clusters of {kernel.cluster} CTAs; use 1 to {CLUSTER}"
    if kernel.residency not in RESIDENCIES:
        words = ", ".join(RESIDENCIES)
        yield f"{kernel.name} says residency {kernel.residency!r}; pick one of {words}"
    if kernel.together != 1 and kernel.residency != "ticket":
        yield (
            f"{kernel.name} says that {kernel.together} CTAs run at once, and residency "
            f'{kernel.residency!r}; that goes with "ticket" only'
        )
    if kernel.determinism not in DETERMINISMS:
        words = ", ".join(DETERMINISMS)
        yield f"{kernel.name} says determinism {kernel.determinism!r}; pick one of {words}"
    n = kernel.registers
    if n and (n % 8 or not 24 <= n <= 256):
        yield (
            f"{kernel.name} has {n} registers per thread; use a multiple of 8 in 24..256, "
            "or 0 without SetMaxNReg"
        )
    if n * kernel.threads > SM_90A.registers:
        yield (
            f"{kernel.name} wants {n} registers for each of {kernel.threads} threads, the SM has "
            f"{SM_90A.registers}; use fewer of either"
        )


def _names(kernel: kir.Kernel) -> Iterable[str]:
    groups: dict[str, list[str]] = {
        "tensors or scalars": [t.name for t in kernel.tensors] + [s.name for s in kernel.scalars],
        "tensor maps": [maps.name for maps in kernel.maps],
        "shared buffers or mbarriers": [
            *(b.name for b in kernel.buffers),
            *(m.name for m in kernel.barriers),
        ],
        "semaphores": [s.name for s in kernel.semaphores],
        "parameters": [p.name for p in kernel.params],
        "outputs": list(kernel.outputs),
        "workspaces": list(kernel.workspaces),
        "early tensors": list(kernel.early),
    }
    for what, names in groups.items():
        for name in sorted({n for n in names if names.count(n) > 1}):
            yield f"{kernel.name} has two {what} named {name}; rename one"
    for var in (kir.BLOCK, kir.GRID, kir.RANK):
        if var in kernel.params:
            yield f"{kernel.name} has a parameter {var}, which the launch gives; rename it"
    tensors = {t.name for t in kernel.tensors}
    lists = ("output", kernel.outputs), ("workspace", kernel.workspaces), ("early", kernel.early)
    for what, listed in lists:
        for name in listed:
            if name not in tensors:
                yield (
                    f"{kernel.name} lists {what} {name}, which is no tensor of it; "
                    "add it to Kernel.tensors"
                )
    for name in sorted(set(kernel.outputs) & set(kernel.workspaces)):
        yield f"{kernel.name} lists {name} as output and as workspace; keep one"
    for name in sorted(set(kernel.early) & {*kernel.outputs, *kernel.workspaces}):
        yield f"{kernel.name} lists {name} as early and writes it; early tensors are only read"
    roles: dict[str, kir.Role] = {}
    for stmt in kernel.walk():
        if isinstance(stmt, kir.Role):
            other = roles.setdefault(stmt.name, stmt)
            if (other.first_warp, other.warps) != (stmt.first_warp, stmt.warps):
                yield f"`{line(stmt)}` and `{line(other)}` have one name; rename one"


def _tensors(kernel: kir.Kernel) -> Iterable[str]:
    for t in kernel.tensors:
        if len(t.extents) != len(t.strides) or not t.extents:
            yield (
                f"tensor {t.name} has {len(t.extents)} extents and {len(t.strides)} strides; "
                "give one of each per axis, for at least one axis"
            )
        if t.aligned < 1:
            yield f"tensor {t.name} is aligned to {t.aligned} elements; use 1 if nothing is known"
        if t.cycles and (t.strides != (1,) or t.name in (*kernel.outputs, *kernel.workspaces)):
            yield (
                f"tensor {t.name} repeats; give it one axis, of stride 1, and do not list it in "
                "Kernel.outputs or Kernel.workspaces"
            )
        parts = (part for c in t.cycles for part in (c.each, c.period, c.stride))
        for expr in (*t.extents, *t.strides, *(part for part in parts if part is not None)):
            for var in sorted(variables(expr) - set(kernel.params), key=str):
                yield (
                    f"tensor {t.name} has {var} in its shape, which is no parameter; "
                    "add it to Kernel.params"
                )
            if isinstance(expr, int) and expr < 0:
                yield f"tensor {t.name} has {expr} in its shape; extents and strides are >= 0"


def _maps(kernel: kir.Kernel) -> Iterable[str]:
    for maps in kernel.maps:
        tensor = maps.tensor
        if maps.name in {t.name for t in kernel.tensors}:
            yield f"{kernel.name} has a tensor and tensor maps named {maps.name}; rename one"
        if maps.slots < 1:
            yield f"{maps.name} has {maps.slots} tensor maps; use one or more"
        if tensor not in kernel.tensors:
            yield (
                f"{maps.name} is of {tensor.name}, which the kernel does not declare; add it to "
                "Kernel.tensors, with the same fields"
            )
        elif tensor.aligned * tensor.dtype.nbytes % SLOT:
            yield (
                f"{maps.name} is of {tensor.name}, aligned to {tensor.aligned} elements of "
                f"{tensor.dtype.nbytes} bytes; a map begins at a multiple of {SLOT} bytes: align it"
            )
        try:
            template_of(kernel, maps)
        except ScheduleError as wrong:
            yield str(wrong)


def _memory(kernel: kir.Kernel) -> Iterable[str]:
    for b in kernel.buffers:
        if not b.shape or min(b.shape) < 1:
            yield f"buffer {b.name} has shape {b.shape}; give every axis at least one element"
        elif b.offset % TMA_SHARED or b.offset < 0 or b.slots < 1:
            yield (
                f"{b.name} has {b.slots} slots at byte {b.offset}; "
                f"need >= 1 at a multiple of {TMA_SHARED}"
            )
        elif b.slots > 1 and b.pitch % SLOT:
            yield (
                f"{b.name} has slots of {b.slot_nbytes} bytes, {b.step} apart; copies need "
                f"multiples of {SLOT}"
            )
        elif b.step < b.slot_nbytes:
            yield (
                f"{b.name} has slots of {b.slot_nbytes} bytes, {b.step} apart; use "
                f"pitch={b.slot_nbytes} or more"
            )
        elif b.swizzle:
            yield from _swizzled(b)
    for m in kernel.barriers:
        if m.slots < 1 or not 1 <= m.arrivals < ARRIVALS:
            yield (
                f"{m.name} has {m.slots} slots of {m.arrivals} arrivals; "
                f"need at least one slot, of 1..{ARRIVALS - 1} arrivals"
            )
        if m.offset is not None:
            yield from _placed(m, m.offset, kernel)


def _placed(m: kir.MBarrier, at: int, kernel: kir.Kernel) -> Iterable[str]:
    end = at + 8 * m.slots
    if at < 0 or at % 8:
        yield f"mbarrier {m.name} lies at byte {at}; use a multiple of 8, or None"
    elif end > kernel.smem_bytes:
        yield (
            f"mbarrier {m.name} lies at bytes {at}..{end - 1}, the CTA has {kernel.smem_bytes} "
            "bytes of shared memory; lay it onto a buffer, or use None"
        )
    elif end > kernel.barrier_offset:
        others = ", ".join(b.name for b in kernel.barriers if b.offset is None)
        yield (
            f"mbarrier {m.name} lies at bytes {at}..{end - 1}, those without an offset ({others}) "
            f"from byte {kernel.barrier_offset} on; lay it onto a buffer, or use None"
        )


def _swizzled(b: kir.Buffer) -> Iterable[str]:
    if b.swizzle not in SWIZZLES:
        yield f"{b.name} has a swizzle of {b.swizzle} bytes; use one of {SWIZZLES}, or 0"
        return
    row = b.shape[-1] * b.dtype.nbytes
    if row % b.swizzle:
        yield (
            f"{b.name} has rows of {row} bytes; a swizzle of {b.swizzle} cuts them into panels of "
            "so many: use a multiple"
        )
    if b.offset % (8 * b.swizzle) or (b.slots > 1 and b.step % (8 * b.swizzle)):
        yield (
            f"{b.name} has slots every {b.step} bytes from byte {b.offset} on; a swizzle of "
            f"{b.swizzle} repeats every {8 * b.swizzle}: use multiples of it"
        )


def limits(kernel: kir.Kernel) -> Iterable[str]:
    """Say which shared memory lies past what a CTA has."""
    ends = {f"buffer {b.name}": b.end for b in kernel.buffers}
    ends |= {f"mbarrier {m.name}": kernel.barrier_at(m) + 8 * m.slots for m in kernel.barriers}
    for name, end in ends.items():
        if end > SM_90A.smem_bytes:
            yield (
                f"{name} ends at byte {end} of shared memory, a CTA has {SM_90A.smem_bytes}; "
                "use fewer slots or smaller tiles"
            )

"""Delays in the CUDA text of a kernel: threads that sleep, and engines that are kept busy.

Around every sync and every access of global memory each warp sleeps, or does not, as a hash of
launch, CTA, statement and warp says: the same number gives the same delays.  A thread that sleeps
does not hold up a bulk copy that it has issued.  So before a copy of the kernel the same thread
now and then issues many others, to memory that nobody reads: the engine takes the copy of the
kernel behind them, late.  These copies join the same bulk group, so that a kernel that awaits its
own awaits them too, and one that does not is as wrong as it was.

Source: PTX ISA, "nanosleep", "cp.async.bulk".
"""

from __future__ import annotations

import re

LAUNCH = "fuser_launch"
"""The parameter that tells launches apart: 32 bits, behind all others of the kernel."""

JUNK_NBYTES = 16384
"""Bytes that a CTA overwrites again and again to keep its engine busy."""
JUNK_CTAS = 64
"""CTAs that have such bytes of their own; the others share."""
COPY_NBYTES = 2048
"""Bytes of one such copy, from the start of shared memory; fewer where there is not so much."""

_SLEEPS = re.compile(
    r"\s*(threads::block_sync|semaphore::|fence::|tma::(commit|await|store|reduce)"
    r"|tile::(load|store)<[^(]*\([^;]*tile::Box)"
)
"""Statements around which warps sleep where CTAs wait for each other: one line each."""
_MORE = re.compile(
    r"\s*(threads::(named|warp|cluster)_|mbarrier::(arrive|wait)|cp_async::(commit|await))"
)
"""More of them, in kernels without a semaphore."""
_COPIES = re.compile(r"\s*tma::(store|reduce)\b")
"""Statements before which the engine is kept busy."""
_OPEN = re.compile(r"^\) \{$", re.M)
"""The line with which the parameters end."""

_DEVICE = """
namespace delay {

__device__ __align__(128) unsigned char junk[JUNK_CTAS * JUNK_NBYTES];

__device__ __forceinline__ uint32 mixed(uint32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}
__device__ __forceinline__ uint32 drawn(uint32 launch, uint32 statement, uint32 who) {
  return mixed(launch ^ mixed(blockIdx.x ^ mixed(statement ^ mixed(who))));
}
// One time in four, up to 8 us.
__device__ __forceinline__ void sleep(uint32 launch, uint32 statement) {
  const uint32 number = drawn(launch, statement, threadIdx.x / 32);
  if (number % 4 == 0) __nanosleep(number >> 8 & 8191);
}
// One time in two, up to 512 KB of copies.
__device__ __forceinline__ void occupy(uint32 launch, uint32 statement, const void* smem) {
  const uint32 number = drawn(launch, statement, ~0u);
  if (number % 2) return;
  const uint32 source = uint32(__cvta_generic_to_shared(smem));
  unsigned char* const own = junk + blockIdx.x % JUNK_CTAS * JUNK_NBYTES;
  for (uint32 n = 0; n < (number >> 8 & 255); ++n) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::
                 "l"(__cvta_generic_to_global(own + n * COPY_NBYTES % JUNK_NBYTES)),
                 "r"(source), "r"(COPY_NBYTES) : "memory");
  }
}

}  // namespace delay

"""


def delayed(source: str, smem_bytes: int) -> str:
    """Return the CUDA text of `codegen.source` with delays: `LAUNCH` is a last parameter.

    ValueError if there is no place for the parameter, or for a single delay.
    """
    if len(_OPEN.findall(source)) != 1 or source.count('extern "C" __global__') != 1:
        raise ValueError("delayed(source): no single kernel in this text; pass codegen.source(...)")
    numbers = {"JUNK_CTAS": JUNK_CTAS, "JUNK_NBYTES": JUNK_NBYTES}
    # A power of two, as JUNK_NBYTES is: copies must not wrap around in the middle.
    numbers["COPY_NBYTES"] = 1 << min(COPY_NBYTES, max(smem_bytes, 16)).bit_length() - 1
    device = re.sub("|".join(numbers), lambda found: str(numbers[found[0]]), _DEVICE)
    source = source.replace('extern "C" __global__', f'{device}extern "C" __global__')
    head, body = _OPEN.split(source)
    places = [_SLEEPS] if "semaphore::" in body else [_SLEEPS, _MORE]
    lines: list[str] = []
    count = 0
    for line in body.splitlines():
        pad = line[: len(line) - len(line.lstrip())]
        if not any(place.match(line) for place in places):
            lines.append(line)
            continue
        lines.append(f"{pad}delay::sleep({LAUNCH}, {2 * count});")
        if _COPIES.match(line):
            lines.append(f"{pad}delay::occupy({LAUNCH}, {2 * count}, smem);")
        lines += [line, f"{pad}delay::sleep({LAUNCH}, {2 * count + 1});"]
        count += 1
    if not count:
        raise ValueError("delayed(source): no statement to delay; pass a kernel with a sync")
    return f"{head.rstrip()},\n    const uint32 {LAUNCH}\n) {{" + "\n".join(lines) + "\n"

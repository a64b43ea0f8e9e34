"""CUTLASS: grouped products in fp8, whose CTAs rewrite their tensor maps for each group.

Two CTAs, two groups, C added.  The example's own functions make arguments and workspace.

Source: CUTLASS, `examples/57_hopper_grouped_gemm/57_hopper_grouped_gemm.cu`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from fuzz.ptx.foreign.build import Arrays, Edit, Foreign
from fuzz.ptx.foreign.values import Floats, compared, from_f16, integers, put
from fuzz.ptx.subjects import Memory

FOLDER = "cutlass/examples/57_hopper_grouped_gemm"
INCLUDES = (FOLDER, "cutlass/include", "cutlass/tools/util/include", "cutlass/examples/common")

GROUPS = ((256, 128, 256), (128, 256, 384))
"""M, N and K of each."""

DRIVER = """
#define main main_of_the_example
#include "57_hopper_grouped_gemm.cu"
#undef main
template <class Kernel> void launch(const Options& options) {
    Kernel gemm;
    auto arguments = args_from_options<Kernel>(options, true);
    void* workspace = nullptr;
    cudaMalloc(&workspace, Kernel::get_workspace_size(arguments));
    if (gemm.initialize(arguments, workspace) != cutlass::Status::kSuccess) exit(7);
    if (gemm.run() != cutlass::Status::kSuccess) exit(8);
}
void drive() {
    recorder_sms(2);
    Options options;
    options.alpha = options.beta = 1;
    options.problem_sizes_host = {SIZES};
    options.groups = options.problem_sizes_host.size();
    allocate(options);
    initialize(options);
    launch<Gemm>(options);
    launch<GemmPingpong>(options);
}
"""

A, B, C, D = (f"memory{n}" for n in range(4))
"""What `allocate` asks for, in its order."""

TEXT = f"{FOLDER}/57_hopper_grouped_gemm.cu"
RANDOM = "random inputs are not asked for: they need the headers of cuRAND"
EDITS = (
    Edit(
        TEXT,
        "using ClusterShape        = Shape<_1,_2,_1>;",
        "using ClusterShape        = Shape<_1,_1,_1>;",
        "the judge has clusters along x only",
    ),
    Edit(TEXT, '#include "cutlass/util/reference/device/tensor_fill.h"\n', "", RANDOM),
    Edit(
        TEXT,
        "  cutlass::reference::device::BlockFillRandomUniform(\n"
        "    block.get(), block.size(), seed, scope_max, scope_min, 0);\n",
        "",
        RANDOM,
    ),
)

E4M3 = {-2: 0xC0, -1: 0xB8, 0: 0, 1: 0x38, 2: 0x40}
E5M2 = {-2: 0xC0, -1: 0xBC, 0: 0, 1: 0x3C, 2: 0x40}


def _bits(numbers: Floats, table: dict[int, int]) -> npt.NDArray[np.uint8]:
    by_number = np.array([table[n] for n in sorted(table)], np.uint8)
    found: npt.NDArray[np.uint8] = by_number[numbers.astype(np.int64) - min(table)]
    return found


def _fill(memory: Arrays) -> Callable[[Memory], str]:
    """Fill all groups: A is M x K, B N x K, C and D N x M, one group behind the other."""
    lefts, rights, added, wants = [], [], [], []
    for seed, (m, n, k) in enumerate(GROUPS):
        a, b, c = integers((m, k), seed), integers((n, k), seed + 9), integers((n, m), seed + 99)
        lefts.append(_bits(a, E4M3).reshape(-1))
        rights.append(_bits(b, E5M2).reshape(-1))
        added.append(c.astype("f2").reshape(-1))
        wants.append((b @ a.T + c).reshape(-1))
    for name, parts in ((A, lefts), (B, rights), (C, added)):
        put(memory[name], np.concatenate(parts))
    memory[D][:] = 0
    return compared(D, np.concatenate(wants), from_f16)


def kernels() -> Iterator[Foreign]:
    """Yield both schedules; one program launches both."""
    sizes = ", ".join(f"{{{m}, {n}, {k}}}" for m, n, k in GROUPS)
    for name, entry in (
        ("ping-pong, cluster of 2", "PingpongFP8FastAccum"),
        ("cooperative", "CooperativeFP8FastAccum"),
    ):
        yield Foreign(
            f"CUTLASS grouped GEMM, {name}",
            ("cutlass",),
            INCLUDES,
            DRIVER.replace("SIZES", sizes),
            _fill,
            EDITS,
            entry=entry,
        )

"""fast.cu: products of bf16 matrices, step by step; its second, fourth and twelfth step.

Source: `examples/matmul/matmul_N.cuh` and the `runKernelN` in each.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.ptx.foreign.build import Edit, Foreign
from fuzz.ptx.foreign.values import product

FOLDER = "fast.cu/examples/matmul"

DRIVER = """
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cassert>
#include <cuda/barrier>
#include <string>
#include <vector>
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define cudaCheck(call) (void)(call)
#include "matmul_STEP.cuh"
void drive() {
    const int m = ROWS, n = COLUMNS, k = DEPTH;
    bf16 *a = named<bf16>("a", m * k), *b = named<bf16>("b", n * k), *c = named<bf16>("c", m * n);
    runKernelSTEP(m, n, k, a, b, c EXTRA);
}
"""

ACQUIRED = "tensor maps in global memory are acquired first, by the proxy that reads them"


def _acquired(path: str, before: str) -> Edit:
    acquire = 'asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;"'
    acquire += ' :: "l"(MAP) : "memory");'
    both = "".join(acquire.replace("MAP", f"tensorMap{which}") for which in "AB")
    return Edit(path, before, f"{both}\n{before}", ACQUIRED)


def _few_ctas(path: str) -> tuple[Edit, ...]:
    """Let one cluster of two CTAs have all tiles."""
    return (
        Edit(path, "constexpr int NUM_SM = 128;", "constexpr int NUM_SM = 2;", "CTAs"),
        Edit(path, "int FCORES = 64;", "int FCORES = 1;", "clusters that have tiles"),
    )


def _twelve_mended(path: str) -> tuple[Edit, ...]:
    alone = 'asm volatile("cp.async.bulk.wait_group 0;");'
    stored = 'asm volatile("bar.sync %0, 128;\\n" ::"r"(wg_idx + 2) : "memory");'
    fence = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
    end = "        }\n    }\n}\n\n// Rotate/flip"
    left = f"        }}\n        {alone}\n    }}\n    asm volatile("
    left += '"barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");\n}\n\n// Rotate/flip'
    return (
        Edit(path, stored, f"{fence}\n{stored}", "stmatrix writes what the async proxy reads"),
        Edit(
            path,
            f"{alone}\n\n            bf16 d_bf16[8];",
            f'{alone}\nasm volatile("bar.sync %0, 128;" ::"r"(wg_idx + 2) : "memory");\n'
            "bf16 d_bf16[8];",
            "the group waits for the one thread that has the store in its bulk groups",
        ),
        Edit(path, end, left, "the last store has read, and no CTA ends before its peer"),
    )


def kernels() -> Iterator[Foreign]:
    """Yield steps of fast.cu, as they are and with what the judge finds mended."""
    two, four, twelve = (f"{FOLDER}/matmul_{step}.cuh" for step in (2, 4, 12))
    begin = "if (threadIdx.x == 0) {\n"
    first_two = f"{begin}        init(&barA, blockDim.x);"
    first_four = f"{begin}        for (int i = 0; i < QSIZE; ++i) {{\n            init(&full[i]"
    few = _few_ctas(twelve)
    yield _step("2", (64, 128, 128))
    yield _step("2", (64, 128, 128), (_acquired(two, first_two),), mended=True)
    yield _step("4", (128, 128, 512))
    yield _step("4", (128, 128, 512), (_acquired(four, first_four),), mended=True)
    yield _step("12", (256, 512, 256), few)
    yield _step("12", (256, 512, 256), few + _twelve_mended(twelve), mended=True)


def _step(
    step: str, sizes: tuple[int, int, int], edits: tuple[Edit, ...] = (), *, mended: bool = False
) -> Foreign:
    m, n, k = sizes
    return Foreign(
        f"fast.cu {step}{', mended' if mended else ''}",
        ("fast.cu",),
        (FOLDER,),
        # Later steps take a place for times of the clock, too.
        DRIVER.replace("STEP", step).replace("EXTRA", "" if step == "2" else ", nullptr"),
        product(m, n, k, turned=True),
        edits,
        (f"-DROWS={m}", f"-DCOLUMNS={n}", f"-DDEPTH={k}"),
    )

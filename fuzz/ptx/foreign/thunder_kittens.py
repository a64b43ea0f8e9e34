"""ThunderKittens: a product and attention, both by its template of loads, computes and finishes.

One CTA, which takes two tiles.

Source: `kernels/gemm/bf16_h100`, `kernels/attention/mha_h100_lcf`; options as `kernels/common.mk`
has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.ptx.foreign.build import Edit, Foreign
from fuzz.ptx.foreign.flash_attention import attended
from fuzz.ptx.foreign.values import product

INCLUDES = ("ThunderKittens/prototype", "ThunderKittens/include", "ThunderKittens/kernels")
OPTIONS = ("--use_fast_math", "-DKITTENS_HOPPER", "-Xcompiler=-Wno-psabi,-fno-strict-aliasing")

PRODUCT = """
#define main main_of_the_benchmark
#include "gemm/bf16_h100/bf16_h100_gemm.cu"
#undef main
void drive() {
    const size_t m = 256, n = 256, k = 384;
    bf16 *a = named<bf16>("a", m * k), *b = named<bf16>("b", k * n), *c = named<bf16>("c", m * n);
    using Kernel = matmul_template<2, 4, 8>;
    const int threads = kittens::prototype::detail::NUM_THREADS_v<Kernel>;
    inner_run<Kernel>(a, b, c, m, n, k, dim3(1), dim3(threads));
}
"""

ATTENTION = """
#include <chrono>
#define main main_of_the_benchmark
#include "attention/mha_h100_lcf/mha_h100_lcf.cu"
#undef main
void drive() {
    using Kernel = attn_fwd_template<128>;
    using Queries = Kernel::layout::qo_global;
    using Keys = Kernel::layout::kv_global;
    const size_t rows = 384;
    bf16 *q = named<bf16>("q", rows * 128), *k = named<bf16>("k", rows * 128);
    bf16 *v = named<bf16>("v", rows * 128), *o = named<bf16>("o", rows * 128);
    Kernel::layout::globals globals = {
        Queries(o, size_t(1), size_t(1), rows, nullptr),
        Queries(q, size_t(1), size_t(1), rows, nullptr),
        Keys(k, size_t(1), size_t(1), rows, nullptr),
        Keys(v, size_t(1), size_t(1), rows, nullptr)};
    const int threads = kittens::prototype::detail::NUM_THREADS_v<Kernel>;
    kittens::prototype::lcf::kernel<Kernel>
        <<<1, threads, kittens::MAX_SHARED_MEMORY - 2000>>>(globals);
}
"""

ONE_LANE = Edit(
    "ThunderKittens/prototype/lcf/lcf.cuh",
    "if (warpid() == NUM_CONSUMER_WARPS) {",
    "if (warpid() == NUM_CONSUMER_WARPS && laneid() == 0) {",
    "one thread initialises each mbarrier",
)


def kernels() -> Iterator[Foreign]:
    """Yield the product and attention, as they are and mended."""
    product_of = product(256, 256, 384, rows=False)
    attention = attended(384, 384, 128, sums=False)
    for name, driver, fill in (
        ("matmul", PRODUCT, product_of),
        ("attention", ATTENTION, attention),
    ):
        for edits in ((), (ONE_LANE,)):
            yield Foreign(
                f"ThunderKittens {name} (lcf){', mended' if edits else ''}",
                ("ThunderKittens",),
                INCLUDES,
                driver,
                fill,
                edits,
                OPTIONS,
                "kernel",
            )

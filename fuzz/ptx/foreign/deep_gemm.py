"""DeepGEMM: a persistent product of bf16 matrices, with and without multicast.

Its host code asks torch for tensors, and compiles the kernel when it is called; so the driver says
the instance, the tensor maps and the launch, as `csrc/jit_kernels/impls/sm90_bf16_gemm.hpp` does.

Source: `deep_gemm/include/deep_gemm/impls/sm90_bf16_gemm.cuh`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.ptx.foreign.build import Edit, Foreign
from fuzz.ptx.foreign.values import product

INCLUDE = "DeepGEMM/deep_gemm/include"

DRIVER = """
#include <deep_gemm/impls/sm90_bf16_gemm.cuh>
using Bf16 = cutlass::bfloat16_t;
constexpr unsigned kM = 256, kN = 256, kK = 320, kTile = 128, kDepth = 64, kStages = 4;
constexpr unsigned kShared = kTile * kTile * 2 + kStages * (2 * kTile * kDepth * 2 + 16);

CUtensorMap tiles(Bf16* of, unsigned rows, unsigned columns) {
    CUtensorMap map;
    const cuuint64_t dims[] = {columns, rows}, strides[] = {columns * 2};
    const cuuint32_t box[] = {64, kTile}, steps[] = {1, 1};
    cuTensorMapEncodeTiled(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, of, dims, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

void drive() {
    using namespace deep_gemm;
    Bf16 *a = named<Bf16>("a", kM * kK), *b = named<Bf16>("b", kN * kK);
    Bf16* c = named<Bf16>("c", kM * kN);
    auto kernel = &sm90_bf16_gemm_impl<
        cute::UMMA::Major::K, cute::UMMA::Major::K, 0, kN, kK, 1, kTile, kTile, kDepth, 128, 128,
        128, kStages, 128, 256, CLUSTER, false, 2, GemmType::Normal, false, Bf16>;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {CLUSTER, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {dim3(2, 1, 1), dim3(384, 1, 1), kShared, nullptr, attributes, 2};
    int* groups = nullptr;
    unsigned m = kM, n = kN, k = kK;
    CUtensorMap maps[] = {tiles(a, kM, kK), tiles(b, kN, kK), tiles(c, kM, kN)};
    void* arguments[] = {&groups, &m, &n, &k, &maps[0], &maps[1], &maps[2]};
    cudaLaunchKernelExC(&how, reinterpret_cast<const void*>(kernel), arguments);
}
"""

ENDED = Edit(
    f"{INCLUDE}/deep_gemm/impls/sm90_bf16_gemm.cuh",
    "            __syncwarp();\n        }\n    }\n#else\n",
    "            __syncwarp();\n        }\n        cute::tma_store_wait<0>();\n    }\n#else\n",
    "the last TMA store has read shared memory before the CTA ends",
)


def kernels() -> Iterator[Foreign]:
    """Yield it for a cluster of two and for one CTA, as it is and mended."""
    for cluster, says in (("2", "cluster of 2"), ("1", "one CTA a cluster")):
        for edits in ((), (ENDED,)):
            yield Foreign(
                f"DeepGEMM bf16, {says}{', mended' if edits else ''}",
                ("DeepGEMM", "cutlass"),
                (INCLUDE, "cutlass/include"),
                DRIVER.replace("CLUSTER", cluster),
                product(256, 256, 320),
                edits,
            )

"""The CUDA programming guide: a tile by TMA and `cuda::barrier`, changed and stored.

The guide has no repository; the kernel is written here with the calls that it describes, so that
the headers of the toolkit are judged.

Source: CUDA C++ Programming Guide, "Using TMA to transfer multi-dimensional arrays".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fuzz.ptx.foreign.build import Arrays, Foreign
from fuzz.ptx.foreign.values import compared, from_i32, put
from fuzz.ptx.subjects import Memory

DRIVER = """
#include <cuda.h>
#include <cuda/barrier>
#include <utility>
namespace cde = cuda::device::experimental;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr unsigned kRows = 8, kColumns = 32;

#pragma nv_diag_suppress static_var_with_dynamic_init
__global__ void numbered(const __grid_constant__ CUtensorMap all, int column, int row) {
    __shared__ alignas(128) int tile[kRows][kColumns];
    __shared__ Barrier filled;
    if (threadIdx.x == 0) {
        init(&filled, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(&tile, &all, column, row, filled);
        token = cuda::device::barrier_arrive_tx(filled, 1, sizeof(tile));
    } else {
        token = filled.arrive();
    }
    filled.wait(std::move(token));
    for (unsigned i = threadIdx.x; i < kRows * kColumns; i += blockDim.x)
        tile[i / kColumns][kColumns - 1 - i % kColumns] += threadIdx.x;
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_shared_to_global(&all, column, row, &tile);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
        filled.~Barrier();
    }
}

void drive() {
    int* of = named<int>("x", 4 * kRows * kColumns);
    CUtensorMap map;
    const cuuint64_t dims[] = {2 * kColumns, 2 * kRows}, strides[] = {2 * kColumns * 4};
    const cuuint32_t box[] = {kColumns, kRows}, steps[] = {1, 1};
    cuTensorMapEncodeTiled(
        &map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, of, dims, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    numbered<<<1, 64>>>(map, kColumns, kRows);
}
"""


def _fill(memory: Arrays) -> Callable[[Memory], str]:
    x = np.arange(16 * 64, dtype=np.int32).reshape(16, 64)
    put(memory["x"], x)
    want = x.copy()
    thread = np.arange(8 * 32).reshape(8, 32)[:, ::-1] % 64
    want[8:, 32:] += thread.astype(np.int32)
    return compared("x", want.astype(np.float32), from_i32)


def kernels() -> Iterator[Foreign]:
    """Yield the one kernel."""
    yield Foreign("CUDA programming guide, tile by TMA", (), (), DRIVER, _fill)

// Copies of 4, 8 or 16 bytes by each thread, and their groups.
// Source: PTX ISA, "cp.async", "cp.async.wait_group".
#pragma once
#include "tile.cuh"

namespace cp_async {

// Bytes past the first `valid` become 0 and are not read.
template <int NBYTES> __device__ __forceinline__ void copy(uint32 dst, const void* src, int valid) {
  if constexpr (NBYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(valid) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(dst), "l"(src), "n"(NBYTES), "r"(valid) : "memory");
  }
}

template <class L, int WIDTH, class D, class S>
__device__ __forceinline__ void load(const D dst, const S src, int tid) {
  constexpr int kSize = int(sizeof(*dst.base)), kParts = L::kVec / WIDTH;
  const tile::Walk<L, true, S> from(src, tid);
  const tile::Walk<L, true, D> to(dst, tid);
  const bool whole = decltype(from)::template kOnce<WIDTH> && from.whole();
  const auto each = [&](auto&& bytes) {
#pragma unroll
    for (int v = 0; v < L::kVectors; ++v)
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        if (L::holds(v, tid))
          copy<WIDTH * kSize>(uint32(__cvta_generic_to_shared(to.at(v, p * WIDTH))), from.at(v, p * WIDTH), bytes(v, p * WIDTH));
  };
  if (whole) {
    each([](int, int) { return WIDTH * kSize; });
  } else {
    each([&](int v, int e) {
      const int left = src.col_limit - (from.col(v) + e);
      return from.row(v) >= src.row_limit || left <= 0 ? 0 : left < WIDTH ? left * kSize : WIDTH * kSize;
    });
  }
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int KEEP> __device__ __forceinline__ void await() {
  asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}

}  // namespace cp_async

// Bulk tensor copies and their groups.  Coordinates are in elements, innermost first.
// Source: PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.wait_group".
#pragma once
#include "mbarrier.cuh"
#include "types.cuh"

namespace tma {

__device__ __forceinline__ uint32 address(const void* slot) { return uint32(__cvta_generic_to_shared(slot)); }

// The place along an axis of so many elements that an integer in memory names; where it names none,
// the one behind the last, so that a box there is all zeros.  Volatile: nothing moves it in front of
// a wait for the launch that writes the integer.  Source: PTX ISA, "ld".
template <class I> __device__ __forceinline__ int place(const I* at, bool there, int many) {
  int64 found = -1;
  if (there) {
    if constexpr (sizeof(I) == 8) {
      asm volatile("ld.global.b64 %0, [%1];" : "=l"(found) : "l"(at) : "memory");
    } else {
      int word;
      asm volatile("ld.global.b32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
      found = word;
    }
  }
  return 0 <= found && found < many ? int(found) : many;
}

// The four copies of one rank.  AT_n: the coordinates where they are operands n, n + 1, ... of asm.
#define FUSER_TMA(RANK, AT_2, AT_3, AT_4, INPUTS, ...)                                                          \
  __device__ __forceinline__ void load(void* dst, const TensorMap* map, uint64* barrier, __VA_ARGS__) {         \
    asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.mbarrier::complete_tx::bytes"            \
                 " [%0], [%1, " AT_3 "], [%2];"                                                                 \
                 ::"r"(address(dst)), "l"(map), "r"(mbarrier::address(barrier)), INPUTS : "memory");            \
  }                                                                                                             \
  __device__ __forceinline__ void multicast(void* dst, const TensorMap* map, uint64* barrier, int ctas, __VA_ARGS__) { \
    asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.mbarrier::complete_tx::bytes"            \
                 ".multicast::cluster [%0], [%1, " AT_4 "], [%2], %3;"                                          \
                 ::"r"(address(dst)), "l"(map), "r"(mbarrier::address(barrier)),                                \
                   "h"(static_cast<unsigned short>(ctas)), INPUTS : "memory");                                  \
  }                                                                                                             \
  __device__ __forceinline__ void store(const void* src, const TensorMap* map, __VA_ARGS__) {                   \
    asm volatile("cp.async.bulk.tensor." RANK ".global.shared::cta.bulk_group [%0, " AT_2 "], [%1];"            \
                 ::"l"(map), "r"(address(src)), INPUTS : "memory");                                             \
  }                                                                                                             \
  __device__ __forceinline__ void reduce(const void* src, const TensorMap* map, __VA_ARGS__) {                  \
    asm volatile("cp.reduce.async.bulk.tensor." RANK ".global.shared::cta.add.bulk_group [%0, " AT_2 "], [%1];" \
                 ::"l"(map), "r"(address(src)), INPUTS : "memory");                                             \
  }
#define FUSER_1 "r"(c0)
#define FUSER_2 FUSER_1, "r"(c1)
#define FUSER_3 FUSER_2, "r"(c2)
#define FUSER_4 FUSER_3, "r"(c3)
#define FUSER_5 FUSER_4, "r"(c4)
FUSER_TMA("1d", "{%2}", "{%3}", "{%4}", FUSER_1, int c0)
FUSER_TMA("2d", "{%2, %3}", "{%3, %4}", "{%4, %5}", FUSER_2, int c0, int c1)
FUSER_TMA("3d", "{%2, %3, %4}", "{%3, %4, %5}", "{%4, %5, %6}", FUSER_3, int c0, int c1, int c2)
FUSER_TMA("4d", "{%2, %3, %4, %5}", "{%3, %4, %5, %6}", "{%4, %5, %6, %7}", FUSER_4, int c0, int c1, int c2, int c3)
FUSER_TMA("5d", "{%2, %3, %4, %5, %6}", "{%3, %4, %5, %6, %7}", "{%4, %5, %6, %7, %8}", FUSER_5,
          int c0, int c1, int c2, int c3, int c4)
#undef FUSER_TMA
#undef FUSER_1
#undef FUSER_2
#undef FUSER_3
#undef FUSER_4
#undef FUSER_5

// Slots of PANELS panels of NBYTES each, COLS elements wide: one copy for each.
template <int PANELS, int NBYTES, int COLS, class... C>
__device__ __forceinline__ void load(void* dst, const TensorMap* map, uint64* barrier, int c0, C... rest) {
#pragma unroll
  for (int p = 0; p < PANELS; ++p) load(static_cast<char*>(dst) + p * NBYTES, map, barrier, c0 + p * COLS, rest...);
}
template <int PANELS, int NBYTES, int COLS, class... C>
__device__ __forceinline__ void multicast(void* dst, const TensorMap* map, uint64* barrier, int ctas, int c0, C... rest) {
#pragma unroll
  for (int p = 0; p < PANELS; ++p)
    multicast(static_cast<char*>(dst) + p * NBYTES, map, barrier, ctas, c0 + p * COLS, rest...);
}
template <int PANELS, int NBYTES, int COLS, class... C>
__device__ __forceinline__ void store(const void* src, const TensorMap* map, int c0, C... rest) {
#pragma unroll
  for (int p = 0; p < PANELS; ++p) store(static_cast<const char*>(src) + p * NBYTES, map, c0 + p * COLS, rest...);
}
template <int PANELS, int NBYTES, int COLS, class... C>
__device__ __forceinline__ void reduce(const void* src, const TensorMap* map, int c0, C... rest) {
#pragma unroll
  for (int p = 0; p < PANELS; ++p) reduce(static_cast<const char*>(src) + p * NBYTES, map, c0 + p * COLS, rest...);
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int KEEP> __device__ __forceinline__ void await() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(KEEP) : "memory");
}
template <int KEEP> __device__ __forceinline__ void await_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(KEEP) : "memory");
}

}  // namespace tma

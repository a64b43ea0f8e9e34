// One-dimensional bulk copies: addresses and bytes are multiples of 16; no tensor map.
// Source: PTX ISA, "cp.async.bulk".
#pragma once
#include "hint.cuh"
#include "mbarrier.cuh"
#include "types.cuh"

namespace bulk {

// What is read leaves the L2 last, if it is to be KEPT.
template <bool KEPT = false>
__device__ __forceinline__ void load(void* dst, const void* src, int nbytes, uint64* barrier) {
  const uint32 to = uint32(__cvta_generic_to_shared(dst)), full = mbarrier::address(barrier);
  if (nbytes <= 0) return;
  if constexpr (KEPT) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(__cvta_generic_to_global(src)), "r"(nbytes), "r"(full), "l"(hint::evict_last())
                 : "memory");
  } else {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(__cvta_generic_to_global(src)), "r"(nbytes), "r"(full) : "memory");
  }
}
__device__ __forceinline__ void store(void* dst, const void* src, int nbytes) {
  if (nbytes > 0)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(__cvta_generic_to_global(dst)), "r"(uint32(__cvta_generic_to_shared(src))), "r"(nbytes) : "memory");
}

}  // namespace bulk

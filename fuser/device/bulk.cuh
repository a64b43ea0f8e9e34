// One-dimensional bulk copies: addresses and bytes are multiples of 16; no tensor map.
// Source: PTX ISA, "cp.async.bulk".
#pragma once
#include "mbarrier.cuh"
#include "types.cuh"

namespace bulk {

__device__ __forceinline__ void load(void* dst, const void* src, int nbytes, uint64* barrier) {
  if (nbytes > 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(uint32(__cvta_generic_to_shared(dst))), "l"(__cvta_generic_to_global(src)), "r"(nbytes),
                   "r"(mbarrier::address(barrier)) : "memory");
}
__device__ __forceinline__ void store(void* dst, const void* src, int nbytes) {
  if (nbytes > 0)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(__cvta_generic_to_global(dst)), "r"(uint32(__cvta_generic_to_shared(src))), "r"(nbytes) : "memory");
}

}  // namespace bulk

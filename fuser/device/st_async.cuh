// Stores by each thread into the shared memory of a CTA of the cluster, whose bytes complete on an
// mbarrier there.  Source: PTX ISA, "st.async", "mapa".
#pragma once
#include "tile.cuh"

namespace st_async {

// What lies at this address here, in the shared memory of another CTA.
__device__ __forceinline__ uint32 of_cta(uint32 here, int cta) {
  uint32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(cta));
  return there;
}

__device__ __forceinline__ void put(uint32 to, uint32 word, uint32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               ::"r"(to), "r"(word), "r"(barrier) : "memory");
}
__device__ __forceinline__ void put(uint32 to, uint2 word, uint32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
               ::"r"(to), "r"(word.x), "r"(word.y), "r"(barrier) : "memory");
}
__device__ __forceinline__ void put(uint32 to, uint4 word, uint32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
               ::"r"(to), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w), "r"(barrier) : "memory");
}

// Without `cta` into its own CTA: its addresses are addresses of the cluster.
template <class L, int WIDTH, class R, class D>
__device__ __forceinline__ void store(const D dst, const R (&src)[L::kRegisters], uint64* barrier, int tid, int cta = -1) {
  using T = typename types::Plain<decltype(*dst.base)>::type;
  constexpr int kParts = L::kVec / WIDTH;
  const uint32 local = uint32(__cvta_generic_to_shared(barrier));
  const uint32 bar = cta < 0 ? local : of_cta(local, cta);
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v)
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      tile::Word<T, WIDTH> word;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) types::to_memory(word.element[e], src[(v * kParts + p) * WIDTH + e]);
      if (!L::holds(v, tid)) continue;
      const uint32 here = uint32(__cvta_generic_to_shared(dst.at(L::row(v, tid), L::col(v, tid) + p * WIDTH)));
      put(cta < 0 ? here : of_cta(here, cta), word.raw, bar);
    }
}

}  // namespace st_async

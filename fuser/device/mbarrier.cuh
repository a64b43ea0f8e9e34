// mbarriers.  Source: PTX ISA, "mbarrier".  try_wait may time out, so every wait loops.
#pragma once
#include "types.cuh"

namespace mbarrier {

__device__ __forceinline__ uint32 address(const uint64* barrier) {
  return uint32(__cvta_generic_to_shared(barrier));
}

template <int SLOTS> __device__ __forceinline__ void init(uint64* barrier, int arrivals) {
  for (int slot = 0; slot < SLOTS; ++slot)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier + slot)), "r"(arrivals) : "memory");
}
template <int SLOTS> __device__ __forceinline__ void invalidate(uint64* barrier) {
  for (int slot = 0; slot < SLOTS; ++slot)
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address(barrier + slot)) : "memory");
}

__device__ __forceinline__ void arrive_cta(uint64* barrier) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.release.cta.shared::cta.b64 t, [%0]; }" ::"r"(address(barrier)) : "memory");
}
__device__ __forceinline__ void arrive_cluster(uint64* barrier) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.release.cluster.shared::cta.b64 t, [%0]; }" ::"r"(address(barrier)) : "memory");
}
__device__ __forceinline__ void arrive_remote(uint64* barrier, int cta) {
  asm volatile(
      "{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
      "  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]; }" ::"r"(address(barrier)), "r"(cta) : "memory");
}
__device__ __forceinline__ void arrive_cta(uint64* barrier, int count) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.release.cta.shared::cta.b64 t, [%0], %1; }"
               ::"r"(address(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive_cluster(uint64* barrier, int count) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.release.cluster.shared::cta.b64 t, [%0], %1; }"
               ::"r"(address(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive_remote(uint64* barrier, int cta, int count) {
  asm volatile(
      "{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
      "  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r], %2; }"
      ::"r"(address(barrier)), "r"(cta), "r"(count) : "memory");
}
// Released is what lies in the shared memory of this CTA only, for which no access of global memory has to end.
__device__ __forceinline__ void arrive_remote_shared(uint64* barrier, int cta, int count = 1) {
  asm volatile(
      "{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
      "  fence.release.sync_restrict::shared::cta.cluster;"
      "  mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [r], %2; }"
      ::"r"(address(barrier)), "r"(cta), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive_expect_tx(uint64* barrier, int nbytes) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 t, [%0], %1; }"
               ::"r"(address(barrier)), "r"(nbytes) : "memory");
}
__device__ __forceinline__ void expect_tx(uint64* barrier, int nbytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
               ::"r"(address(barrier)), "r"(nbytes) : "memory");
}
__device__ __forceinline__ void cp_async_arrive(uint64* barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(address(barrier)) : "memory");
}
__device__ __forceinline__ void cp_async_arrive_noinc(uint64* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address(barrier)) : "memory");
}

__device__ __forceinline__ void wait_parity_cta(uint64* barrier, int parity) {
  asm volatile(
      "{ .reg .pred p;\n"
      "again:\n"
      "  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;\n"
      "  @!p bra again;\n"
      "}" ::"r"(address(barrier)), "r"(parity) : "memory");
}
__device__ __forceinline__ void wait_parity_cluster(uint64* barrier, int parity) {
  asm volatile(
      "{ .reg .pred p;\n"
      "again:\n"
      "  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      "  @!p bra again;\n"
      "}" ::"r"(address(barrier)), "r"(parity) : "memory");
}
// A single try, which may give up.
__device__ __forceinline__ void try_parity_cta(uint64* barrier, int parity) {
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1; }"
               ::"r"(address(barrier)), "r"(parity) : "memory");
}
__device__ __forceinline__ void try_parity_cluster(uint64* barrier, int parity) {
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; }"
               ::"r"(address(barrier)), "r"(parity) : "memory");
}
// Nobody outside the cluster reaches a barrier, so that its scope is as good as the GPU's.
__device__ __forceinline__ void arrive_gpu(uint64* barrier) { arrive_cluster(barrier); }
__device__ __forceinline__ void arrive_gpu(uint64* barrier, int count) { arrive_cluster(barrier, count); }
__device__ __forceinline__ void wait_parity_gpu(uint64* barrier, int parity) { wait_parity_cluster(barrier, parity); }
__device__ __forceinline__ void try_parity_gpu(uint64* barrier, int parity) { try_parity_cluster(barrier, parity); }

}  // namespace mbarrier

// Bulk tensor copies and asynchronous groups.  Coordinates are in elements, innermost first.
// Source: PTX ISA, "cp.async.bulk.tensor", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group".
#pragma once
#include "mbarrier.cuh"
#include "types.cuh"

namespace tma {

__device__ __forceinline__ uint32 address(const void* slot) { return uint32(__cvta_generic_to_shared(slot)); }

__device__ __forceinline__ void load(void* dst, const TensorMap* map, int c0, uint64* barrier) {
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];"
               ::"r"(address(dst)), "l"(map), "r"(mbarrier::address(barrier)), "r"(c0) : "memory");
}
__device__ __forceinline__ void load(void* dst, const TensorMap* map, int c0, int c1, uint64* barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(address(dst)), "l"(map), "r"(mbarrier::address(barrier)), "r"(c0), "r"(c1) : "memory");
}
__device__ __forceinline__ void load(void* dst, const TensorMap* map, int c0, int c1, int c2, uint64* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               ::"r"(address(dst)), "l"(map), "r"(mbarrier::address(barrier)), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
__device__ __forceinline__ void load(void* dst, const TensorMap* map, int c0, int c1, int c2, int c3, uint64* barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(address(dst)), "l"(map), "r"(mbarrier::address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
__device__ __forceinline__ void load(void* dst, const TensorMap* map, int c0, int c1, int c2, int c3, int c4, uint64* barrier) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               ::"r"(address(dst)), "l"(map), "r"(mbarrier::address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

__device__ __forceinline__ void store(const TensorMap* map, int c0, const void* src) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];"
               ::"l"(map), "r"(address(src)), "r"(c0) : "memory");
}
__device__ __forceinline__ void store(const TensorMap* map, int c0, int c1, const void* src) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(map), "r"(address(src)), "r"(c0), "r"(c1) : "memory");
}
__device__ __forceinline__ void store(const TensorMap* map, int c0, int c1, int c2, const void* src) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               ::"l"(map), "r"(address(src)), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
__device__ __forceinline__ void store(const TensorMap* map, int c0, int c1, int c2, int c3, const void* src) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               ::"l"(map), "r"(address(src)), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
__device__ __forceinline__ void store(const TensorMap* map, int c0, int c1, int c2, int c3, int c4, const void* src) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
               ::"l"(map), "r"(address(src)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

__device__ __forceinline__ void async_commit_bulk() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void async_commit_cp_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void async_commit_wgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int KEEP> __device__ __forceinline__ void async_await_bulk() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(KEEP) : "memory");
}
template <int KEEP> __device__ __forceinline__ void async_await_bulk_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(KEEP) : "memory");
}
template <int KEEP> __device__ __forceinline__ void async_await_cp_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}
template <int KEEP> __device__ __forceinline__ void async_await_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(KEEP) : "memory");
}

}  // namespace tma

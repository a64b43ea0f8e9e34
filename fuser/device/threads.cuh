// Who executes, and how threads join.
// Source: PTX ISA, "barrier", "barrier.cluster", "griddepcontrol",
// "setmaxnreg", "%cluster_ctarank".
#pragma once
#include "types.cuh"

namespace threads {

template <int FIRST, int WARPS> __device__ __forceinline__ bool in_role() {
  const int warp = threadIdx.x / 32;
  return warp >= FIRST && warp < FIRST + WARPS;
}
template <int FIRST> __device__ __forceinline__ int of_role() { return threadIdx.x - 32 * FIRST; }
// Which of two roles of as many warps this is, in the same register for all threads of a warp.
template <int FIRST, int WARPS> __device__ __forceinline__ int second_role() {
  return __shfl_sync(0xffffffffu, int(threadIdx.x) / 32 >= FIRST + WARPS, 0);
}
// The same register for all threads of a warp, as descriptors of tensor cores want it.
__device__ __forceinline__ int warpgroup(int tid) { return __shfl_sync(0xffffffffu, tid / 128, 0); }

// Always the same thread, so that bulk groups committed by it are awaited by it.
__device__ __forceinline__ bool elect_per_role(int tid) { return tid == 0; }
__device__ __forceinline__ bool elect_per_warp(int tid) { return tid % 32 == 0; }
__device__ __forceinline__ bool elect_per_warpgroup(int tid) { return tid % 128 == 0; }

__device__ __forceinline__ void block_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// Source: PTX ISA, "bar.red": joins like bar.sync, and gives every thread the or of all predicates.
__device__ __forceinline__ bool any_of_block(bool mine, int barrier, int threads) {
  int any;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\tsetp.ne.s32 p, %1, 0;\n\tbar.red.or.pred q, %2, %3, p;\n\tselp.s32 %0, 1, 0, q;\n\t}"
      : "=r"(any) : "r"(int(mine)), "r"(barrier), "r"(threads) : "memory");
  return any;
}
__device__ __forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void warp_sync() { __syncwarp(); }

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void grid_dependency_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void grid_dependency_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Number of this CTA in the order in which they start; the last one leaves the counter at 0.  The
// word in shared memory is free again afterwards, for every proxy.
__device__ __forceinline__ int ticket(uint32* counter, unsigned char* word) {
  volatile int* const drawn = reinterpret_cast<volatile int*>(word);
  if (threadIdx.x == 0) *drawn = atomicInc(counter, gridDim.x - 1);
  __syncthreads();
  const int mine = *drawn;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  return mine;
}

template <int N> __device__ __forceinline__ void set_max_nreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void set_max_nreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N) : "memory");
}

}  // namespace threads

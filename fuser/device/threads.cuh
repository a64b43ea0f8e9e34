// Who executes, and how threads join.
// Source: PTX ISA, "barrier", "barrier.cluster", "setmaxnreg", "activemask and warps".
#pragma once

namespace threads {

template <int FIRST, int WARPS> __device__ __forceinline__ bool in_role() {
  const int warp = threadIdx.x / 32;
  return warp >= FIRST && warp < FIRST + WARPS;
}
template <int FIRST> __device__ __forceinline__ int of_role() { return threadIdx.x - 32 * FIRST; }

// Always the same thread, so that bulk groups committed by it are awaited by it.
__device__ __forceinline__ bool elect_per_role(int tid) { return tid == 0; }
__device__ __forceinline__ bool elect_per_warp(int tid) { return tid % 32 == 0; }

__device__ __forceinline__ void block_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void warp_sync() { __syncwarp(); }

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <int N> __device__ __forceinline__ void set_max_nreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void set_max_nreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N) : "memory");
}

}  // namespace threads

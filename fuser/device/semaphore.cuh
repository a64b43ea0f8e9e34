// Turns of CTAs on a semaphore in global memory.  Source: PTX ISA, "Memory consistency model".
#pragma once

namespace semaphore {

__device__ __forceinline__ void wait(const int* semaphore, int turn, int tid) {
  if (tid == 0) {
    int seen;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(semaphore) : "memory");
    } while (seen != turn);
  }
  __syncthreads();
}
__device__ __forceinline__ void release(int* semaphore, int turn, int tid) {
  if (tid == 0) asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(semaphore), "r"(turn) : "memory");
}

}  // namespace semaphore

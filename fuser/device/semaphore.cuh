// Turns of CTAs on a semaphore in global memory.  Source: PTX ISA, "Memory consistency model".
#pragma once

namespace semaphore {

#define FUSER_SEMAPHORE(SCOPE)                                                                              \
  __device__ __forceinline__ void wait_##SCOPE(const int* semaphore, int turn, int tid) {                   \
    if (tid == 0) {                                                                                         \
      int seen;                                                                                             \
      do {                                                                                                  \
        asm volatile("ld.acquire." #SCOPE ".global.s32 %0, [%1];" : "=r"(seen) : "l"(semaphore) : "memory"); \
      } while (seen != turn);                                                                               \
    }                                                                                                       \
    __syncthreads();                                                                                        \
  }                                                                                                         \
  __device__ __forceinline__ void release_##SCOPE(int* semaphore, int turn) {                               \
    asm volatile("st.release." #SCOPE ".global.s32 [%0], %1;" ::"l"(semaphore), "r"(turn) : "memory");      \
  }                                                                                                         \
  __device__ __forceinline__ void release_##SCOPE##_relaxed(int* semaphore, int turn) {                     \
    asm volatile("st.relaxed." #SCOPE ".global.s32 [%0], %1;" ::"l"(semaphore), "r"(turn) : "memory");      \
  }
FUSER_SEMAPHORE(cta)
FUSER_SEMAPHORE(cluster)
FUSER_SEMAPHORE(gpu)
#undef FUSER_SEMAPHORE

}  // namespace semaphore

// Turns of CTAs on a semaphore in global memory.  Source: PTX ISA, "Memory consistency model".
#pragma once
#include "threads.cuh"

namespace semaphore {

#define FUSER_SEMAPHORE(SCOPE)                                                                              \
  __device__ __forceinline__ void wait_##SCOPE(const int* semaphore, int turn, int tid, int barrier, int joined) {  \
    if (tid == 0) {                                                                                         \
      int seen;                                                                                             \
      do {                                                                                                  \
        asm volatile("ld.acquire." #SCOPE ".global.s32 %0, [%1];" : "=r"(seen) : "l"(semaphore) : "memory"); \
      } while (seen != turn);                                                                               \
    }                                                                                                       \
    threads::block_sync(barrier, joined);                                                                   \
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

// Each CTA counts itself in, waits for all, and counts itself out; the last one out wraps to 0.
// Nobody can wrap it before all have seen that all are in: who is back for the next meeting waits
// until all are out, and then none can be full without it.
__device__ __forceinline__ void meet(int* semaphore, int ctas, int tid, int barrier, int joined) {
  threads::block_sync(barrier, joined);
  if (tid == 0) {
    const unsigned last = 2u * unsigned(ctas) - 1u;
    unsigned seen;
    do
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(semaphore) : "memory");
    while (seen >= unsigned(ctas));
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(seen) : "l"(semaphore), "r"(last) : "memory");
    for (++seen; seen < unsigned(ctas);)
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(semaphore) : "memory");
    asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(semaphore), "r"(last) : "memory");
  }
  threads::block_sync(barrier, joined);
}

// Each CTA counts itself in and goes on; the last one wraps to 0, and all its threads are told so.
__device__ __forceinline__ bool last_to_come(int* semaphore, int ctas, int tid, int barrier, int joined) {
  threads::block_sync(barrier, joined);
  const unsigned last = unsigned(ctas) - 1u;
  unsigned seen = 0;
  if (tid == 0)
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(seen) : "l"(semaphore), "r"(last) : "memory");
  return threads::any_of_block(tid == 0 && seen == last, barrier, joined);
}

}  // namespace semaphore

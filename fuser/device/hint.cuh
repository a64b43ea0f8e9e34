// What the L2 is told of memory that is read.  Source: PTX ISA, "createpolicy".
#pragma once
#include "types.cuh"

namespace hint {

// It is the last to leave.
__device__ __forceinline__ uint64 evict_last() {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

}  // namespace hint

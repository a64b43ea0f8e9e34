// Products of fragments by each warp.
// Source: PTX ISA, "mma.m16n8k16".
#pragma once
#include "tile.cuh"

namespace mma {

template <class T> struct Instruction;
template <> struct Instruction<bf16> {
  static __device__ __forceinline__ void issue(float* d, const uint32* a, const uint32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct Instruction<f16> {
  static __device__ __forceinline__ void issue(float* d, const uint32* a, const uint32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

// N columns, STEPS times 16 along K; a strip of `acc` has N / 2 registers, one of `a` 4 a step.
template <class T, int N, int STEPS, int R>
__device__ __forceinline__ void add_product(float (&acc)[R], const uint32* a, const uint32* b) {
#pragma unroll
  for (int step = 0; step < STEPS; ++step)
#pragma unroll
    for (int strip = 0; strip < R / (N / 2); ++strip)
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
        Instruction<T>::issue(acc + strip * (N / 2) + 4 * n, a + (strip * STEPS + step) * 4, b + (n * STEPS + step) * 2);
}

}  // namespace mma

// Products of fragments by each warp.
// Source: PTX ISA, "mma.m16n8k16", "mma.m16n8k8", "mma.m16n8k32".
#pragma once
#include "tile.cuh"

namespace mma {

// T: type of the operands; D: of a register of the accumulator, of which 16 x 8 elements are kRegisters.
template <class T, class D> struct Instruction;

#define FUSER_MMA(T, D, LETTER, NAME)                                                                        \
  template <> struct Instruction<T, D> {                                                                     \
    static constexpr int kRegisters = 4;                                                                     \
    static __device__ __forceinline__ void issue(D* d, const uint32* a, const uint32* b) {                   \
      asm volatile("mma.sync.aligned." NAME " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                   : "+" LETTER(d[0]), "+" LETTER(d[1]), "+" LETTER(d[2]), "+" LETTER(d[3])                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                      \
    }                                                                                                        \
  };
FUSER_MMA(bf16, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
FUSER_MMA(f16, float, "f", "m16n8k16.row.col.f32.f16.f16.f32")
FUSER_MMA(float, float, "f", "m16n8k8.row.col.f32.tf32.tf32.f32")  // the lower 13 bits are not looked at
FUSER_MMA(int8, int, "r", "m16n8k32.row.col.s32.s8.s8.s32")
#undef FUSER_MMA

// Sums in f16, two in a register.
template <> struct Instruction<f16, uint32> {
  static constexpr int kRegisters = 2;
  static __device__ __forceinline__ void issue(uint32* d, const uint32* a, const uint32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

// N columns, STEPS times 32 bytes along K, for which a strip of `a` has 4 registers.
template <class T, int N, int STEPS, class D, int R>
__device__ __forceinline__ void add_product(D (&acc)[R], const uint32* a, const uint32* b) {
  using One = Instruction<T, D>;
  constexpr int kStrip = N / 8 * One::kRegisters;
#pragma unroll
  for (int step = 0; step < STEPS; ++step)
#pragma unroll
    for (int strip = 0; strip < R / kStrip; ++strip)
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
        One::issue(acc + strip * kStrip + n * One::kRegisters, a + (strip * STEPS + step) * 4, b + (n * STEPS + step) * 2);
}

}  // namespace mma

// Additions to global memory, element by element.
// Source: PTX ISA, "red".
#pragma once
#include "tile.cuh"

namespace atomic {

__device__ __forceinline__ void add(float* at, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(at), "f"(x) : "memory");
}
__device__ __forceinline__ void add(double* at, double x) {
  asm volatile("red.relaxed.gpu.global.add.f64 [%0], %1;" ::"l"(at), "d"(x) : "memory");
}
__device__ __forceinline__ void add(int32* at, int32 x) {
  asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}
__device__ __forceinline__ void add(int64* at, int64 x) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(x) : "memory");
}
__device__ __forceinline__ void add(bf16* at, bf16 x) {
  asm volatile("red.relaxed.gpu.global.add.noftz.bf16 [%0], %1;" ::"l"(at), "h"(x.bits) : "memory");
}
__device__ __forceinline__ void add(f16* at, f16 x) {
  asm volatile("red.relaxed.gpu.global.add.noftz.f16 [%0], %1;" ::"l"(at), "h"(x.bits) : "memory");
}

// How often `counter` was drawn from before, into shared memory.
__device__ __forceinline__ void draw(int32* dst, int32* counter) {
  int32 before;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  *dst = before;
}
// The same where no other CTA draws meanwhile.
__device__ __forceinline__ void draw_alone(int32* dst, int32* counter) {
  const int32 before = *static_cast<volatile int32*>(counter);
  *static_cast<volatile int32*>(counter) = before + 1;
  *dst = before;
}

template <class L, class D, class R>
__device__ __forceinline__ void add(const D dst, const R (&src)[L::kRegisters], int tid) {
  using T = typename types::Plain<decltype(*dst.base)>::type;
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v)
#pragma unroll
    for (int e = 0; e < L::kVec; ++e) {
      const int r = dst.row + L::row(v, tid), c = dst.col + L::col(v, tid) + e;
      T x;
      types::to_memory(x, src[v * L::kVec + e]);
      if (L::holds(v, tid) && dst.inside(r, c)) add(dst.at(r, c), x);
    }
}

}  // namespace atomic

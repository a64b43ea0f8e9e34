// Products by warpgroups on tensor cores, asynchronous.  Registers of accumulators and of A are pinned
// at fences and waits: else the compiler may move their other uses across, and the assembler would
// serialise.  The instructions themselves are spelled by the kernel, for the shapes that it uses.
// Source: PTX ISA, "wgmma.mma_async", "asynchronous warpgroup level matrix shared memory layout".
#pragma once
#include "types.cuh"

namespace wgmma {

// T: type of the operands; D: of a register of the accumulator; N: columns of the product.
template <class T, class D, int N> struct Instruction;
// Operands of two types.
template <class A, class B> struct Mixed;

// A tile in shared memory as a matrix descriptor, all offsets in units of 16 bytes.
// HIGH: upper 32 bits; LEADING: from panel to panel where the tile is MN-major; STEP: along K by 32
// bytes or 16 rows, PER_PANEL of them until the next PANEL; BLOCK: down 64 rows or columns.
template <bool TRANSPOSED, uint32 HIGH, int LEADING, int STEP, int PER_PANEL, int PANEL, int BLOCK> struct Tile {
  static constexpr bool kTransposed = TRANSPOSED;
  // In a cluster the bits above hold the rank of the CTA, which would be added to LEADING.
  static constexpr uint32 kAddress = 0x3ffff;
  uint32 low;
  __device__ __forceinline__ explicit Tile(const void* slot, int block = 0)
      : low((uint32(__cvta_generic_to_shared(slot)) & kAddress) / 16 + block * BLOCK + (uint32(LEADING) << 16)) {}
  __device__ __forceinline__ uint64 at(int block, int step) const {
    return uint64(HIGH) << 32 | (low + block * BLOCK + step / PER_PANEL * PANEL + step % PER_PANEL * STEP);
  }
};

// One group of instructions: STEPS along K for every block of 64 rows that the warpgroup has.
template <class T, int N, int STEPS, int GROUPS, class A, class B, class D, int R>
__device__ __forceinline__ void multiply(D (&acc)[R], const A a, const B b, int accumulate) {
  using One = Instruction<T, D, N>;
#pragma unroll
  for (int step = 0; step < STEPS; ++step)
#pragma unroll
    for (int block = 0; block < R / One::kRegisters; ++block)
      One::template issue<A::kTransposed, B::kTransposed>(
          acc + block * One::kRegisters, a.at(block * GROUPS, step), b.at(0, step), step == 0 ? accumulate : 1);
}
// The same with A in registers, 4 a step.
template <class T, int N, int STEPS, class B, class D, int R>
__device__ __forceinline__ void multiply_registers(D (&acc)[R], const uint32* a, const B b, int accumulate) {
  using One = Instruction<T, D, N>;
#pragma unroll
  for (int step = 0; step < STEPS; ++step)
#pragma unroll
    for (int block = 0; block < R / One::kRegisters; ++block)
      One::template issue<B::kTransposed>(
          acc + block * One::kRegisters, a + (block * STEPS + step) * 4, b.at(0, step), step == 0 ? accumulate : 1);
}

template <int R> __device__ __forceinline__ void pin(float (&x)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int R> __device__ __forceinline__ void pin(uint32 (&x)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+r"(x[i])::"memory");
}
template <int R> __device__ __forceinline__ void pin(int (&x)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+r"(x[i])::"memory");
}
template <class... F> __device__ __forceinline__ void fence(F&... pinned) {
  (pin(pinned), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int KEEP, class... F> __device__ __forceinline__ void await(F&... pinned) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(KEEP) : "memory");
  (pin(pinned), ...);
}

}  // namespace wgmma

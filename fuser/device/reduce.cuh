// Elements of a tile put together: along rows by the lanes of a warp, down columns by each thread.
// Source: PTX ISA, "shfl.sync".
#pragma once
#include "tile.cuh"

namespace reduce {

// A tile with an element for FOLDED neighbours along the rows of a wider one, where the first of them lies.
template <class L, int FOLDED> struct Folded;

template <int ROWS, int COLS, int VEC, int THREADS, int FOLDED>
struct Folded<tile::Layout<ROWS, COLS, VEC, THREADS>, FOLDED> {
  typedef tile::Layout<ROWS, COLS, VEC, THREADS> Wide;
  static constexpr int kVec = 1;
  static constexpr int kVectors = Wide::kVectors;
  static constexpr int kRegisters = kVectors;
  static constexpr int kLanes = FOLDED / VEC;
  __device__ static __forceinline__ int row(int v, int tid) { return Wide::row(v, tid); }
  __device__ static __forceinline__ int col(int v, int tid) { return Wide::col(v, tid) / FOLDED; }
  __device__ static __forceinline__ bool holds(int v, int tid) {
    return Wide::holds(v, tid) && Wide::first(v, tid) % FOLDED == 0;
  }
  template <class R, class F> __device__ static __forceinline__ R own(const R (&src)[Wide::kRegisters], int v, F op) {
    R x = src[v * VEC];
#pragma unroll
    for (int e = 1; e < VEC; ++e) x = op(x, src[v * VEC + e]);
    return x;
  }
};

template <int ROWS, int COLS, int THREADS, int VEC, int FOLDED>
struct Folded<tile::Strips<ROWS, COLS, THREADS, VEC>, FOLDED> {
  typedef tile::Strips<ROWS, COLS, THREADS, VEC> Wide;
  static constexpr int kVec = 1;
  static constexpr int kVectors = 2 * Wide::kStrips;
  static constexpr int kRegisters = kVectors;
  static constexpr int kLanes = 4;
  __device__ static __forceinline__ int first(int v) { return v / 2 * Wide::kPerStrip + v % 2; }
  __device__ static __forceinline__ int row(int v, int tid) { return Wide::row(first(v), tid); }
  __device__ static __forceinline__ int col(int, int) { return 0; }
  __device__ static __forceinline__ bool holds(int v, int tid) { return Wide::holds(first(v), tid) && uint32(tid) % 4 == 0; }
  template <class R, class F> __device__ static __forceinline__ R own(const R (&src)[Wide::kRegisters], int v, F op) {
    R x = src[first(v) * VEC];
#pragma unroll
    for (int i = 1; i < Wide::kPerStrip / 2 * VEC; ++i) x = op(x, src[(first(v) + i / VEC * 2) * VEC + i % VEC]);
    return x;
  }
};

// D: the folded layout.  Lanes next to each other add to both of them, so that all have the same bits.
template <class D, class R, class F>
__device__ __forceinline__ void along(R (&dst)[D::kRegisters], const R (&src)[D::Wide::kRegisters], F op) {
#pragma unroll
  for (int v = 0; v < D::kVectors; ++v) {
    R x = D::own(src, v, op);
#pragma unroll
    for (int lane = 1; lane < D::kLanes; lane *= 2) x = op(x, R(__shfl_xor_sync(0xffffffffu, x, lane)));
    dst[v] = x;
  }
}

// Let the assembler forget what it made of packed elements, so that it keeps these and not twice as many others.
template <int N> __device__ __forceinline__ void keep(uint32 (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i]));
}

// D: the layout of what is left of each row; a thread has PER_ROW elements of one, then LANES lanes, STEP
// apart, put theirs together, so that all have the same bits.  Four chains a row: additions wait for each other.
template <class D, int PER_ROW, int STEP, int LANES, class R, class S, class F, class... Packed>
__device__ __forceinline__ void rows(R (&dst)[D::kRegisters], S src, F op, Packed&... kept) {
  constexpr int kChains = PER_ROW % 4 == 0 ? 4 : PER_ROW % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int r = 0; r < D::kRegisters; ++r) {
    R x[kChains];
#pragma unroll
    for (int i = 0; i < PER_ROW; ++i) {
      const R y = src(r * PER_ROW + i);
      x[i % kChains] = i < kChains ? y : op(x[i % kChains], y);
    }
#pragma unroll
    for (int half = kChains / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i) x[i] = op(x[i], x[i + half]);
#pragma unroll
    for (int lane = 1; lane < LANES; lane *= 2) x[0] = op(x[0], R(__shfl_xor_sync(0xffffffffu, x[0], STEP * lane)));
    dst[r] = x[0];
  }
  (keep(kept), ...);
}

// The same of elements that registers hold two each: op_two takes two pairs at once.
template <class T, class D, int PER_ROW, int STEP, int LANES, int N, class G, class F, class... Packed>
__device__ __forceinline__ void rows_of_pairs(float (&dst)[D::kRegisters], uint32 (&src)[N], G op_two, F op, Packed&... kept) {
  constexpr int kPairs = PER_ROW / 2, kChains = kPairs % 4 == 0 ? 4 : kPairs % 2 == 0 ? 2 : 1;
  float both[2 * D::kRegisters];
#pragma unroll
  for (int r = 0; r < D::kRegisters; ++r) {
    uint32 x[kChains];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) x[i % kChains] = i < kChains ? src[r * kPairs + i] : op_two(x[i % kChains], src[r * kPairs + i]);
#pragma unroll
    for (int half = kChains / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i) x[i] = op_two(x[i], x[i + half]);
    both[2 * r] = types::Packs<T>::low(x[0]);
    both[2 * r + 1] = types::Packs<T>::high(x[0]);
  }
  rows<D, 2, STEP, LANES>(dst, [&](int i) { return both[i]; }, op, kept...);
}

// S: the layout of all rows; a thread holds the same columns of each.
template <class D, class S, class R, class F>
__device__ __forceinline__ void down(R (&dst)[D::kRegisters], const R (&src)[S::kRegisters], F op) {
#pragma unroll
  for (int i = 0; i < D::kRegisters; ++i) {
    R x = src[i];
#pragma unroll
    for (int n = i + D::kRegisters; n < S::kRegisters; n += D::kRegisters) x = op(x, src[n]);
    dst[i] = x;
  }
}

}  // namespace reduce

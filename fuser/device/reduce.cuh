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

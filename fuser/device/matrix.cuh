// Tiles by matrices of 8 rows of 16 bytes: lane l gives the address of row l % 8 of matrix l / 8, and
// holds the four bytes from 4 (l % 4) on of row l / 4 of each: two 16-bit elements, one of f32, four of i8.
// Source: PTX ISA, "ldmatrix", "stmatrix".
#pragma once
#include "tile.cuh"

namespace tile {

// Four matrices from vector V on, or two.  TRANS: rows and columns of the slot are exchanged.
template <class L, bool TRANS, class S> __device__ __forceinline__ uint32 row_of_matrix(const S slot, int v, int tid) {
  const int row = L::corner_row(v, tid), col = L::corner_col(v), more = uint32(tid) % 8;
  return uint32(__cvta_generic_to_shared(TRANS ? slot.at(col + more, row) : slot.at(row + more, col)));
}
template <class L, bool TRANS = false, class S>
__device__ __forceinline__ uint32 matrix_row(const S slot, int first, int tid) {
  return row_of_matrix<L, TRANS>(slot, first + uint32(tid) % 32 / 8, tid);
}
template <class L, bool TRANS = false, class S>
__device__ __forceinline__ uint32 matrix_row_of_two(const S slot, int first, int tid) {
  return row_of_matrix<L, TRANS>(slot, first + uint32(tid) % 16 / 8, tid);
}
// HOW: "" or ".trans", with which rows of a matrix in memory are columns of it in registers.
#define FUSER_MATRICES(HOW) \
  static __device__ __forceinline__ void ldmatrix(uint32 at, uint32& a) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x1" HOW ".shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at) : "memory"); \
  } \
  static __device__ __forceinline__ void ldmatrix(uint32 at, uint32& a, uint32& b) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" HOW ".shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at) : "memory"); \
  } \
  static __device__ __forceinline__ void ldmatrix(uint32 at, uint32& a, uint32& b, uint32& c, uint32& d) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" HOW ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at) : "memory"); \
  } \
  static __device__ __forceinline__ void stmatrix(uint32 at, uint32 a) { \
    asm volatile("stmatrix.sync.aligned.m8n8.x1" HOW ".shared.b16 [%0], {%1};" ::"r"(at), "r"(a) : "memory"); \
  } \
  static __device__ __forceinline__ void stmatrix(uint32 at, uint32 a, uint32 b) { \
    asm volatile("stmatrix.sync.aligned.m8n8.x2" HOW ".shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory"); \
  } \
  static __device__ __forceinline__ void stmatrix(uint32 at, uint32 a, uint32 b, uint32 c, uint32 d) { \
    asm volatile("stmatrix.sync.aligned.m8n8.x4" HOW ".shared.b16 [%0], {%1, %2, %3, %4};" \
                 ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory"); \
  }
template <bool TRANS> struct Matrices;
template <> struct Matrices<false> { FUSER_MATRICES("") };
template <> struct Matrices<true> { FUSER_MATRICES(".trans") };
#undef FUSER_MATRICES

// Calls `four(v)`, `two(v)` or `one(v)` for the vectors in turn: as many fours of a strip as fit.
template <class L, class F4, class F2, class F1>
__device__ __forceinline__ void each_matrix(int tid, F4 four, F2 two, F1 one) {
  constexpr int kFours = L::kWalk / 4, kLeft = L::kWalk % 4;
#pragma unroll
  for (int strip = 0; strip < L::kVectors / L::kWalk; ++strip) {
    const int first = strip * L::kWalk;
    if (!L::holds(first, tid)) continue;
#pragma unroll
    for (int i = 0; i < kFours; ++i) four(first + 4 * i);
    if constexpr (kLeft >= 2) two(first + 4 * kFours);
    if constexpr (kLeft % 2 == 1) one(first + L::kWalk - 1);
  }
}

template <class L, bool TRANS = false, class S>
__device__ __forceinline__ void load_matrix_packed(uint32 (&dst)[L::kVectors], const S src, int tid) {
  typedef Matrices<TRANS> M;
  each_matrix<L>(
      tid,
      [&](int v) { M::ldmatrix(matrix_row<L, TRANS>(src, v, tid), dst[v], dst[v + 1], dst[v + 2], dst[v + 3]); },
      [&](int v) { M::ldmatrix(matrix_row_of_two<L, TRANS>(src, v, tid), dst[v], dst[v + 1]); },
      [&](int v) { M::ldmatrix(matrix_row_of_two<L, TRANS>(src, v, tid), dst[v]); });
}
template <class T, class L, bool TRANS = false, class S>
__device__ __forceinline__ void load_matrix(float (&dst)[L::kRegisters], const S src, int tid) {
  uint32 packed[L::kRegisters / 2];
  load_matrix_packed<L, TRANS>(packed, src, tid);
#pragma unroll
  for (int i = 0; i < L::kRegisters / 2; ++i) {
    dst[2 * i] = types::Packs<T>::low(packed[i]);
    dst[2 * i + 1] = types::Packs<T>::high(packed[i]);
  }
}
template <class L, bool TRANS = false, class D>
__device__ __forceinline__ void store_matrix_packed(const D dst, const uint32 (&src)[L::kRegisters / 2], int tid) {
  typedef Matrices<TRANS> M;
  each_matrix<L>(
      tid,
      [&](int v) { M::stmatrix(matrix_row<L, TRANS>(dst, v, tid), src[v], src[v + 1], src[v + 2], src[v + 3]); },
      [&](int v) { M::stmatrix(matrix_row_of_two<L, TRANS>(dst, v, tid), src[v], src[v + 1]); },
      [&](int v) { M::stmatrix(matrix_row_of_two<L, TRANS>(dst, v, tid), src[v]); });
}
template <class T, class L, bool TRANS = false, class D, class R>
__device__ __forceinline__ void store_matrix(const D dst, const R (&src)[L::kRegisters], int tid) {
  uint32 packed[L::kRegisters / 2];
#pragma unroll
  for (int i = 0; i < L::kRegisters / 2; ++i)
    packed[i] = types::Packs<T>::pack(float(src[2 * i]), float(src[2 * i + 1]));
  store_matrix_packed<L, TRANS>(dst, packed, tid);
}

}  // namespace tile

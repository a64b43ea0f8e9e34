// Tiles: how a thread set holds one in registers, and how it is loaded and stored.
#pragma once
#include "types.cuh"

namespace tile {

template <class T> __device__ __forceinline__ T* shared(unsigned char* bytes) {
  return reinterpret_cast<T*>(bytes);
}

// Row-major element e of a ROWS x COLS tile lies in vector e / VEC; thread t holds vectors
// t, t + THREADS, t + 2 THREADS, ...
template <int ROWS, int COLS, int VEC, int THREADS> struct Layout {
  static constexpr int kVec = VEC;
  static constexpr int kElements = ROWS * COLS;
  static constexpr int kVectors = (kElements + VEC * THREADS - 1) / (VEC * THREADS);
  static constexpr int kRegisters = kVectors * VEC;
  static constexpr bool kExact = kVectors * VEC * THREADS == kElements;
  __device__ static __forceinline__ int first(int v, int tid) { return (v * THREADS + tid) * VEC; }
  __device__ static __forceinline__ int row(int v, int tid) { return ROWS == 1 ? 0 : first(v, tid) / COLS; }
  __device__ static __forceinline__ int col(int v, int tid) { return ROWS == 1 ? first(v, tid) : first(v, tid) % COLS; }
  __device__ static __forceinline__ bool holds(int v, int tid) { return kExact || first(v, tid) < kElements; }
};

// A tile of global memory; UNIT: neighbours along a row are neighbours in memory.
template <class T, bool UNIT> struct Box {
  T* base;
  int row, col, row_limit, col_limit;
  int64 row_stride, col_stride;
  static constexpr bool kGlobal = true;
  __device__ __forceinline__ bool inside(int r, int c) const { return r < row_limit && c < col_limit; }
  __device__ __forceinline__ T* at(int r, int c) const {
    return base + int64(r) * row_stride + (UNIT ? int64(c) : int64(c) * col_stride);
  }
};

// A tile of shared memory, row after row.
template <class T, int PITCH> struct Slot {
  T* base;
  static constexpr int row = 0, col = 0;
  static constexpr bool kGlobal = false;
  __device__ __forceinline__ bool inside(int, int) const { return true; }
  __device__ __forceinline__ T* at(int r, int c) const { return base + r * PITCH + c; }
};

// One memory access.
template <class T, int WIDTH> struct Word {
  typedef typename types::Raw<WIDTH * sizeof(T)>::type Raw;
  union {
    Raw raw;
    T element[WIDTH];
    uint32 pair[(WIDTH * sizeof(T) + 3) / 4];
  };
  __device__ __forceinline__ Word() : raw() {}
  template <class R> __device__ __forceinline__ R get(int e) const { return R(types::to_register(element[e])); }
};
// Two bf16 in 32 bits: one instruction each.
template <int WIDTH> struct Halves {
  static __device__ __forceinline__ float get(const Word<bf16, WIDTH>& word, int e) {
    const uint32 pair = word.pair[e / 2];
    return __uint_as_float(e % 2 ? pair & 0xffff0000u : pair << 16);
  }
};
template <class R, class T, int WIDTH> __device__ __forceinline__ R element(const Word<T, WIDTH>& word, int e) {
  if constexpr (types::Same<T, bf16>::value && WIDTH > 1) return Halves<WIDTH>::get(word, e);
  else return word.template get<R>(e);
}

// L: layout; WIDTH: elements per access; ROWS, COLS: whether the source varies along them.
template <class L, int WIDTH, bool ROWS, bool COLS, class R, class S>
__device__ __forceinline__ void load(R (&dst)[L::kRegisters], const S src, typename types::Plain<R>::type fill, int tid) {
  using T = typename types::Plain<decltype(*src.base)>::type;
  if constexpr (!COLS) {
#pragma unroll
    for (int v = 0; v < L::kVectors; ++v) {
      const int r = ROWS ? src.row + L::row(v, tid) : 0;
      const bool ok = src.inside(r, 0) && (!ROWS || L::holds(v, tid));
      const R x = ok ? R(types::to_register(*src.at(r, 0))) : fill;
#pragma unroll
      for (int e = 0; e < L::kVec; ++e) dst[v * L::kVec + e] = x;
    }
  } else {
    constexpr int kParts = L::kVec / WIDTH;
    // All accesses are issued before the first result is used.
    Word<T, WIDTH> words[L::kVectors * kParts];
    bool ok[L::kVectors * kParts];
#pragma unroll
    for (int v = 0; v < L::kVectors; ++v) {
      const int r = ROWS ? src.row + L::row(v, tid) : 0;
      const int c = src.col + L::col(v, tid);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const int n = v * kParts + p;
        ok[n] = L::holds(v, tid) && src.inside(r, c + p * WIDTH);
        typedef typename Word<T, WIDTH>::Raw Raw;
        const Raw* from = reinterpret_cast<const Raw*>(src.at(r, c + p * WIDTH));
        if constexpr (S::kGlobal) {
          // Inputs are not written while the kernel runs, so the read-only path is legal.  No hint:
          // L1::no_allocate and evict-first stores each cost 4 % on an H200 (see README, notes).
          if (ok[n]) words[n].raw = __ldg(from);
        } else {
          if (ok[n]) words[n].raw = *from;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < L::kVectors * kParts; ++n)
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        const R x = element<R>(words[n], e);  // zero where nothing was read
        dst[n * WIDTH + e] = fill == R(0) || ok[n] ? x : fill;
      }
  }
}

template <class L, int WIDTH, bool ROWS, bool COLS, class R, class D>
__device__ __forceinline__ void store(const D dst, const R (&src)[L::kRegisters], int tid) {
  using T = typename types::Plain<decltype(*dst.base)>::type;
  constexpr int kParts = L::kVec / WIDTH;
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    const int r = dst.row + L::row(v, tid);
    const int c = dst.col + L::col(v, tid);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      Word<T, WIDTH> word;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        const int n = (v * kParts + p) * WIDTH + e;
        if constexpr (types::Packs<T>::value && WIDTH > 1) {
          if (e % 2 == 0) word.pair[e / 2] = types::Packs<T>::pack(src[n], src[n + 1]);
        } else {
          types::to_memory(word.element[e], src[n]);
        }
      }
      typedef typename Word<T, WIDTH>::Raw Raw;
      if (L::holds(v, tid) && dst.inside(r, c + p * WIDTH))
        *reinterpret_cast<Raw*>(dst.at(r, c + p * WIDTH)) = word.raw;
    }
  }
}

template <class R, int N, class F> __device__ __forceinline__ void map(R (&dst)[N], F op) {
#pragma unroll
  for (int i = 0; i < N; ++i) dst[i] = op(i);
}

// AXIS 0 is the column, 1 the row, others do not vary within a tile.
template <class L, int AXIS> __device__ __forceinline__ void coordinate(int64 (&dst)[L::kRegisters], int origin, int tid) {
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v)
#pragma unroll
    for (int e = 0; e < L::kVec; ++e)
      dst[v * L::kVec + e] = int64(origin) + (AXIS == 0 ? L::col(v, tid) + e : AXIS == 1 ? L::row(v, tid) : 0);
}

}  // namespace tile

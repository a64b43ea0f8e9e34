// Tiles: how a thread set holds one in registers, and how it is loaded and stored.
#pragma once
#include "hint.cuh"
#include "math.cuh"
#include "slot.cuh"
#include "types.cuh"

namespace tile {

// Calls `f` with the numbers below N, as types.
template <int N> struct Number { static constexpr int value = N; };
template <int N, int FROM = 0, class F> __device__ __forceinline__ void each(F f) {
  if constexpr (FROM < N) {
    f(Number<FROM>{});
    each<N, FROM + 1>(f);
  }
}

// Row-major element e of a ROWS x COLS tile lies in vector e / VEC; thread t holds vectors
// t, t + THREADS, t + 2 THREADS, ...
template <int ROWS, int COLS, int VEC, int THREADS> struct Layout {
  static constexpr int kVec = VEC;
  static constexpr int kElements = ROWS * COLS;
  static constexpr int kVectors = (kElements + VEC * THREADS - 1) / (VEC * THREADS);
  static constexpr int kRegisters = kVectors * VEC;
  static constexpr bool kExact = kVectors * VEC * THREADS == kElements;
  // Where one round of vectors is whole rows, or a part of one, a division by thread will do.
  static constexpr int kRound = THREADS * VEC;
  static constexpr bool kRows = kRound % COLS == 0, kPart = COLS % kRound == 0;
  __device__ static __forceinline__ int first(int v, int tid) { return (v * THREADS + tid) * VEC; }
  __device__ static __forceinline__ int row(int v, int tid) {
    if constexpr (ROWS == 1) return 0;
    else if constexpr (kRows) return v * (kRound / COLS) + int(uint32(tid) * VEC / COLS);
    else if constexpr (kPart) return v / (COLS / kRound);
    else return int(uint32(first(v, tid)) / COLS);
  }
  __device__ static __forceinline__ int col(int v, int tid) {
    if constexpr (ROWS == 1) return first(v, tid);
    else if constexpr (kRows) return int(uint32(tid) * VEC % COLS);
    else if constexpr (kPart) return v % (COLS / kRound) * kRound + tid * VEC;
    else return int(uint32(first(v, tid)) % COLS);
  }
  __device__ static __forceinline__ bool holds(int v, int tid) { return kExact || first(v, tid) < kElements; }
  // Columns of a vector that are the same of all threads.
  __device__ static __forceinline__ constexpr int across(int v) {
    return ROWS == 1 ? v * kRound : kPart ? v % (COLS / kRound) * kRound : 0;
  }
};

// As tensor cores hold accumulators and A operands: strips of 16 rows are dealt to warps in turn.
// Vectors, of 4 bytes if of an operand, lie in matrices of 8 x 4: down two of them, then to the right.
// Source: PTX ISA, "wgmma.mma_async, register fragments", "mma.m16n8k8", "mma.m16n8k16", "mma.m16n8k32".
template <int ROWS, int COLS, int THREADS, int VEC = 2> struct Strips {
  static constexpr int kVec = VEC;
  static constexpr int kCols = COLS;
  static constexpr int kWarps = THREADS / 32;
  static constexpr int kPerStrip = COLS / (2 * VEC);
  static constexpr int kWalk = kPerStrip;
  static constexpr int kStrips = (ROWS / 16 + kWarps - 1) / kWarps;
  static constexpr int kVectors = kStrips * kPerStrip;
  static constexpr int kRegisters = kVectors * kVec;
  static constexpr bool kExact = ROWS / 16 % kWarps == 0;
  __device__ static __forceinline__ int strip(int v, int tid) { return v / kPerStrip * kWarps + uint32(tid) / 32; }
  __device__ static __forceinline__ int corner_row(int v, int tid) { return 16 * strip(v, tid) + 8 * (uint32(v) % 2); }
  __device__ static __forceinline__ int corner_col(int v) { return 4 * VEC * (uint32(v) % kPerStrip / 2); }
  __device__ static __forceinline__ int row(int v, int tid) { return corner_row(v, tid) + uint32(tid) % 32 / 4; }
  __device__ static __forceinline__ int col(int v, int tid) { return corner_col(v) + VEC * (uint32(tid) % 4); }
  __device__ static __forceinline__ bool holds(int v, int tid) { return kExact || strip(v, tid) < ROWS / 16; }
  __device__ static __forceinline__ constexpr int across(int) { return 0; }
};

// As mma holds B operands: every warp has the whole tile, its matrices to the right, then down.
template <int ROWS, int COLS, int VEC = 2> struct EachWarp {
  static constexpr int kVec = VEC;
  static constexpr int kPerStrip = COLS / (4 * VEC);
  static constexpr int kVectors = ROWS / 8 * kPerStrip;
  static constexpr int kWalk = kVectors;
  static constexpr int kRegisters = kVectors * kVec;
  __device__ static __forceinline__ int corner_row(int v, int) { return 8 * (uint32(v) / kPerStrip); }
  __device__ static __forceinline__ int corner_col(int v) { return 4 * VEC * (uint32(v) % kPerStrip); }
  __device__ static __forceinline__ int row(int v, int tid) { return corner_row(v, tid) + uint32(tid) % 32 / 4; }
  __device__ static __forceinline__ int col(int v, int tid) { return corner_col(v) + VEC * (uint32(tid) % 4); }
  __device__ static __forceinline__ bool holds(int, int) { return true; }
  __device__ static __forceinline__ constexpr int across(int) { return 0; }
};

// ACROSS neighbouring threads share a row, ALIKE neighbours each hold the same of it; groups of them take rows
// in turn, and each has a tile of one row whole.
template <int ROWS, int COLS, int VEC, int THREADS, int ACROSS, int ALIKE> struct Rows {
  static constexpr int kVec = VEC;
  static constexpr int kGroups = THREADS / ACROSS;
  static constexpr int kHolders = ACROSS / ALIKE;
  static constexpr int kPerRow = COLS / (VEC * kHolders);
  static constexpr int kVectors = (ROWS == 1 ? 1 : ROWS / kGroups) * kPerRow;
  static constexpr int kRegisters = kVectors * VEC;
  __device__ static __forceinline__ int row(int v, int tid) {
    return ROWS == 1 ? 0 : v / kPerRow * kGroups + (kGroups == 1 ? 0 : uint32(tid) / ACROSS);
  }
  __device__ static __forceinline__ int col(int v, int tid) {
    return (v % kPerRow * kHolders + (kHolders == 1 ? 0 : uint32(tid) % ACROSS / ALIKE)) * VEC;
  }
  __device__ static __forceinline__ constexpr int across(int v) { return v % kPerRow * kHolders * VEC; }
  __device__ static __forceinline__ bool holds(int, int) { return true; }
  __device__ static __forceinline__ bool first(int tid) {
    return uint32(tid) % ALIKE == 0 && (ROWS > 1 || uint32(tid) < ACROSS);
  }
};

// The same, where only the first thread that holds an element counts.
template <class L> struct First : L {
  __device__ static __forceinline__ bool holds(int, int tid) { return L::first(tid); }
};

// Where the vectors of a thread lie beside its first one, if that is the same for all threads: so
// many rows below and columns to the right.  In BITS they have none in common with the first's.
template <class L> struct Beside {
  static constexpr bool kAffine = false, kBits = false, kBelow = false, kExact = false;
  static constexpr int kTall = 0, kWide = 0;
};
template <int ROWS, int COLS, int VEC, int THREADS> struct Beside<Layout<ROWS, COLS, VEC, THREADS>> {
  typedef Layout<ROWS, COLS, VEC, THREADS> L;
  static constexpr int kTall = ROWS, kWide = COLS;
  static constexpr bool kBelow = ROWS > 1 && L::kRows;
  static constexpr bool kAffine = ROWS == 1 || L::kRows || L::kPart, kExact = kAffine && L::kExact;
  static constexpr bool kBits = kAffine && !(L::kRound & (L::kRound - 1)) && (ROWS == 1 || !(COLS & (COLS - 1)));
  __device__ static __forceinline__ constexpr int down(int v) {
    return ROWS == 1 ? 0 : L::kRows ? v * (L::kRound / COLS) : v / (COLS / L::kRound);
  }
  __device__ static __forceinline__ constexpr int across(int v) { return L::across(v); }
};

template <int ROWS, int COLS, int THREADS, int VEC> struct Beside<Strips<ROWS, COLS, THREADS, VEC>> {
  typedef Strips<ROWS, COLS, THREADS, VEC> L;
  static constexpr bool kAffine = false, kBelow = false, kExact = false;
  static constexpr bool kBits = (L::kStrips == 1 || !(L::kWarps & (L::kWarps - 1))) && !(COLS & (COLS - 1));
  static constexpr int kTall = ROWS, kWide = COLS;
  __device__ static __forceinline__ constexpr int down(int v) { return v / L::kPerStrip * L::kWarps * 16 + 8 * (v % 2); }
  __device__ static __forceinline__ constexpr int across(int v) { return 4 * VEC * (v % L::kPerStrip / 2); }
};

template <int ROWS, int COLS, int VEC, int THREADS, int ACROSS, int ALIKE>
struct Beside<Rows<ROWS, COLS, VEC, THREADS, ACROSS, ALIKE>> {
  typedef Rows<ROWS, COLS, VEC, THREADS, ACROSS, ALIKE> L;
  static constexpr bool kAffine = true, kBits = false, kBelow = false, kExact = false;
  static constexpr int kTall = ROWS, kWide = COLS;
  __device__ static __forceinline__ constexpr int down(int v) { return ROWS == 1 ? 0 : v / L::kPerRow * L::kGroups; }
  __device__ static __forceinline__ constexpr int across(int v) { return L::across(v); }
};

// The first vector of a thread that has the rows of another one, or its columns, as far as that is known: where a
// tensor varies along no others it is loaded once for all of them, into registers that they share.
template <class L> struct Same {
  __device__ static __forceinline__ constexpr int rows(int v) { return v; }
  __device__ static __forceinline__ constexpr int cols(int v) { return v; }
};
template <int ROWS, int COLS, int THREADS, int VEC> struct Same<Strips<ROWS, COLS, THREADS, VEC>> {
  typedef Strips<ROWS, COLS, THREADS, VEC> L;
  __device__ static __forceinline__ constexpr int rows(int v) { return v / L::kPerStrip * L::kPerStrip + v % 2; }
  __device__ static __forceinline__ constexpr int cols(int v) { return L::kExact ? v % L::kPerStrip / 2 * 2 : v; }
};

// The accesses of a thread to S: its first vector is found, the others lie beside it.
template <class L, bool ROWS, class S> struct Walk {
  typedef Beside<L> B;
  const S s;
  const int tid;
  const typename S::Place first;
  __device__ __forceinline__ Walk(const S s, int tid) : s(s), tid(tid), first(s.place(row(0), col(0))) {}
  __device__ __forceinline__ int row(int v) const { return ROWS ? s.row + L::row(v, tid) : 0; }
  __device__ __forceinline__ int col(int v) const { return s.col + L::col(v, tid); }
  __device__ __forceinline__ auto at(int v, int e) const {
    if constexpr (S::template kSteps<B>) return s.from(first, ROWS ? B::down(v) : 0, B::across(v) + e);
    else return s.at(row(v), col(v) + e);
  }
  // Whether one test does for a tile, all of which is inside: of many narrow accesses of WIDTH elements.  (Of wide
  // ones it gains nothing, and costs registers that the partial sums of a product do not leave.)
  template <int WIDTH> static constexpr bool kOnce = S::kLimited && B::kExact && WIDTH * sizeof(*S::base) < 16 && L::kRegisters >= 8 * WIDTH;
  __device__ __forceinline__ bool whole() const {
    return s.inside((ROWS ? s.row + B::kTall : 1) - 1, s.col + B::kWide - 1);
  }
};

// A tile of global memory; UNIT: neighbours along a row are neighbours in memory; RAGGED: the limit
// may cut an access, whose elements are then accessed one by one.
// KEEP: what is read leaves the L2 last, if neighbours are neighbours in memory.
template <class T, bool UNIT, bool RAGGED = false, bool KEEP = false> struct Box {
  T* base;
  int row, col, row_limit, col_limit;
  int64 row_stride, col_stride;
  // Where T is const nobody writes the tensor while the kernel runs: the read-only path is legal.
  static constexpr bool kReadOnly = types::IsConst<T>::value, kLimited = true;
  static constexpr bool kRagged = RAGGED, kKeep = KEEP && UNIT;
  __device__ __forceinline__ bool inside(int r, int c) const { return r < row_limit && c < col_limit; }
  __device__ __forceinline__ T* at(int r, int c) const {
    return base + int64(r) * row_stride + (UNIT ? int64(c) : int64(c) * col_stride);
  }
  template <class L> static constexpr bool kSteps = L::kAffine;
  typedef T* Place;
  __device__ __forceinline__ Place place(int r, int c) const { return at(r, c); }
  __device__ __forceinline__ T* from(Place place, int down, int across) const {
    return place + int64(down) * row_stride + (UNIT ? int64(across) : int64(across) * col_stride);
  }
};

// An input that repeats: position p lies p / each % period * stride elements from the base, over N of these together.
// Bits of ONES say where `each` is 1, those of ENDS where there is a period; the last two are reciprocals of both.
template <class T, int N, int ONES, int ENDS> struct Cycles {
  T* base;
  int col, col_limit;
  int each[N], period[N];
  int64 stride[N];
  uint64 by_each[N], by_period[N];
};

// The bits of a word, the one of that number, behind so many elements of SIZE bytes.  Of 2^27 the bits would be too many
// for an int.
template <int SIZE> __device__ __forceinline__ uint32 behind(int elements, int word) {
  return __funnelshift_lc(0u, ~0u, max(8 * SIZE * elements - 32 * word, 0));
}

// One memory access.
template <class T, int WIDTH> struct Word {
  typedef typename types::Raw<WIDTH * sizeof(T)>::type Raw;
  union {
    Raw raw;
    T element[WIDTH];
    uint32 pair[(WIDTH * sizeof(T) + 3) / 4];
  };
  __device__ __forceinline__ Word() : raw() {}
  // Clears all but the first elements, so many, WIDTH at most.
  __device__ __forceinline__ void keep(int elements) {
#pragma unroll
    for (int i = 0; i < int(sizeof(pair) / 4); ++i) pair[i] &= ~behind<sizeof(T)>(elements, i);
  }
  template <class R> __device__ __forceinline__ R get(int e) const { return R(types::to_register(element[e])); }
};
// Whether accesses of so many elements are by `keep`; of narrow ones whole tiles have one test instead.
template <class S, int WIDTH> constexpr bool kKept = S::kReadOnly && S::kKeep && WIDTH * sizeof(*S::base) >= 8;

// Whether they are by `fetch`: of rows that threads have whole, which are rarely whole tiles.
template <class L, class S, int WIDTH> constexpr bool kFetched = false;
template <int ROWS, int COLS, int VEC, int THREADS, int ACROSS, int ALIKE, class T, bool RAGGED, bool KEEP, int WIDTH>
constexpr bool kFetched<Rows<ROWS, COLS, VEC, THREADS, ACROSS, ALIKE>, Box<T, true, RAGGED, KEEP>, WIDTH> =
    types::IsConst<T>::value && WIDTH * sizeof(T) <= 4;

// Whether words of a box are stored by `put`: of such rows.
template <class L, class D> constexpr bool kPut = false;
template <int ROWS, int COLS, int VEC, int THREADS, int ACROSS, int ALIKE, class T>
constexpr bool kPut<Rows<ROWS, COLS, VEC, THREADS, ACROSS, ALIKE>, Box<T, true>> = true;

// Loads the word OFFSET bytes behind `from` where it is `ok`; what is read leaves the L2 last.  It is one predicated
// instruction: in branches the assembler orders loads one behind the other.
// Source: PTX ISA, "ld.global.nc".
template <int OFFSET, class Raw> __device__ __forceinline__ void keep(Raw& raw, const void* from, bool ok) {
  static_assert(sizeof(Raw) == 8 || sizeof(Raw) == 16, "a hint is given for wide words");
  const uint64 last = hint::evict_last();
  if constexpr (sizeof(Raw) == 16)
    asm("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %6, 0;\n\t"
        "@p ld.global.nc.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4 + %7], %5;\n\t}"
        : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w) : "l"(from), "l"(last), "r"(int(ok)), "n"(OFFSET));
  else
    asm("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %4, 0;\n\t"
        "@p ld.global.nc.L2::cache_hint.v2.b32 {%0, %1}, [%2 + %5], %3;\n\t}"
        : "+r"(raw.x), "+r"(raw.y) : "l"(from), "l"(last), "r"(int(ok)), "n"(OFFSET));
}

// The same without a hint.
template <int OFFSET, class Raw> __device__ __forceinline__ void fetch(Raw& raw, const void* from, bool ok) {
  if constexpr (sizeof(Raw) == 16) {
    asm("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %5, 0;\n\t@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4 + %6];\n\t}"
        : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w) : "l"(from), "r"(int(ok)), "n"(OFFSET));
  } else if constexpr (sizeof(Raw) == 8) {
    asm("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %3, 0;\n\t@p ld.global.nc.v2.b32 {%0, %1}, [%2 + %4];\n\t}"
        : "+r"(raw.x), "+r"(raw.y) : "l"(from), "r"(int(ok)), "n"(OFFSET));
  } else if constexpr (sizeof(Raw) == 4) {
    asm("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t@p ld.global.nc.b32 %0, [%1 + %3];\n\t}"
        : "+r"(raw) : "l"(from), "r"(int(ok)), "n"(OFFSET));
  } else if constexpr (sizeof(Raw) == 2) {
    asm("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t@p ld.global.nc.b16 %0, [%1 + %3];\n\t}"
        : "+h"(raw) : "l"(from), "r"(int(ok)), "n"(OFFSET));
  } else {
    unsigned short word = raw;
    asm("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t@p ld.global.nc.u8 %0, [%1 + %3];\n\t}"
        : "+h"(word) : "l"(from), "r"(int(ok)), "n"(OFFSET));
    raw = Raw(word);
  }
}

// Stores a word OFFSET bytes behind `to` where it is `ok`.  In branches addresses are computed anew for each.
template <int OFFSET, class Raw> __device__ __forceinline__ void put(void* to, const Raw& raw, bool ok) {
#define FUSER_PUT(WHAT, ...) \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %1, 0;\n\t@p st.global." WHAT ";\n\t}" ::"l"(to), "r"(int(ok)), "n"(OFFSET), __VA_ARGS__ : "memory")
  if constexpr (sizeof(Raw) == 16) FUSER_PUT("v4.b32 [%0 + %2], {%3, %4, %5, %6}", "r"(raw.x), "r"(raw.y), "r"(raw.z), "r"(raw.w));
  else if constexpr (sizeof(Raw) == 8) FUSER_PUT("v2.b32 [%0 + %2], {%3, %4}", "r"(raw.x), "r"(raw.y));
  else if constexpr (sizeof(Raw) == 4) FUSER_PUT("b32 [%0 + %2], %3", "r"(raw));
  else if constexpr (sizeof(Raw) == 2) FUSER_PUT("b16 [%0 + %2], %3", "h"(raw));
  else FUSER_PUT("b8 [%0 + %2], %3", "h"((unsigned short)(raw)));
#undef FUSER_PUT
}

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

// Rows that begin anywhere: a vector of L is accessed by the aligned words that it lies in, all of them together
// if it is 16 bytes or less, where single accesses would be of WIDTH elements.
template <class L, int WIDTH> struct Joins { static constexpr bool kLoads = false, kStores = false; };
template <int ROWS, int COLS, int VEC, int THREADS, int ACROSS, int WIDTH>
struct Joins<Rows<ROWS, COLS, VEC, THREADS, ACROSS, 1>, WIDTH> { static constexpr bool kLoads = true, kStores = true; };
template <int COLS, int VEC, int THREADS, int WIDTH> struct Joins<Layout<1, COLS, VEC, THREADS>, WIDTH> {
  static constexpr bool kLoads = WIDTH < VEC && Layout<1, COLS, VEC, THREADS>::kExact, kStores = false;
};
// So is the end of a ragged input.
template <class L, int WIDTH, class B> struct Shifted { static constexpr bool value = false; };
template <class L, int WIDTH, class T, bool RAGGED, bool KEEP> struct Shifted<L, WIDTH, Box<T, true, RAGGED, KEEP>> {
  static constexpr int kSize = sizeof(T), kBytes = L::kVec * kSize;
  static constexpr bool kAny = RAGGED ? types::IsConst<T>::value : WIDTH < L::kVec;
  static constexpr bool kJoins = types::IsConst<T>::value ? Joins<L, WIDTH>::kLoads : Joins<L, WIDTH>::kStores;
  static constexpr bool value = kJoins && kAny && (kSize == 2 || kSize == 4) && kBytes <= 16;
};

// Bytes FROM, FROM + 1, ... of twice as many words; FROM is less than the bytes of the result.
template <int WORDS> __device__ __forceinline__ void shift(uint32 (&dst)[WORDS], uint32 (&src)[2 * WORDS], int from) {
#pragma unroll
  for (int half = WORDS / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < 2 * WORDS - half; ++i) src[i] = from & 4 * half ? src[i + half] : src[i];
#pragma unroll
  for (int i = 0; i < WORDS; ++i) dst[i] = __funnelshift_r(src[i], src[i + 1], 8 * (from & 3));
}

// Whether rows end in most warps: a branch for what lies behind would then be taken in most, by some of their lanes.
template <class L> constexpr bool kEnds = false;
template <int ROWS, int COLS, int VEC, int THREADS, int ACROSS, int ALIKE>
constexpr bool kEnds<Rows<ROWS, COLS, VEC, THREADS, ACROSS, ALIKE>> = ACROSS < 128;

// Words of all vectors, `none` past the limit.  What else lies in aligned words that have an element is read and
// dropped: they are of the same page.
template <class L, int WIDTH, bool ROWS, int N, class T, bool RAGGED, bool KEEP>
__device__ __forceinline__ void load_shifted(uint32 (&dst)[N], const Box<T, true, RAGGED, KEEP> src, uint32 none, int tid) {
  typedef typename types::Plain<T>::type M;
  constexpr int kSize = sizeof(M), kBytes = L::kVec * kSize, kWords = kBytes / 4;
  Word<M, L::kVec> words[L::kVectors][2];
  int over[L::kVectors];
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    const int r = ROWS ? src.row + L::row(v, tid) : 0, c = src.col + L::col(v, tid);
    // c is whole vectors further
    over[v] = WIDTH == L::kVec ? 0 : int(reinterpret_cast<uint64>(src.at(r, src.col)) % kBytes);
    const bool there = r < src.row_limit;
    typedef typename Word<M, L::kVec>::Raw Raw;
    const Raw* from = reinterpret_cast<const Raw*>(src.at(r, c) - over[v] / kSize);
    // Columns are compared with the limit, not subtracted: where rows nearly fill a tile the compiler then knows most.
    const bool ok = there & (c < src.col_limit);
    const bool more = there & (over[v] > 0) & (c + (kBytes - over[v]) / kSize < src.col_limit);
#pragma unroll
    for (int i = 0; i < 2 * kWords; ++i) words[v][i / kWords].pair[i % kWords] = none;
    if constexpr (KEEP && kBytes > 4) {
      keep<0>(words[v][0].raw, from, ok);
      keep<kBytes>(words[v][1].raw, from, more);
    } else {
      fetch<0>(words[v][0].raw, from, ok);
      fetch<kBytes>(words[v][1].raw, from, more);
    }
  }
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    uint32 two[2 * kWords], one[kWords];
#pragma unroll
    for (int i = 0; i < 2 * kWords; ++i) two[i] = words[v][i / kWords].pair[i % kWords];
    shift<kWords>(one, two, over[v]);
    const int c = src.col + L::col(v, tid);
    const bool whole = c + L::kVec - 1 < src.col_limit;
    if (kEnds<L> || !whole) {
      const int left = whole ? L::kVec : src.col_limit - c;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const uint32 rest = behind<kSize>(left, i);
        one[i] = (one[i] & ~rest) | (none & rest);
      }
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) dst[v * kWords + i] = one[i];
  }
}

// Stores what of a word lies behind its first bytes, so many, at `to`, and these bytes behind the RING words from there.
// `begin` begins with what comes behind these bytes, `end` ends with the last of them.
template <int RING, class T, int WORDS>
__device__ __forceinline__ void store_ends(T* to, const uint32 (&word)[WORDS], int bytes, uint32 begin, uint32 end) {
  constexpr int kBytes = 4 * WORDS;
  char *const own = reinterpret_cast<char*>(to), *const next = own + RING * kBytes;
  const int rest = kBytes - bytes;
  if constexpr (WORDS == 4) {
    put<0>(next, make_uint2(word[0], word[1]), bytes & 8);
    put<8>(own, make_uint2(word[2], word[3]), rest & 8);
  }
  if constexpr (WORDS >= 2) {
    put<0>(next + (bytes & 8), bytes & 8 ? word[WORDS / 2] : word[0], bytes & 4);
    put<-4>(own + kBytes - (rest & 8), rest & 8 ? word[WORDS / 2 - 1] : word[WORDS - 1], rest & 4);
  }
  if constexpr (sizeof(T) == 2) {
    put<-2>(next + bytes, (unsigned short)(end >> 16), bytes & 2);
    put<0>(own + bytes, (unsigned short)(begin), bytes & 2);
  }
}

// A lane stores the aligned words that end in its vector: their beginning is the end of what the lane before has.
// Neighbours that share a row are taken for a ring: the first of them finds before its own vector the end of the last
// one's, and stores both in pieces of 8, 4 and 2 bytes.  Where a row ends among them, elements are stored one by one.
template <class L, int N, class T>
__device__ __forceinline__ void store_shifted(const Box<T, true> dst, const uint32 (&src)[N], int tid) {
  constexpr int kSize = sizeof(T), kBytes = L::kVec * kSize, kWords = kBytes / 4;
  constexpr int kRing = L::kHolders < 32 ? L::kHolders : 32;
  const int lane = int(uint32(tid) % 32), mine_at = int(uint32(tid) % kRing);
  const int before = lane - mine_at + int(uint32(mine_at + kRing - 1) % kRing);
  const bool first = mine_at == 0, last = mine_at == kRing - 1;
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    const int r = dst.row + L::row(v, tid), c = dst.col + L::col(v, tid);
    const int over = int(reinterpret_cast<uint64>(dst.at(r, dst.col)) % kBytes), more = over / kSize;
    uint32 two[2 * kWords];
    Word<T, L::kVec> mine, word;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      mine.pair[i] = two[kWords + i] = src[v * kWords + i];
      two[i] = __shfl_sync(0xffffffffu, mine.pair[i], before);
    }
    uint32 one[kWords];
    const uint32 end = two[kWords - 1];
    shift<kWords>(one, two, kBytes - over);
#pragma unroll
    for (int i = 0; i < kWords; ++i) word.pair[i] = over ? one[i] : mine.pair[i];
    typedef typename Word<T, L::kVec>::Raw Raw;
    T* const to = dst.at(r, c) - more;
    if (r >= dst.row_limit) continue;
    if (dst.col + L::col(v, tid - mine_at) + kRing * L::kVec - 1 < dst.col_limit) {
      if (over == 0 || !first) *reinterpret_cast<Raw*>(to) = word.raw;
      else store_ends<kRing>(to, word.pair, over, mine.pair[0], end);
    } else {
      if ((over == 0 || !first) && c - more + L::kVec <= dst.col_limit) {
        *reinterpret_cast<Raw*>(to) = word.raw;
      } else {
#pragma unroll
        for (int e = 0; e < L::kVec; ++e)
          if (e >= (first ? more : 0) && c - more + e < dst.col_limit) to[e] = word.element[e];
      }
      if (last && over > 0) {
#pragma unroll
        for (int e = 0; e < L::kVec; ++e)
          if (e >= L::kVec - more && c + e < dst.col_limit) to[more + e] = mine.element[e];
      }
    }
  }
}

// Strips of 4-byte elements in panels of 128 bytes.  Half a warp is served at a time, and asks for 8 bytes each of four
// rows: rows 2 r and 2 r + 1 have the same columns in the same two chunks.  So lanes of odd rows begin 16 columns away,
// which are four other chunks, and exchange what they have read: no two lanes meet in a bank.
template <class L, int WIDTH, class S> struct Turned { static constexpr bool value = false; };
template <int ROWS, int COLS, int THREADS, class T, int TALL>
struct Turned<Strips<ROWS, COLS, THREADS, 2>, 2, Swizzled<T, TALL, 128>> {
  static constexpr bool value = sizeof(T) == 4 && COLS % 32 == 0;
};
template <class L, class R, class S>
__device__ __forceinline__ void load_turned(R (&dst)[L::kRegisters], const S src, R fill, int tid) {
  constexpr int kAway = 16, kApart = kAway / 8 * 2;  // a vector of each of two rows for 8 columns
  typedef Word<typename types::Plain<decltype(*src.base)>::type, 2> Pair;
  Pair words[L::kVectors];
  const bool odd = uint32(tid) / 4 % 2;
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v)
    if (L::holds(v, tid)) words[v].raw = *reinterpret_cast<const typename Pair::Raw*>(src.at(L::row(v, tid), L::col(v, tid) ^ (odd ? kAway : 0)));
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    Pair word;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      word.pair[e] = odd ? words[v ^ kApart].pair[e] : words[v].pair[e];
      dst[2 * v + e] = L::holds(v, tid) ? element<R>(word, e) : fill;
    }
  }
}

// L: layout; WIDTH: elements per access; ROWS, COLS: whether the source varies along them.
template <class L, int WIDTH, bool ROWS, bool COLS, class R, class S>
__device__ __forceinline__ void load(R (&dst)[L::kRegisters], const S src, typename types::Plain<R>::type fill, int tid) {
  using T = typename types::Plain<decltype(*src.base)>::type;
  if constexpr (!COLS) {
#pragma unroll
    for (int v = 0; v < L::kVectors; ++v) {
      const int r = ROWS ? src.row + L::row(v, tid) : 0, same = ROWS ? Same<L>::rows(v) : v;
      const bool ok = src.inside(r, 0) && (!ROWS || L::holds(v, tid));
      const R x = same < v ? dst[same * L::kVec] : ok ? R(types::to_register(*src.at(r, 0))) : fill;
#pragma unroll
      for (int e = 0; e < L::kVec; ++e) dst[v * L::kVec + e] = x;
    }
  } else if constexpr (Turned<L, WIDTH, S>::value) {
    load_turned<L, R>(dst, src, fill, tid);
  } else if constexpr (S::kReadOnly && Shifted<L, WIDTH, S>::value) {
    constexpr int kMany = 4 / int(sizeof(T));
    uint32 words[L::kRegisters / kMany];
    Word<T, kMany> none;
#pragma unroll
    for (int e = 0; e < kMany; ++e) types::to_memory(none.element[e], decltype(types::to_register(none.element[e]))(fill));
    load_shifted<L, WIDTH, ROWS>(words, src, none.raw, tid);
#pragma unroll
    for (int i = 0; i < L::kRegisters; ++i) {
      Word<T, kMany> word;
      word.raw = words[i / kMany];
      dst[i] = element<R>(word, i % kMany);
    }
  } else {
    constexpr int kParts = L::kVec / WIDTH, kLast = S::kRagged ? WIDTH - 1 : 0;
    // The last access is whole where nobody writes what lies behind the limit in the same aligned word: loaded one by
    // one in a branch, the elements of one tensor would be waited for before those of the next are asked for.
    constexpr bool kWords = kLast > 0 && S::kReadOnly && WIDTH * sizeof(T) <= 16;
    // All accesses are issued before the first result is used.
    Word<T, WIDTH> words[L::kVectors * kParts];
    bool ok[L::kVectors * kParts];
    const Walk<L, ROWS, S> walk(src, tid);
    const bool whole = decltype(walk)::template kOnce<WIDTH> && walk.whole();
    const auto inside = [&](int v, int p) {
      return L::holds(v, tid) && src.inside(walk.row(v), walk.col(v) + p * WIDTH + (kWords ? 0 : kLast));
    };
    const auto from = [](int n) { return ROWS ? n : Same<L>::cols(n / kParts) * kParts + n % kParts; };
    if constexpr (kKept<S, WIDTH>) {
      each<L::kVectors * kParts>([&](auto number) {
        constexpr int n = decltype(number)::value, v = n / kParts, p = n % kParts, kBeside = L::across(v);
        ok[n] = whole || inside(v, p);
        keep<(kBeside + p * WIDTH) * int(sizeof(T))>(words[n].raw, src.at(walk.row(v), walk.col(v) - kBeside), ok[n]);
      });
    } else if constexpr (kFetched<L, S, WIDTH>) {
      each<L::kVectors * kParts>([&](auto number) {
        constexpr int n = decltype(number)::value, v = n / kParts, p = n % kParts, kBeside = L::across(v);
        ok[n] = inside(v, p);
        fetch<(kBeside + p * WIDTH) * int(sizeof(T))>(words[n].raw, src.at(walk.row(v), walk.col(v) - kBeside), ok[n]);
      });
    } else if (whole) {
#pragma unroll
      for (int n = 0; n < L::kVectors * kParts; ++n) {
        typedef typename Word<T, WIDTH>::Raw Raw;
        if (from(n) < n) continue;
        const Raw* word = reinterpret_cast<const Raw*>(walk.at(n / kParts, n % kParts * WIDTH));
        ok[n] = true;
        if constexpr (S::kReadOnly) words[n].raw = __ldg(word);
        else words[n].raw = *word;
      }
    } else {
#pragma unroll
      for (int v = 0; v < L::kVectors; ++v) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          const int n = v * kParts + p;
          if (from(n) < n) continue;
          ok[n] = inside(v, p);
          typedef typename Word<T, WIDTH>::Raw Raw;
          const Raw* word = reinterpret_cast<const Raw*>(walk.at(v, p * WIDTH));
          if constexpr (S::kReadOnly) {
            if (ok[n]) words[n].raw = __ldg(word);
          } else {
            if (ok[n]) words[n].raw = *word;
          }
        }
      }
    }
    // How many are before the limit of an access that it cuts.
    unsigned char some[L::kVectors * kParts] = {};
    if constexpr (kLast > 0) {
#pragma unroll
      for (int n = 0; n < L::kVectors * kParts; ++n) {
        const int v = n / kParts, r = ROWS ? src.row + L::row(v, tid) : 0;
        const int c = src.col + L::col(v, tid) + n % kParts * WIDTH;
        if (from(n) < n) continue;
        if constexpr (kWords) {
          const int left = ok[n] ? min(src.col_limit - c, WIDTH) : 0;
          some[n] = left;
          ok[n] = left == WIDTH;
          words[n].keep(left);
          continue;
        }
        if (ok[n] || !L::holds(v, tid) || !src.inside(r, c)) continue;
        some[n] = src.col_limit - c;
        Word<T, WIDTH> part;
#pragma unroll
        for (int e = 0; e < WIDTH - 1; ++e)
          if (e < some[n]) part.element[e] = *src.at(r, c + e);
        words[n].raw = part.raw;
      }
    }
#pragma unroll
    for (int n = 0; n < L::kVectors * kParts; ++n)
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        const int one = from(n);
        const R x = element<R>(words[one], e);  // zero where nothing was read
        dst[n * WIDTH + e] = fill == R(0) || ok[one] || e < some[one] ? x : fill;
      }
  }
}

// No access waits for where another one is, but where several neighbours are one element.
template <class L, int WIDTH, bool ROWS, bool COLS, class R, class T, int N, int ONES, int ENDS>
__device__ __forceinline__ void load_repeated(R (&dst)[L::kRegisters], const Cycles<T, N, ONES, ENDS> src, typename types::Plain<R>::type fill, int tid) {
  using M = typename types::Plain<T>::type;
  constexpr int kParts = L::kVec / WIDTH;
  Word<M, WIDTH> words[L::kVectors * kParts];
  bool ok[L::kVectors * kParts];
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    const int first = src.col + L::col(v, tid);
    int at[N], left[N];  // where it is, and for how many elements it stays there
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (ONES >> i & 1) continue;
      at[i] = math::quotient_by(first, src.by_each[i]);
      left[i] = (at[i] + 1) * src.each[i] - first;
      if (ENDS >> i & 1) at[i] = math::modulo_by(at[i], src.period[i], src.by_period[i]);
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const int n = v * kParts + p, c = first + p * WIDTH;
      int64 moved = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (ONES >> i & 1) {
          moved += int64(ENDS >> i & 1 ? math::modulo_by(c, src.period[i], src.by_period[i]) : c) * src.stride[i];
          continue;
        }
        moved += int64(at[i]) * src.stride[i];
        if (--left[i] == 0) {
          at[i] += 1;
          left[i] = src.each[i];
          if ((ENDS >> i & 1) && at[i] == src.period[i]) at[i] = 0;
        }
      }
      typedef typename Word<M, WIDTH>::Raw Raw;
      const Raw* const from = reinterpret_cast<const Raw*>(src.base + moved);
      ok[n] = L::holds(v, tid) && c < src.col_limit;
      if constexpr (WIDTH * sizeof(T) <= 4) fetch<0>(words[n].raw, from, ok[n]);
      else if (ok[n]) words[n].raw = __ldg(from);
    }
  }
#pragma unroll
  for (int n = 0; n < L::kVectors * kParts; ++n)
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      const R x = element<R>(words[n], e);
      dst[n * WIDTH + e] = fill == R(0) || ok[n] ? x : fill;
    }
}

template <class L, int WIDTH, bool ROWS, bool COLS, class R, class D>
__device__ __forceinline__ void store(const D dst, const R (&src)[L::kRegisters], int tid) {
  using T = typename types::Plain<decltype(*dst.base)>::type;
  if constexpr (Shifted<L, WIDTH, D>::value) {
    constexpr int kMany = 4 / int(sizeof(T));
    uint32 words[L::kRegisters / kMany];
#pragma unroll
    for (int i = 0; i < L::kRegisters / kMany; ++i) {
      Word<T, kMany> word;
      if constexpr (types::Packs<T>::value) word.raw = types::Packs<T>::pack(src[2 * i], src[2 * i + 1]);
      else
#pragma unroll
        for (int e = 0; e < kMany; ++e) types::to_memory(word.element[e], src[i * kMany + e]);
      words[i] = word.raw;
    }
    store_shifted<L>(dst, words, tid);
    return;
  }
  constexpr int kParts = L::kVec / WIDTH, kLast = D::kRagged ? WIDTH - 1 : 0;
  typedef typename Word<T, WIDTH>::Raw Raw;
  const Walk<L, true, D> walk(dst, tid);
  const auto word_of = [&](int n) {
    Word<T, WIDTH> word;
#pragma unroll
    for (int e = 0; e < WIDTH; ++e, ++n) {
      if constexpr (types::Packs<T>::value && WIDTH > 1) {
        if (e % 2 == 0) word.pair[e / 2] = types::Packs<T>::pack(src[n], src[n + 1]);
      } else if constexpr (types::Packs<T>::value && L::kVec % 2 == 0) {
        // Both halves of a pair at once, though they are stored one by one: half the work, and the
        // assembler serialises the wgmmas before some stores that convert one by one (C7514).
        const uint32 pair = types::Packs<T>::pack(src[n - n % 2], src[n - n % 2 + 1]);
        word.element[e].bits = (unsigned short)(n % 2 ? pair >> 16 : pair);
      } else {
        types::to_memory(word.element[e], src[n]);
      }
    }
    return word;
  };
  if (decltype(walk)::template kOnce<WIDTH> && walk.whole()) {
#pragma unroll
    for (int n = 0; n < L::kVectors * kParts; ++n)
      *reinterpret_cast<Raw*>(walk.at(n / kParts, n % kParts * WIDTH)) = word_of(n * WIDTH).raw;
    return;
  }
  if constexpr (kPut<L, D>) {
    each<L::kVectors * kParts>([&](auto number) {
      constexpr int n = decltype(number)::value, v = n / kParts, p = n % kParts, kBeside = L::across(v);
      const bool ok = dst.inside(walk.row(v), walk.col(v) + p * WIDTH);
      put<(kBeside + p * WIDTH) * int(sizeof(T))>(dst.at(walk.row(v), walk.col(v) - kBeside), word_of(n * WIDTH).raw, ok);
    });
    return;
  }
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    const int r = walk.row(v), c = walk.col(v);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const Word<T, WIDTH> word = word_of((v * kParts + p) * WIDTH);
      if (L::holds(v, tid) && dst.inside(r, c + p * WIDTH + kLast)) {
        *reinterpret_cast<Raw*>(walk.at(v, p * WIDTH)) = word.raw;
      } else if constexpr (kLast > 0) {
#pragma unroll
        for (int e = 0; e < WIDTH - 1; ++e)
          if (L::holds(v, tid) && dst.inside(r, c + p * WIDTH + e)) *dst.at(r, c + p * WIDTH + e) = word.element[e];
      }
    }
  }
}

// The same into registers that hold two 16-bit elements of type T each.
template <class T, class L, int WIDTH, bool ROWS, bool COLS, class S>
__device__ __forceinline__ void load_packed(uint32 (&dst)[L::kRegisters / 2], const S src, float fill, int tid) {
  using M = typename types::Plain<decltype(*src.base)>::type;
  constexpr bool kShifted = S::kReadOnly && Shifted<L, WIDTH, S>::value;
  if constexpr (types::Same<T, M>::value && COLS && WIDTH >= 2 && !S::kRagged && !kShifted) {
    constexpr int kParts = L::kVec / WIDTH;
    typedef typename Word<T, WIDTH>::Raw Raw;
    const uint32 none = types::Packs<T>::pack(fill, fill);
    const auto inside = [&](int v, int p) {
      return L::holds(v, tid) && src.inside(ROWS ? src.row + L::row(v, tid) : 0, src.col + L::col(v, tid) + p * WIDTH);
    };
    const auto at = [&](int v, int c) { return src.at(ROWS ? src.row + L::row(v, tid) : 0, src.col + L::col(v, tid) + c); };
    const auto put = [&](int n, const Word<T, WIDTH>& word, bool ok) {
#pragma unroll
      for (int e = 0; e < WIDTH / 2; ++e)  // zero where nothing was read
        dst[n * (WIDTH / 2) + e] = fill == 0.0f || ok ? word.pair[e] : none;
    };
    if constexpr (kKept<S, WIDTH>) {
      each<L::kVectors * kParts>([&](auto number) {
        constexpr int n = decltype(number)::value, v = n / kParts, p = n % kParts, kBeside = L::across(v);
        const bool ok = inside(v, p);
        Word<T, WIDTH> word;
        keep<(kBeside + p * WIDTH) * int(sizeof(T))>(word.raw, at(v, -kBeside), ok);
        put(n, word, ok);
      });
    } else {
#pragma unroll
      for (int v = 0; v < L::kVectors; ++v) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          const int same = ROWS ? v : Same<L>::cols(v), n = (v * kParts + p) * (WIDTH / 2);
          if (same < v) {
#pragma unroll
            for (int e = 0; e < WIDTH / 2; ++e) dst[n + e] = dst[n + e - (v - same) * kParts * (WIDTH / 2)];
            continue;
          }
          const bool ok = inside(v, p);
          Word<T, WIDTH> word;
          if (ok) word.raw = *reinterpret_cast<const Raw*>(at(v, p * WIDTH));
          put(v * kParts + p, word, ok);
        }
      }
    }
  } else if constexpr (types::Same<T, M>::value && COLS && kShifted) {
    load_shifted<L, WIDTH, ROWS>(dst, src, types::Packs<T>::pack(fill, fill), tid);
  } else if constexpr (types::Same<T, M>::value && !COLS) {
#pragma unroll
    for (int v = 0; v < L::kVectors; ++v) {
      const int r = ROWS ? src.row + L::row(v, tid) : 0, same = ROWS ? Same<L>::rows(v) : v;
      const bool ok = src.inside(r, 0) && (!ROWS || L::holds(v, tid));
      const uint32 both = same < v ? dst[same * L::kVec / 2]
                        : ok       ? 0x10001u * src.at(r, 0)->bits
                                   : types::Packs<T>::pack(fill, fill);
#pragma unroll
      for (int e = 0; e < L::kVec / 2; ++e) dst[v * L::kVec / 2 + e] = both;
    }
  } else {
    float wide[L::kRegisters];
    load<L, WIDTH, ROWS, COLS>(wide, src, fill, tid);
#pragma unroll
    for (int i = 0; i < L::kRegisters / 2; ++i) dst[i] = types::Packs<T>::pack(wide[2 * i], wide[2 * i + 1]);
  }
}

// Rows that begin anywhere, by vectors of 16 bytes of memory: who holds what depends on where they begin.
// Of the first and the last vector of a row only the elements of the row are read.
template <class L, class M, class S> __device__ __forceinline__ void slide(Word<M, L::kVec> (&words)[L::kVectors], const S src, int tid) {
  typedef typename Word<M, L::kVec>::Raw Raw;
  bool part[L::kVectors];
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    const int r = src.row + L::row(v, tid);
    const M* const begin = src.at(r, src.col);
    const int from = L::col(v, tid) - int(uint64(begin) % sizeof(Raw)) / int(sizeof(M)), left = src.col_limit - src.col;
    const bool row = r < src.row_limit, whole = row && from >= 0 && from + L::kVec <= left;
    part[v] = row && !whole && from + L::kVec > 0 && from < left;
    if (whole) words[v].raw = __ldg(reinterpret_cast<const Raw*>(begin + from));
  }
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    if (!part[v]) continue;
    const M* const begin = src.at(src.row + L::row(v, tid), src.col);
    const int from = L::col(v, tid) - int(uint64(begin) % sizeof(Raw)) / int(sizeof(M)), left = src.col_limit - src.col;
    Word<M, L::kVec> some;
#pragma unroll
    for (int e = 0; e < L::kVec; ++e)
      if (from + e >= 0 && from + e < left) some.element[e] = begin[from + e];
    words[v].raw = some.raw;
  }
}

template <class T, class L, class S>
__device__ __forceinline__ void load_sliding(uint32 (&dst)[L::kRegisters / 2], const S src, int tid) {
  Word<typename types::Plain<decltype(*src.base)>::type, L::kVec> words[L::kVectors];
  slide<L>(words, src, tid);
#pragma unroll
  for (int i = 0; i < L::kRegisters / 2; ++i) dst[i] = words[2 * i / L::kVec].pair[2 * i % L::kVec / 2];
}

template <class T, class L, class R, class S>
__device__ __forceinline__ void load_sliding(R (&dst)[L::kRegisters], const S src, int tid) {
  Word<typename types::Plain<decltype(*src.base)>::type, L::kVec> words[L::kVectors];
  slide<L>(words, src, tid);
#pragma unroll
  for (int i = 0; i < L::kRegisters; ++i) dst[i] = element<R>(words[i / L::kVec], i % L::kVec);
}

// From registers that hold two elements of type T each, into memory of type T.
template <class T, class L, int WIDTH, bool ROWS, bool COLS, class D>
__device__ __forceinline__ void store_packed(const D dst, const uint32 (&src)[L::kRegisters / 2], int tid) {
  if constexpr (WIDTH >= 2 && !D::kRagged) {
    constexpr int kParts = L::kVec / WIDTH;
#pragma unroll
    for (int v = 0; v < L::kVectors; ++v) {
      const int r = dst.row + L::row(v, tid);
      const int c = dst.col + L::col(v, tid);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        Word<T, WIDTH> word;
#pragma unroll
        for (int e = 0; e < WIDTH / 2; ++e) word.pair[e] = src[(v * kParts + p) * (WIDTH / 2) + e];
        typedef typename Word<T, WIDTH>::Raw Raw;
        if (L::holds(v, tid) && dst.inside(r, c + p * WIDTH))
          *reinterpret_cast<Raw*>(dst.at(r, c + p * WIDTH)) = word.raw;
      }
    }
  } else {
    float wide[L::kRegisters];
#pragma unroll
    for (int i = 0; i < L::kRegisters; ++i)
      wide[i] = i % 2 ? types::Packs<T>::high(src[i / 2]) : types::Packs<T>::low(src[i / 2]);
    store<L, WIDTH, ROWS, COLS>(dst, wide, tid);
  }
}

template <class R, int N, class F> __device__ __forceinline__ void map(R (&dst)[N], F op) {
#pragma unroll
  for (int i = 0; i < N; ++i) dst[i] = op(i);
}

template <class T, int N, class F> __device__ __forceinline__ void map_packed(uint32 (&dst)[N], F op) {
#pragma unroll
  for (int i = 0; i < N; ++i) dst[i] = types::Packs<T>::pack(op(2 * i), op(2 * i + 1));
}

// Bytes of a slot, two vectors of two in a register: the compiler makes single ones of all others.
template <class L, class S> __device__ __forceinline__ void load_bytes(uint32 (&dst)[L::kRegisters / 4], const S src, int tid) {
  static_assert(L::kVec == 2 && L::kExact, "whole tiles, by pairs");
  const Walk<L, true, S> walk(src, tid);
  const auto pair = [&](int v) { return uint32(*reinterpret_cast<const unsigned short*>(walk.at(v, 0))); };
#pragma unroll
  for (int i = 0; i < L::kRegisters / 4; ++i) dst[i] = __byte_perm(pair(2 * i), pair(2 * i + 1), 0x5410);
}

// Four of them, of type S, as 16-bit floats, which hold small integers and floats of 8 bits.
template <class T, class S, int N> __device__ __forceinline__ void widen(uint32 (&dst)[2 * N], const uint32 (&src)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    dst[2 * i] = math::pair_of<T, S, false>(src[i]);
    dst[2 * i + 1] = math::pair_of<T, S, true>(src[i]);
  }
}

// Products of pairs of 16-bit floats.  Source: PTX ISA, "mul" (.f16x2, .bf16x2).
template <class T, int N> __device__ __forceinline__ void multiply(uint32 (&dst)[N], const uint32 (&a)[N], const uint32 (&b)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if constexpr (types::Same<T, f16>::value) asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(dst[i]) : "r"(a[i]), "r"(b[i]));
    else asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(dst[i]) : "r"(a[i]), "r"(b[i]));
  }
}

// The numbers of 4 bits in bytes, two 16-bit floats in a register.
template <class T, int N> __device__ __forceinline__ void unpack(uint32 (&dst)[N], const int8 (&src)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) dst[i] = math::nibbles_of<T>((unsigned char)(src[i]));
}
template <class R, int N> __device__ __forceinline__ void unpack(R (&dst)[2 * N], const int8 (&src)[N]) {
#pragma unroll
  for (int i = 0; i < 2 * N; ++i) dst[i] = R(math::nibble(int(src[i / 2]), i));
}

// Columns COLUMN, COLUMN + 1, ... of a tile in strips.
template <class D, class S, int COLUMN, class R>
__device__ __forceinline__ void slice(R (&dst)[D::kRegisters], const R (&src)[S::kRegisters]) {
#pragma unroll
  for (int i = 0; i < D::kRegisters; ++i)
    dst[i] = src[i / (D::kCols / 2) * (S::kCols / 2) + COLUMN / 2 + i % (D::kCols / 2)];
}

// The same of registers that hold two elements each.
template <class D, class S, int COLUMN>
__device__ __forceinline__ void slice_packed(uint32 (&dst)[D::kRegisters / 2], const uint32 (&src)[S::kRegisters / 2]) {
#pragma unroll
  for (int i = 0; i < D::kRegisters / 2; ++i)
    dst[i] = src[i / (D::kCols / 4) * (S::kCols / 4) + COLUMN / 4 + i % (D::kCols / 4)];
}

// The same registers in the same order, which another layout gives other positions.
template <class R, int N> __device__ __forceinline__ void relabel(R (&dst)[N], const R (&src)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) dst[i] = src[i];
}

// Elements of a tensor that nobody writes, 0 where there is none: WIDTH of them from register FIRST on, which lie
// STEP elements apart (0: unknown); neighbours, in either order, are one access where that is aligned.
__device__ __forceinline__ bool inside(int64 index, int64 extent) { return uint64(index) < uint64(extent); }
template <int WIDTH, int STEP, int FIRST, int N, class R, class T, class A, class I>
__device__ __forceinline__ void gathered(R (&dst)[N], const T* base, A at, I inside) {
  constexpr int kLast = FIRST + WIDTH - 1;
  if constexpr (WIDTH == 1) {
    dst[FIRST] = inside(FIRST) ? R(types::to_register(base[at(FIRST)])) : R(0);
  } else {
    if constexpr ((STEP == 1 || STEP == -1) && WIDTH * sizeof(T) <= 16) {
      const T* const from = base + at(STEP > 0 ? FIRST : kLast);
      if (inside(FIRST) && inside(kLast) && reinterpret_cast<uint64>(from) % (WIDTH * sizeof(T)) == 0) {
        Word<T, WIDTH> word;
        word.raw = __ldg(reinterpret_cast<const typename Word<T, WIDTH>::Raw*>(from));
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) dst[FIRST + e] = element<R>(word, STEP > 0 ? e : WIDTH - 1 - e);
        return;
      }
    }
    gathered<WIDTH / 2, STEP, FIRST>(dst, base, at, inside);
    gathered<WIDTH / 2, STEP, FIRST + WIDTH / 2>(dst, base, at, inside);
  }
}
// A thread has vectors of VEC neighbours of a row.
template <int VEC, int STEP, int FIRST = 0, int N, class R, class T, class A, class I>
__device__ __forceinline__ void gather(R (&dst)[N], const T* base, A at, I inside) {
  if constexpr (FIRST < N) {
    gathered<VEC, STEP, FIRST>(dst, base, at, inside);
    gather<VEC, STEP, FIRST + VEC>(dst, base, at, inside);
  }
}
// The same for registers that hold two elements each.
template <int VEC, int STEP, int N, class T, class A, class I>
__device__ __forceinline__ void gather_packed(uint32 (&dst)[N], const T* base, A at, I inside) {
  float all[2 * N];
  gather<VEC, STEP>(all, base, at, inside);
#pragma unroll
  for (int i = 0; i < N; ++i) dst[i] = types::Packs<T>::pack(all[2 * i], all[2 * i + 1]);
}

// AXIS 0 is the column, 1 the row, others do not vary within a tile.
template <class L, int AXIS, class R> __device__ __forceinline__ void coordinate(R (&dst)[L::kRegisters], int origin, int tid) {
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v)
#pragma unroll
    for (int e = 0; e < L::kVec; ++e)
      dst[v * L::kVec + e] = R(origin) + (AXIS == 0 ? L::col(v, tid) + e : AXIS == 1 ? L::row(v, tid) : 0);
}

}  // namespace tile

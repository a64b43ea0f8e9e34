// Tensor maps in global memory that a kernel writes itself.
// Source: PTX ISA, "tensormap.replace", "membar / fence" (uni-directional proxy fences).
#pragma once
#include "types.cuh"

namespace tensor_map {

template <int AXIS> __device__ __forceinline__ void extents(uint64) {}
template <int AXIS, class... N> __device__ __forceinline__ void extents(uint64 map, int first, N... rest) {
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], %1, %2;"
               ::"l"(map), "n"(AXIS), "r"(first) : "memory");
  extents<AXIS + 1>(map, rest...);
}

// The map of the launch, but of a tensor that begins elsewhere; extents are innermost first.
template <class... N>
__device__ __forceinline__ void replace(TensorMap* map, const TensorMap* like, const void* begin, N... n) {
  *map = *like;
  const uint64 at = uint64(__cvta_generic_to_global(map));
  asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;"
               ::"l"(at), "l"(uint64(__cvta_generic_to_global(begin))) : "memory");
  extents<0>(at, n...);
}

__device__ __forceinline__ void release() {
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}
__device__ __forceinline__ void acquire(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

}  // namespace tensor_map

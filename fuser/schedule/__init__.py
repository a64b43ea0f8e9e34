"""How to compute it: params, the axes of a kernel, segments, and the heuristics that choose."""

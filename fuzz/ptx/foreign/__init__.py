"""CUDA kernels of other projects: how each is built, what their own host code launches, values."""

"""Kernel -> CUDA C++: spells, decides nothing."""

"""Kernels written by hand in the Kernel IR, to read, to copy and to judge."""

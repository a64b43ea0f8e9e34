"""Kernels with one change for the worse, and how many of them the judges notice."""

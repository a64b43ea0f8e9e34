"""Benchmarks: kernels and proofs timed side by side with their peers."""

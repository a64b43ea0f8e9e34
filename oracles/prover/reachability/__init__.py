"""Explicit-state exploration: every state that a kernel can reach, up to symmetry."""

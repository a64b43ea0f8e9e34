"""Kernels rewritten, before z3 is asked, into equivalent ones with one loop and one role each."""

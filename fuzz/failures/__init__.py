"""Failures: what they are called, how they are made small, which are known, and planted ones."""

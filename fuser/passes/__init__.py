"""Kernel -> Kernel: every sync is derived here, from what the statements read and write."""

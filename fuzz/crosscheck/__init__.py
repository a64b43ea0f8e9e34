"""Thousands of small kernels through two judges that share nothing."""

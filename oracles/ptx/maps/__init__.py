"""Tensor maps as kernels have them: their bytes, and who may rewrite and read these when."""

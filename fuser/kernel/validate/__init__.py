"""What a legal Kernel is: checked after every pass and on kernels written by hand."""

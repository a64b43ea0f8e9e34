"""Small kernels, drawn at random or made by the compiler, for judges to agree on."""

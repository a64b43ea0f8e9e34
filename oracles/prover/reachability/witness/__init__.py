"""The execution that refutes a kernel, told to a reader."""

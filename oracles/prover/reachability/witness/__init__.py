"""The execution that refutes a kernel, laid out for a reader."""

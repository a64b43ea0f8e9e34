"""Semaphore mutants: kernels that give their turn on too early, before every judge and a GPU."""

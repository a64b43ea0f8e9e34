"""The judges, which do not trust the compiler.

Each reads an IR, a log or arrays and returns a `Verdict`.  The prover and the simulator are two
readings of the same prose (the docstrings of `fuser/kernel/`), written
separately; they share no code with the passes or with each other, and a test holds them to it.
Where they disagree, one of them has a bug.
"""

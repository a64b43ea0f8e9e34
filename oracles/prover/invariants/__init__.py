"""What z3 is asked: inductive invariants of a kernel's synchronisation."""

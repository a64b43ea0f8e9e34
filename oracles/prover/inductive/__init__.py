"""z3 checks what reachability found: each kept state stands for a class that no step leaves."""

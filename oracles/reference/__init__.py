"""A Fusion evaluated by torch, with a bound on the rounding error of every element."""

"""Named invariants: drain before release, coverage of mma operands and results, asked of z3."""

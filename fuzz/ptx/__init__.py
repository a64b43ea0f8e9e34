"""Compiled kernels of cases before the judge of PTX: launches, values, planted faults."""

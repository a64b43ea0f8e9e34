"""Cases: fusions, schedules, extents and inputs, drawn by Hypothesis, valid by construction."""

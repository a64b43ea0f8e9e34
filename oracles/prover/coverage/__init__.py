"""Every element of every output is written exactly once, for all extents and grids."""

"""The judge of PTX: runs a small launch of any kernel's PTX with late engines, judges its order."""

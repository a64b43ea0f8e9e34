"""From a scheduled Fusion to a Kernel without a single sync."""

"""Every interleaving of a kernel at one launch, counters and all."""

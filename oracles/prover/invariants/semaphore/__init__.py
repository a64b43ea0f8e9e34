"""CTAs in turn on a semaphore: what must hold between any two of their turns."""

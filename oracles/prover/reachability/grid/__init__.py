"""Several CTAs: who shares a semaphore, in which order, and what nothing orders."""

"""Small kernels whose truth is known from the rules alone: the ground truth for the judges."""

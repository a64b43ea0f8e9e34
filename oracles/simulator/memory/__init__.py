"""What moves data in a simulated run, and the shadow that notices conflicts."""

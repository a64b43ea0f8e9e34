"""What orders a simulated run: clocks, barriers, semaphores, fences."""

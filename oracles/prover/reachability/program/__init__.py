"""What the threads execute: code with explicit positions, conditions, tiles."""

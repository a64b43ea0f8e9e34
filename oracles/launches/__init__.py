"""Small launches that show what sizes can change, chosen from a kernel's own expressions."""

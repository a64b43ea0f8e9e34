"""Which schedule a kernel with products gets where the user names none."""

"""The event graph of a kernel: what happens in an iteration, and what each event requires."""

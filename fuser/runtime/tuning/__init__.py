"""Which of several schedules is the fastest, measured on a call's own tensors and remembered."""

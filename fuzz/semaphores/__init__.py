"""Subjects before every judge and on a GPU: semaphore mutants, or any other kernel."""

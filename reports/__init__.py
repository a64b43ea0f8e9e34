"""Records to one HTML page; knows nothing of compiler or judges.  Pages are written to `out/`."""

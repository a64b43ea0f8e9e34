"""A campaign: driver processes, their judges, the ledger, repros, and the GPU."""

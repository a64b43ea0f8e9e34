"""Where drivers run: processes of this machine, or the machines of a Dask cluster."""

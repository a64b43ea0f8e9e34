"""Another compiler under test: drawn fusions as torch functions, compiled by `torch.compile`."""

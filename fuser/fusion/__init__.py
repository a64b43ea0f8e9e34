"""What to compute: TensorViews, operations on them, and the definition that records them."""

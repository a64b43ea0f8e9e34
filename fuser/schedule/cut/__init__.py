"""What makes a fusion cheap to cut: views where they cost nothing, products that are kept."""

"""Rows of matrix products, of one matrix and of many; and of weights of few bits."""

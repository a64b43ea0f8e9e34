"""Rows of matrix products: of one matrix, of many, of such as numbers name; and of few bits."""

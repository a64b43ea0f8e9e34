"""The only room that sees both the compiler and its judges: cases, campaigns, benchmarks.

.. include:: README.md
"""

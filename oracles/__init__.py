"""The judges, which do not trust the compiler; each reads an IR, a log or arrays.

.. include:: README.md
"""

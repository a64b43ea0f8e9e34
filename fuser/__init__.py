"""The compiler: Fusion -> Kernel with every sync explicit -> CUDA C++ for sm_90a -> results.

.. include:: README.md
"""

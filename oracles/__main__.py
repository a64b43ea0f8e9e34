"""`python -m oracles` judges kernels."""

from oracles.command import main

main(prog_name="python -m oracles")

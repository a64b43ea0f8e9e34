"""`python -m oracles` judges kernels."""

from oracles.cli.command import main

main(prog_name="python -m oracles")

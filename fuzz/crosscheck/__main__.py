"""`python -m fuzz.crosscheck` compares the judges on small kernels."""

from fuzz.crosscheck.conduct import main

if __name__ == "__main__":
    main(prog_name="python -m fuzz.crosscheck")

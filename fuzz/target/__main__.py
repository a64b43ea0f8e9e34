"""`python -m fuzz.target` looks for failures of `torch.compile`."""

from fuzz.target.conduct import main

if __name__ == "__main__":
    main(prog_name="python -m fuzz.target")

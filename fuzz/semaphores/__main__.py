"""`python -m fuzz.semaphores` asks every judge about semaphore mutants."""

from fuzz.semaphores.table import main

if __name__ == "__main__":
    main(prog_name="python -m fuzz.semaphores")

"""`python -m fuzz.semaphores` asks every judge about semaphore mutants, or other subjects."""

from fuzz.semaphores.run import main

if __name__ == "__main__":
    main(prog_name="python -m fuzz.semaphores")

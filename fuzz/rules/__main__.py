"""`python -m fuzz.rules` leaves out each rule of the judges, one at a time."""

from fuzz.rules.leave_out import main

if __name__ == "__main__":
    main(prog_name="python -m fuzz.rules")

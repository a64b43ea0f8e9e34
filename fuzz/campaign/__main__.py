"""`python -m fuzz.campaign` runs a campaign."""

from fuzz.campaign.conduct import main

if __name__ == "__main__":
    main(prog_name="python -m fuzz.campaign")

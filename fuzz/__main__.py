"""`python -m fuzz` runs a campaign."""

from fuzz.campaign.conduct import main

main(prog_name="python -m fuzz")

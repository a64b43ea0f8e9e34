"""`python -m fuzz` runs a campaign."""

from fuzz.campaign.conduct import main

main()

"""`python -m fuzz` runs a campaign."""

from fuzz.campaign import main

main()

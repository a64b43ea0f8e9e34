"""How many faulty values the numeric oracle notices, beside two rules with fixed tolerances."""

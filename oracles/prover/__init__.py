"""No race, no deadlock, no lost element: in any interleaving, for every trip count."""

"""The canonical form of a state: equal for two states that have the same future."""

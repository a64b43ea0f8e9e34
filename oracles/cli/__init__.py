"""The judges on the command line: prove, simulate, explore, explain."""

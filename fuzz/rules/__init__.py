"""The judges against themselves: leave out each rule, and see whether a test kernel notices."""

"""One kernel, one launch, one adversarial schedule at a time, with vector clocks."""

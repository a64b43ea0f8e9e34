"""From a call with tensors to a launch: classify, bind, compile, launch."""

"""A case called again at much larger extents, on its own inputs, repeated.

An axis is parallel where no element depends on more than one position along it, nor on which one.
Inputs that repeat along such axes give results that repeat.  So those of a small call, which the
reference has judged, judge a call of 2^31 elements where it lies, on the device.  An offset in
bytes or bits that does not fit 32 of them is wrong in no smaller call.
"""

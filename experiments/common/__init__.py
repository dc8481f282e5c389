"""Code that experiments share.

It is the class of an experiment, its options, and how it is found, run and traced.
"""

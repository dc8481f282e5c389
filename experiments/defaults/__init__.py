"""Defaults of ``jb.optimise``, beside other libraries and beside other defaults."""

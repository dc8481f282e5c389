"""Specifying a study: the runs that it compares, written by hand, made as a grid or read from a TOML file."""

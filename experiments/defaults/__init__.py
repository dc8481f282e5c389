"""What ``jb.optimise`` does by default, beside other libraries and beside other defaults."""

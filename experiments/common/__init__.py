"""Everything that experiments share: what an experiment is, its options, how it is found, run and traced."""

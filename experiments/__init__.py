"""The studies of the papers, each in a module that says what the paper claims, what we get, and why they differ."""

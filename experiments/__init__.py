"""The studies of the papers: a package for each paper, a module for each study, which says what is claimed, what we get, and why."""

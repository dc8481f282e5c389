"""The studies of the papers.

There is a package for each paper and a module for each study. The module says what is claimed, what we get, and why.
"""

"""Shi and Eryilmaz (2022).

*A Bayesian Approach for Stochastic Continuum-armed Bandit with Long-term Constraints*.
"""

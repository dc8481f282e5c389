"""Guo, Zhu and Liu (2022): RPOL.

*Rectified Pessimistic-Optimistic Learning for Stochastic Continuum-armed Bandit with Constraints*.
"""

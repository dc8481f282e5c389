"""Zhou and Ji (2022): CBO-UCB, CBO-TS, CBO-Rand and SCGP-UCB.

*On Kernelized Multi-Armed Bandits with Constraints*.
"""

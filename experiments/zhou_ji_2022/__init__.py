"""Zhou and Ji (2022), *On Kernelized Multi-Armed Bandits with Constraints*: CBO-UCB, CBO-TS, CBO-Rand and SCGP-UCB."""

"""Vakili et al. (2023), *Delayed Feedback in Kernel Bandits*: BPE-Delay."""

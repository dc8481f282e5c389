"""Hyper-parameters of a simulated study tuned by derivatives: what they are worth, and where they fail."""

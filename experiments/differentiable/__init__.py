"""Hyper-parameters of a simulated study tuned by derivatives."""

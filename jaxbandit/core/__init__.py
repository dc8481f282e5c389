"""Foundations without bandits: pytrees, random streams, checks and status flags."""

"""Helpers that several test modules share: small problems, studies, runs and traces."""

"""The parts of a choice.

They are estimators and widths, penalties, scores, safe sets and consensus.
"""

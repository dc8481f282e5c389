"""Estimators and widths, penalties, scores, safe sets and consensus."""

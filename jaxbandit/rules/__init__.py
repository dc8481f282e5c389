"""The parts of a choice: estimators and widths, penalties, scores, safe sets and consensus."""

"""Finds a good team under a budget: candidates, edits, successive halving, a check, training."""

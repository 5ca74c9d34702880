"""Held-out errors, coverage and bounds, beside the baselines a user would otherwise use."""

"""Accuracy on real measurements, row by row of the targets, beside the baselines."""

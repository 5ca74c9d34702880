"""Chip, model, run, deployment and kernel files: validated at the edge, plain objects inside."""

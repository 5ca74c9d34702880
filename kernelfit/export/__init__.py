"""Calibrations in the formats of other tools, one module per target."""

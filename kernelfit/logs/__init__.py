"""Readers of engine logs, one per format; the only code that knows a format."""

"""Conclusions, flags and plans against planted and recorded answers."""

"""Fuzzing of the readers: no crash, no lost line."""

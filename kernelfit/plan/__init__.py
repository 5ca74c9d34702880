"""Which runs to record next: the fewest that settle most."""

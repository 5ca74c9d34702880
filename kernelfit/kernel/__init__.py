"""The pure core: what a simulator calls. Standard library and numpy only."""

"""What recording costs an engine."""

"""Speed and memory of reading logs into the store."""

"""How fast logs become a store, and in how much memory."""

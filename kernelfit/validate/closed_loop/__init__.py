"""The loop closed: a recorded arrival trace, replayed and compared with what was measured."""

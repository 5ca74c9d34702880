"""How long the command line and the import take, against an empty Python."""

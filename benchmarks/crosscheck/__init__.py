"""Cross-checks of the kernel's laws against figures from outside the project."""

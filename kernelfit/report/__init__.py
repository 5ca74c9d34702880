"""Results for people: tables for the terminal, figures and an HTML page, from plain data."""

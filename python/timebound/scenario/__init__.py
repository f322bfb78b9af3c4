"""Scenario files: YAML in, a checked and resolved `Scenario` out, errors with file, line, column and hint."""

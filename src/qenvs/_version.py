"""The version, for the modules that record it."""

__version__ = "0.1.0"

"""Tacit trains teams of language-model agents to solve tasks, saying only what pays."""

__version__ = "0.1.0"

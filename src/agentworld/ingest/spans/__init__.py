"""Traces of other systems: spans are decoded, known for calls of models and tools, and joined to runs."""

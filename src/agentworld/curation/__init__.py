"""Checks that label what is stored, and what runs them over a pool."""

"""Generative judges: models that are asked in words, and whose answers are read strictly."""

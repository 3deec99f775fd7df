"""Rules: evaluators that compare text, numbers, calls and shapes, without a model."""

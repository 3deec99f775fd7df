"""Dataset versions as files that trainers load."""

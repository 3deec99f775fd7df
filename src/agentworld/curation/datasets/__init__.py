"""Dataset versions: immutable selections named by what is in them."""

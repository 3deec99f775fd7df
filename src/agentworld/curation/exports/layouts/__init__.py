"""The layouts of exports, one a module."""

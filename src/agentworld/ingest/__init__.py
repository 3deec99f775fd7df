"""Trajectories from elsewhere: formats are known by their content, read as streams, and loaded into a pool."""

"""What the stores on SQL engines share: statements, writing, reading, leases. sqlite/ and postgres/ are the engines."""

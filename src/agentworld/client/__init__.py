"""The HTTP client library: the pool's surface over the control API, for threads and for event loops."""

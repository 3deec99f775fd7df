"""The stores under the contract, emptied instead of made anew, as the tests of pools have them."""

from tests.pool.conftest import clock, empty_file, kept_connections, pool, postgres_kept, postgres_url, postgres_wipe

__all__ = ["clock", "empty_file", "kept_connections", "pool", "postgres_kept", "postgres_url", "postgres_wipe"]

from tests.pool.conftest import clock, empty_file, kept_connections, pool, postgres_kept, postgres_url, postgres_wipe

__all__ = ["clock", "empty_file", "kept_connections", "pool", "postgres_kept", "postgres_url", "postgres_wipe"]

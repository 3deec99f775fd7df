from tests.pool.conftest import clock, empty_file, pool, postgres_url, postgres_wipe

__all__ = ["clock", "empty_file", "pool", "postgres_url", "postgres_wipe"]

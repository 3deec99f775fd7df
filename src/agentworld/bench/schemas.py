"""Schemas of a PostgreSQL database that are there for one measurement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from agentworld.pool.postgres.address import read_address


def connected(url: str) -> psycopg.Connection[Any]:
    """A connection in autocommit mode to the URL's database, in the schema that the URL names."""
    address = read_address(url)
    connection = psycopg.connect(**address.parameters, autocommit=True)
    if address.schema is not None:
        connection.execute(f'SET search_path TO "{address.schema}"'.encode())
    return connection


@contextlib.contextmanager
def temporary_schema(url: str, name: str) -> Iterator[str]:
    """A new schema; gives the URL of a pool in it, and drops it with all that is in it."""
    with connected(url) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"'.encode())
    try:
        yield f"{url}{'&' if '?' in url else '?'}schema={name}"
    finally:
        with connected(url) as connection:
            connection.execute(f'DROP SCHEMA "{name}" CASCADE'.encode())

"""API keys over HTTP, for who has the scope admin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from agentworld.client import calls
from agentworld.pool.keys import ApiKey, IssuedKey, NewKey

T = TypeVar("T")


class KeyMethods(ABC):
    """The methods of a factory that are about keys; what each does is said in agentworld.pool.keys.KeyMethods."""

    @abstractmethod
    def _send(self, call: calls.Call[T]) -> T:
        """Send a call and read its reply."""

    def create_key(self, new: NewKey) -> IssuedKey:
        """See Pool."""
        return self._send(calls.create_key(new))

    def list_keys(self) -> list[ApiKey]:
        """See Pool."""
        return self._send(calls.list_keys()).items

    def revoke_key(self, key_id: str) -> ApiKey:
        """See Pool."""
        return self._send(calls.revoke_key(key_id))

"""Sampling parameters that the settings fix for a channel, whatever its callers ask for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agentworld.config import ChannelSettings
from agentworld.dialects.exchange import Request


class Overrides:
    """Those of every channel."""

    def __init__(self, channels: Mapping[str, ChannelSettings]) -> None:
        self._by_channel = {}
        for name, settings in channels.items():
            fixed = {
                key: value for key, value in msgspec.structs.asdict(settings.sampling).items() if value is not None
            }
            if fixed:
                self._by_channel[name] = fixed

    def apply(self, request: Request, channel: str) -> Request:
        """The request as it goes to the engine. What is fixed is what the step says was in force."""
        fixed = self._by_channel.get(channel)
        if fixed is None:
            return request
        # Drivers that send the caller's own body on put what is fixed into it, or refuse what their API lacks.
        return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, **fixed))

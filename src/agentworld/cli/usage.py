"""A command line that is wrong itself, in what its options say together or in the words of one."""

from __future__ import annotations

from agentworld.errors import ConfigError


class CommandLineError(ConfigError):
    """What was typed cannot be meant: the command ends with exit code 2."""

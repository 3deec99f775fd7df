"""The only write path for exchanges: collect a reply, plan where it belongs, put it into the pool."""

from agentworld.capture.call import Call
from agentworld.capture.collect import Collector
from agentworld.capture.recorder import Recorder
from agentworld.capture.sessions import Session, Sessions

__all__ = ["Call", "Collector", "Recorder", "Session", "Sessions"]

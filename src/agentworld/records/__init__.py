"""The one definition of each record; msgspec structs that are also the wire format."""

from agentworld.records.batch import Batch, BatchItem, BatchSpec, BatchTrajectory, Order, Unit
from agentworld.records.depth import MAX_DEPTH, check_depth
from agentworld.records.ids import check_id, digest, new_id
from agentworld.records.message import (
    FunctionCall,
    MediaPart,
    Message,
    Part,
    Role,
    TextPart,
    Tool,
    ToolCall,
)
from agentworld.records.step import (
    Exchange,
    ForkReason,
    LogprobSpace,
    Policy,
    Readiness,
    Sampling,
    Step,
    TokenSource,
    Usage,
    VersionSpan,
)
from agentworld.records.trajectory import (
    Event,
    NewTrajectory,
    Reward,
    TerminalStatus,
    Trajectory,
    TrajectoryStatus,
)

__all__ = [
    "MAX_DEPTH",
    "Batch",
    "BatchItem",
    "BatchSpec",
    "BatchTrajectory",
    "Event",
    "Exchange",
    "ForkReason",
    "FunctionCall",
    "LogprobSpace",
    "MediaPart",
    "Message",
    "NewTrajectory",
    "Order",
    "Part",
    "Policy",
    "Readiness",
    "Reward",
    "Role",
    "Sampling",
    "Step",
    "TerminalStatus",
    "TextPart",
    "TokenSource",
    "Tool",
    "ToolCall",
    "Trajectory",
    "TrajectoryStatus",
    "Unit",
    "Usage",
    "VersionSpan",
    "check_depth",
    "check_id",
    "digest",
    "new_id",
]

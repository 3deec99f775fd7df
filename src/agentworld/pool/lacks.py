"""What a step may lack for training, as the bits that `trajectories.lacks` joins over a trajectory's usable steps."""

from __future__ import annotations

LACKS_TOKENS = 1  # no reply ids
LACKS_LOGPROBS = 2
LACKS_MESSAGES = 4  # no prompt messages, or no reply message


def lacks(has_reply_ids: bool, has_logprobs: bool, has_prompt_messages: bool, has_reply_message: bool) -> int:
    """The bits of one step."""
    return (
        (0 if has_reply_ids else LACKS_TOKENS)
        | (0 if has_logprobs else LACKS_LOGPROBS)
        | (0 if has_prompt_messages and has_reply_message else LACKS_MESSAGES)
    )

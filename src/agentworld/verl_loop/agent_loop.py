"""What verl calls for each prompt. Loaded by verl from `agent_loop_config_path`; importing it imports verl.

verl's own client is the gateway's engine, so that whatever verl does with its servers holds for agents too. The loop
returns what the pool has on record: ids as they were sent and sampled, masks, log-probabilities and versions.
"""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.utils.ray_utils import get_event_loop
from verl.workers.rollout.llm_server import LLMServerClient

from agentworld.agents.definition import CommandAgent
from agentworld.errors import InvalidRequestError
from agentworld.verl_loop.hydra_config import LOOP, engines_of, sampling_of, settings_of
from agentworld.verl_loop.playing import Played, play_prompt
from agentworld.verl_loop.rows import loop_rows, origin
from agentworld.verl_loop.settings import read_settings
from agentworld.verl_loop.station import station_for


@register(LOOP)
class AgentWorldLoop(AgentLoopBase):  # type: ignore[misc]
    """An agent on verl's engines. `settings`: path of the settings file (LoopSettings); unset, that of the entry in
    verl's configuration, which registering this class puts itself in the place of.
    """

    def __init__(self, *args: Any, settings: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = settings_of(self.config) if settings is None else read_settings(settings)
        self.agent = self.settings.the_agent()
        self.task_set = self.settings.the_task_set()
        client = self.server_manager
        engines = engines_of(self.config, self.settings)
        self.station = station_for(self.settings, _once(client), engines)
        self.station.bridge.loop = get_event_loop()
        self._trains_at = float(self.rollout_config.temperature)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Play one prompt. verl's V1 trainer is given a list of one row or more, the former trainer one row."""
        sampling = sampling_of(sampling_params)
        logprobs = bool(sampling_params.get("logprobs", True))
        if isinstance(self.agent, CommandAgent) and sampling.temperature not in self._temperatures():
            raise InvalidRequestError(
                "an agent that is a command cannot sample otherwise than its channel",
                path="agent",
                hint="Use a loop agent where single rollouts are greedy, as with REMAX",
            )
        played = await play_prompt(
            self.settings,
            self.station,
            self.agent,
            self.task_set,
            kwargs,
            rollouts=int(self.rollout_config.n),
            sampling=sampling,
            logprobs=logprobs,
        )
        v1 = bool(self.config.trainer.get("use_v1", False))
        rows = loop_rows(
            played.batch,
            prompt_length=int(self.rollout_config.prompt_length),
            response_length=int(self.rollout_config.response_length),
            logprobs=logprobs,
            several=self.settings.several or ("all" if v1 else "refuse"),
            temperature=float(sampling.temperature or 0.0),
        )
        outputs = [self._output(played, rows, part) for part in range(len(rows))]
        if v1:
            return outputs
        if len(outputs) > 1:
            raise InvalidRequestError(
                f"verl's former trainer takes one row a rollout, not {len(outputs)}",
                path="several",
                hint='Use several = "last" or "refuse", or the V1 trainer',
            )
        return outputs[0]

    def _temperatures(self) -> tuple[float, float]:
        return self._trains_at, float(self.rollout_config.val_kwargs.temperature)

    def _output(self, played: Played, rows: list[Any], part: int) -> AgentLoopOutput:
        row = rows[part]
        low, high = row.versions
        return AgentLoopOutput(
            prompt_ids=row.prompt_ids,
            response_ids=row.response_ids,
            response_mask=row.response_mask,
            response_logprobs=row.response_logprobs,
            reward_score=played.reward,
            num_turns=row.num_turns,
            metrics=AgentLoopMetrics(
                generate_sequences=played.model_seconds,
                tool_calls=max(0.0, played.seconds - played.model_seconds),
            ),
            extra_fields={
                "turn_scores": [],
                "tool_rewards": [],
                "min_global_steps": low,
                "max_global_steps": high,
                # verl looks it up where the reward is there already.
                "reward_extra_info": {},
                "agentworld": origin(played.batch, row, part, len(rows)),
            },
        )


def _once(client: Any) -> Any:
    """One call of verl's client without the loop of its asynchronous kind, which joins pieces of several weights."""

    async def generate(request_id: str, **fields: Any) -> Any:
        if isinstance(client, LLMServerClient):
            return await LLMServerClient.generate(client, request_id, **fields)
        return await client.generate(request_id, **fields)

    return generate

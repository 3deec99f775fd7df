"""verl's client as tests need it: replies from a function, with the weights and the fate that it says."""

from types import SimpleNamespace

from agentworld.engines.chat_format import ChatFormat
from agentworld.engines.tokenizer import load_tokenizer

TOKENIZER = load_tokenizer("pocket")
CHAT = ChatFormat(TOKENIZER)
END = TOKENIZER.encode("<|im_end|>")


class ScriptedClient:
    """`script(prompt_text, call)` -> text, or (text, stop_reason). `version`: of the weights, as verl counts them."""

    def __init__(self, script, version=3):
        self.script = script
        self.version = version
        self.calls = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        said = self.script(TOKENIZER.decode(prompt_ids), len(self.calls))
        text, reason = said if isinstance(said, tuple) else (said, "completed")
        ids = TOKENIZER.encode(text) + (END if reason == "completed" else [])
        ids = ids[: sampling_params["max_tokens"]]
        values = [-(place + 1) / 8 for place in range(len(ids))]
        self.calls.append(
            SimpleNamespace(request_id=request_id, prompt_ids=list(prompt_ids), sampling=dict(sampling_params),
                            ids=ids, logprobs=values, version=self.version)
        )  # fmt: skip
        return SimpleNamespace(
            token_ids=ids,
            log_probs=values if sampling_params["logprobs"] else None,
            stop_reason=reason,
            extra_fields={"global_steps": self.version},
        )

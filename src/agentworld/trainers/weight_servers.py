"""How engines are told to take other weights, over HTTP: the builtin engine, vLLM and SGLang.

What each takes is a path on its own machine. vLLM's routes are those of its development mode and of LoRA updates at
run time, SGLang's are there always.
"""

from __future__ import annotations

import asyncio
import http.client
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from agentworld.config import ModelSettings
from agentworld.engines.redact import Redactor
from agentworld.engines.vllm import BuiltinEngine
from agentworld.errors import ConfigError, EngineError, EngineUnreachableError
from agentworld.records import Policy

LOOK_SECONDS = 10.0
"""For questions that are answered at once."""
_SAID = 500  # characters of an engine's words in an error


class WeightServer(Protocol):
    """One engine. Errors are EngineUnreachableError and EngineError, with what to do."""

    url: str

    def models(self) -> list[str]:
        """Names of what it serves, adapters among them."""

    def load(self, folder: Path, policy: Policy) -> None:
        """Serve the weights in `folder` from now on, as `policy`; what was computed with others is forgotten."""

    def load_adapter(self, folder: Path, policy: Policy) -> None:
        """Serve the adapter in `folder` under the policy's model, in place of the one of that name."""

    def cut(self) -> None:
        """End what is being generated, and take nothing up until `go_on`."""

    def go_on(self) -> None:
        """Generate again."""


class BuiltinServer:
    """The builtin engine: replies under way go on with the new weights, and say so."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self.url = url
        self._key, self._timeout = api_key, timeout

    def models(self) -> list[str]:
        """See WeightServer."""

        async def ask(engine: BuiltinEngine) -> list[str]:
            return [card.name for card in await engine.models()]

        found: list[str] = self._with_engine("", ask)
        return found

    def load(self, folder: Path, policy: Policy) -> None:
        """See WeightServer."""
        self._with_engine(policy.model, lambda engine: engine.reload(str(folder), policy))

    def load_adapter(self, folder: Path, policy: Policy) -> None:
        """It has no adapters."""
        raise ConfigError("the builtin engine takes whole weights alone", path="publish.load", hint='Use "weights"')

    def cut(self) -> None:
        """Nothing is to be cut."""

    def go_on(self) -> None:
        """Nothing was cut."""

    def _with_engine(self, model: str, use: Any) -> Any:
        async def run() -> Any:
            settings = ModelSettings(name=model, upstream=self.url, driver="builtin", api_key=self._key)
            engine = BuiltinEngine(settings, self._timeout)
            try:
                return await use(engine)
            finally:
                await engine.close()

        return asyncio.run(run())


class VllmServer:
    """vLLM with VLLM_SERVER_DEV_MODE=1, and for adapters with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self.url = url
        self._line = Line(url, api_key, timeout)

    def models(self) -> list[str]:
        """See WeightServer."""
        return _names(self._line.send("GET", "/v1/models", seconds=LOOK_SECONDS))

    def load(self, folder: Path, policy: Policy) -> None:
        """Its workers read the folder's safetensors into the model as it is; the prefix cache is emptied after that."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        self._line.send("POST", "/collective_rpc", body, missing=_DEV_MODE, broken=_OLD_RELOAD)
        self._forget()

    def load_adapter(self, folder: Path, policy: Policy) -> None:
        """In place where the release can; else the one of that name is taken out first."""
        body = {"lora_name": policy.model, "lora_path": str(folder)}
        try:
            self._line.send("POST", "/v1/load_lora_adapter", {**body, "load_inplace": True}, missing=_LORA_UPDATES)
        except EngineError as error:
            if "already been loaded" not in error.message:
                raise
            self._line.send("POST", "/v1/unload_lora_adapter", {"lora_name": policy.model}, missing=_LORA_UPDATES)
            self._line.send("POST", "/v1/load_lora_adapter", body, missing=_LORA_UPDATES)
        self._forget()

    def cut(self) -> None:
        """Running replies end as `abort`."""
        self._line.send("POST", "/pause?mode=abort", missing=_DEV_MODE)

    def go_on(self) -> None:
        """See WeightServer."""
        self._line.send("POST", "/resume", missing=_DEV_MODE)

    def _forget(self) -> None:
        """Prefixes are cached by their ids and the adapter's name, so that older weights' would be served on."""
        self._line.send("POST", "/reset_prefix_cache", missing=_DEV_MODE)


class SglangServer:
    """An SGLang worker; not its router, which passes this on to one of several."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self.url = url
        self._line = Line(url, api_key, timeout)

    def models(self) -> list[str]:
        """See WeightServer."""
        return _names(self._line.send("GET", "/v1/models", seconds=LOOK_SECONDS))

    def load(self, folder: Path, policy: Policy) -> None:
        """See WeightServer."""
        version = f"{policy.run}:{policy.version}"
        body = {"model_path": str(folder), "flush_cache": True, "weight_version": version}
        self._succeeds("/update_weights_from_disk", body)

    def load_adapter(self, folder: Path, policy: Policy) -> None:
        """The one of that name is taken out first: it has no loading in place."""
        body = {"lora_name": policy.model, "lora_path": str(folder)}
        try:
            self._succeeds("/load_lora_adapter", body)
        except EngineError as error:
            if "already" not in error.message:
                raise
            self._succeeds("/unload_lora_adapter", {"lora_name": policy.model})
            self._succeeds("/load_lora_adapter", body)
        self._line.send("POST", "/flush_cache")

    def cut(self) -> None:
        """Running replies end as `abort`."""
        self._line.send("POST", "/pause_generation", {"mode": "abort"})

    def go_on(self) -> None:
        """See WeightServer."""
        self._line.send("POST", "/continue_generation", {})

    def _succeeds(self, path: str, body: dict[str, Any]) -> None:
        """Some failures are told with status 200."""
        found = self._line.send("POST", path, body)
        if not isinstance(found, dict) or found.get("success") is not True:
            said = found.get("message") or found.get("error_message") if isinstance(found, dict) else found
            raise EngineError(
                f"the engine at {self.url} did not take the weights: {self._line.told(said) or 'it does not say why'}",
                hint="Look whether the path is there on its machine, and the model is the one that is trained",
            )


SERVERS: dict[str, type[BuiltinServer] | type[VllmServer] | type[SglangServer]] = {
    "builtin": BuiltinServer,
    "vllm": VllmServer,
    "sglang": SglangServer,
}
_DEV_MODE = "Start vLLM with VLLM_SERVER_DEV_MODE=1, on an address that nobody else reaches"
_LORA_UPDATES = "Start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
_OLD_RELOAD = "It may be a release whose reload_weights takes no weights_path, or has no access to that path"


class Line:
    """Requests to one engine, each on a connection of its own. Redirects are errors."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._address = urlsplit(self.url)
        self._timeout = timeout
        self._redactor = Redactor(api_key)
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"

    def send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        seconds: float | None = None,
        missing: str | None = None,
        broken: str | None = None,
    ) -> Any:
        """The JSON of the reply, or its text. `missing`: what to do where there is no such route, `broken`: where the
        engine fails.
        """
        kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        line = kind(self._address.hostname or "", self._address.port, timeout=seconds or self._timeout)
        try:
            sent = None if body is None else msgspec.json.encode(body)
            line.request(method, f"{self._address.path}{path}", sent, self._headers)
            reply = line.getresponse()
            data = reply.read()
        except TimeoutError:
            raise EngineError(
                f"the engine at {self.url} did not answer {path} within {seconds or self._timeout:g} s",
                hint="Raise publish.timeout if loading takes so long",
            ) from None
        except ConnectionRefusedError:
            raise EngineUnreachableError(f"nothing answers at {self.url}", hint="Start the engine") from None
        except (OSError, http.client.HTTPException) as error:
            raise EngineUnreachableError(f"the engine at {self.url} broke off at {path}: {error}") from None
        finally:
            line.close()
        if reply.status == 200:
            return _decoded(data)
        hint = missing if reply.status in (404, 405) else broken if reply.status >= 500 else None
        said = self.told(_words(_decoded(data)))
        raise EngineError(f"the engine at {self.url} answered {path} with {reply.status}: {said}", hint=hint)

    def told(self, words: Any) -> str:
        """What an engine said, for an error: cut, and without the key."""
        return self._redactor.text(str(words or ""))[:_SAID]


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.decode("utf-8", "replace")


def _words(body: Any) -> str:
    """What an error's body says, in the shapes of vLLM, SGLang and their frameworks."""
    if isinstance(body, dict):
        for name in ("message", "detail", "error", "error_message"):
            if body.get(name):
                return _words(body[name])
    return str(body) or "nothing"


def _names(body: Any) -> list[str]:
    data = body.get("data") if isinstance(body, dict) else None
    return [each["id"] for each in data or () if isinstance(each, dict) and isinstance(each.get("id"), str)]

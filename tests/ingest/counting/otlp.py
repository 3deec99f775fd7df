"""Traces, counted on the raw JSON: each convention's messages as tuples, put into one tree a trace."""

import base64
import json
import re
from pathlib import Path

from tests.ingest.counting import Counts
from tests.ingest.trees import Tree, said

FORMAT = "otlp"
SAMPLES = ("otlp/*", "openinference/*.json")


def count(path: Path) -> Counts:
    spans = [span for file in files(path) for span in _spans(file)]
    joined = {}
    for index, span in enumerate(spans):
        key = (span["trace"] or index, span["id"] or index)
        if key in joined and joined[key]["only_events"]:
            span, joined[key] = joined[key], span
        if key in joined and span["only_events"]:
            joined[key]["events"] += span["events"]
        else:
            joined[key] = span
    traces = {}
    for (trace, own), span in joined.items():
        traces.setdefault(trace, {})[own] = span
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    for trace in traces.values():
        _count(trace, counts)
    return counts


def files(path):
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def _count(trace, counts):
    calls = {own: call for own, span in trace.items() if (call := _call(span)) and not span["failed"]}
    around = {above for own in calls for above in _above(own, trace) if above in calls}
    tree = Tree()
    for own in sorted((own for own in calls if own not in around), key=lambda own: trace[own]["start"]):
        prompt, replies = calls[own]
        if replies:
            for reply in replies:
                tree.step(prompt, reply)
        elif not tree.steps:
            tree.history(prompt)
    lone = not tree.steps
    for span in sorted(trace.values(), key=lambda span: span["start"]):
        if tool := _tool(span):
            tree.result(*tool, called=lone)
    tree.into(counts)
    counts.runs += bool(tree.steps or tree.rest)
    for span in trace.values():
        for event in span["events"]:
            if event["name"] == "gen_ai.evaluation.result":
                value = event["attributes"].get("gen_ai.evaluation.score.value")
                counts.rewards += [value] if value is not None else []
                counts.labels += value is None
        score = span["attributes"].get("eval.helpful.score")
        counts.rewards += [score] if score is not None else []


def _above(own, trace):
    while (own := trace[own]["parent"]) in trace:
        yield own


def _spans(file):
    if file.suffix == ".binpb":
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        documents = [MessageToDict(ExportTraceServiceRequest.FromString(file.read_bytes()))]
    elif file.suffix == ".yaml":
        text = file.read_text()
        kind = re.search(r"gen-ai-(input|output)-messages", text)[1]
        document, _ = json.JSONDecoder().raw_decode(text, text.index("document: ") + len("document: "))
        documents = [{f"gen_ai.{kind}.messages": document}]
    else:
        text = file.read_text()
        try:
            documents = [json.loads(text)]
        except ValueError:
            documents = list(filter(None, map(_loaded, text.splitlines())))
    for document in documents:
        yield from _of_document(document)


def _loaded(line):
    try:
        return json.loads(line)
    except ValueError:
        return None


def _of_document(document):
    for batch in document.get("resourceSpans", []):
        for scope in batch.get("scopeSpans", []):
            for span in scope["spans"]:
                if isinstance(span, dict):
                    yield _span(span)
    for batch in document.get("resourceLogs", []):
        for scope in batch["scopeLogs"]:
            for record in scope["logRecords"]:
                if record.get("eventName", "").startswith("gen_ai."):
                    event = {"name": record["eventName"], "attributes": _pairs(record.get("attributes"))}
                    yield {
                        **_span(record),
                        "events": [{**event, "body": _value(record.get("body"))}],
                        "only_events": True,
                    }
    for trace in document.get("data", []):
        for span in trace["spans"]:
            parents = [each["spanID"] for each in span.get("references", [])]
            yield {
                "trace": trace["traceID"], "id": span["spanID"], "parent": (parents or [None])[0], "only_events": False,
                "start": span["startTime"], "events": [],
                "attributes": (tags := {tag["key"]: tag["value"] for tag in span["tags"]}), "failed": tags.get("error"),
            }  # fmt: skip
    if "context" in document:
        context = document["context"]
        yield {
            "trace": context["trace_id"], "id": context["span_id"], "parent": document["parent_id"],
            "only_events": False, "start": document["start_time"], "attributes": document["attributes"],
            "events": [], "failed": False,
        }  # fmt: skip
    elif isinstance(document.get("attributes"), list):
        yield _span(document)
    elif any(key.startswith("gen_ai.") for key in document):
        empty = {"trace": None, "id": None, "parent": None, "start": 0, "events": [], "failed": False}
        yield {**empty, "attributes": document, "only_events": False}


def _span(span):
    events = [
        {"name": each.get("name"), "attributes": _pairs(each.get("attributes")), "body": None}
        for each in span.get("events", [])
    ]
    status = span.get("status", {}).get("code")
    return {
        "trace": _id(span.get("traceId")), "id": _id(span.get("spanId")), "parent": _id(span.get("parentSpanId")),
        "start": int(span.get("startTimeUnixNano", 0)), "attributes": _pairs(span.get("attributes")), "events": events,
        "failed": status in (2, "STATUS_CODE_ERROR"), "only_events": False,
    }  # fmt: skip


def _id(value):
    if value and len(value) in (12, 24):
        return base64.b64decode(value).hex()
    return value.lower() if value else None


def _pairs(pairs):
    return {each["key"]: _value(each.get("value")) for each in pairs or [] if "key" in each}


def _value(value):
    if not isinstance(value, dict) or not value:
        return value or None
    (kind, inner), *_ = value.items()
    if kind == "arrayValue":
        return [_value(each) for each in inner.get("values", [])]
    if kind == "kvlistValue":
        return _pairs(inner.get("values"))
    return int(inner) if kind == "intValue" else inner


def _json(value):
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:  # What was cut off is one text of the user.
        return [{"role": "user", "parts": [{"type": "text", "content": value}]}]


def _call(span):
    """Prompt and replies of a call of a model, None where it is none or has no messages."""
    given = span["attributes"]
    for event in span["events"]:
        if event["name"] == "gen_ai.client.inference.operation.details":
            given = {**given, **event["attributes"]}
    if given.get("gen_ai.operation.name") in ("execute_tool", "invoke_agent"):
        return None
    prompt, replies = [], []
    if "gcp.vertex.agent.llm_request" in given and (request := json.loads(given["gcp.vertex.agent.llm_request"])):
        system = request["config"].get("system_instruction")
        prompt = ([said("system", system)] if system else []) + [_parts(each) for each in request["contents"]]
        replies = [_parts(json.loads(given["gcp.vertex.agent.llm_response"])["content"])]
    elif "gen_ai.input.messages" in given or "gen_ai.output.messages" in given:
        system = _json(given.get("gen_ai.system_instructions"))
        prompt = [said("system", "".join(each["content"] for each in system))] if system else []
        prompt += [_parts(each) for each in _json(given.get("gen_ai.input.messages") or "[]")]
        replies = [_parts(each) for each in _json(given.get("gen_ai.output.messages") or "[]")]
    elif "openinference.span.kind" in given:
        prompts, choices = r"llm\.prompts\.(\d+)\.prompt\.text", r"llm\.choices\.(\d+)\.completion\.text"
        asked, answered = (rf"llm\.{side}_messages\.(\d+)\.message\.(.*)" for side in ("input", "output"))
        prompt = [said("user", text) for text in _numbered(given, prompts, whole=True)]
        replies = [said("assistant", text) for text in _numbered(given, choices, whole=True)]
        prompt = prompt or [_inferred(each) for each in _numbered(given, asked)]
        replies = replies or [_inferred(each) for each in _numbered(given, answered)]
    elif any(key.startswith("gen_ai.prompt.") for key in given):
        prompt = [_old(each) for each in _numbered(given, r"gen_ai\.prompt\.(\d+)\.(.*)")]
        replies = [_old(each) for each in _numbered(given, r"gen_ai\.completion\.(\d+)\.(.*)")]
    elif "ai.response.text" in given or "ai.response.toolCalls" in given:
        prompt = [_vercel(each) for each in _json(given["ai.prompt.messages"])]
        calls = [(each["toolCallId"], each["toolName"]) for each in _json(given.get("ai.response.toolCalls") or "[]")]
        replies = [said("assistant", given.get("ai.response.text"), calls)]
    else:
        for event in span["events"]:
            body = event["body"] or event["attributes"]
            if event["name"] == "gen_ai.choice":
                replies.append(said("assistant", body["message"]["content"]))
            elif re.fullmatch(r"gen_ai\.(system|user|assistant|tool)\.message", event["name"]):
                calls = [(each["id"], each["function"]["name"]) for each in body.get("tool_calls") or []]
                prompt.append(said(event["name"].split(".")[1], body.get("content"), calls, result=body.get("id")))
    return (prompt, replies) if prompt or replies else None


def _numbered(given, pattern, whole=False):
    found = {}
    for key, value in given.items():
        if match := re.fullmatch(pattern, key):
            if whole:
                found[int(match[1])] = value
            else:
                found.setdefault(int(match[1]), {})[match[2]] = value
    return [found[number] for number in sorted(found)]


def _parts(message):
    texts, thoughts, calls, result = [], [], [], None
    for part in message["parts"]:
        if not isinstance(part, dict):
            continue
        kind = part.get("type") or next(iter(part))
        inner = part.get("function_call") or part.get("function_response") or part
        if kind in ("tool_call", "function_call"):
            if "name" not in inner:
                continue
            calls.append((inner.get("id"), inner["name"]))
        elif kind in ("tool_call_response", "function_response"):
            shown = inner["response"]
            texts.append(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False))
            result = inner.get("id")
        elif kind == "reasoning":
            thoughts.append(part["content"])
        elif kind == "text":
            texts.append(part.get("content") or part.get("text"))
    role = "tool" if result else {"model": "assistant"}.get(message["role"], message["role"])
    return said(role, "".join(texts) if texts else None, calls, thought=bool(thoughts), result=result)


def _inferred(message):
    calls = _numbered(message, r"tool_calls\.(\d+)\.tool_call\.(.*)")
    content = message.get("content")
    texts = [each.get("text") for each in _numbered(message, r"contents\.(\d+)\.message_content\.(.*)")]
    if texts:
        content = "".join(filter(None, texts))
    named = [(each.get("id"), each["function.name"]) for each in calls]
    return said(message["role"], content, named, result=message.get("tool_call_id"))


def _old(message):
    calls = [(each.get("id"), each["name"]) for each in _numbered(message, r"tool_calls\.(\d+)\.(.*)")]
    return said(message.get("role", "assistant"), message.get("content"), calls, result=message.get("tool_call_id"))


def _vercel(message):
    content = message["content"]
    if isinstance(content, str):
        return said(message["role"], content)
    texts = [part["text"] for part in content if part["type"] == "text"]
    results = [part for part in content if part["type"] == "tool-result"]
    if results:
        return said("tool", json.dumps(results[0]["result"]), result=results[0]["toolCallId"])
    calls = [(part["toolCallId"], part["toolName"]) for part in content if part["type"] == "tool-call"]
    return said(message["role"], "".join(texts) if texts else None, calls)


def _tool(span):
    given = span["attributes"]
    kinds = (given.get("gen_ai.operation.name"), given.get("openinference.span.kind"))
    if "execute_tool" not in kinds and "TOOL" not in kinds:
        return None
    names = ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value", "output")
    result = next((given[name] for name in names if name in given), None)
    return given.get("gen_ai.tool.call.id"), result if result is None or isinstance(result, str) else json.dumps(result)

"""Claude Code's lines, counted line by line: the lines of one message are one, copies of a line count once."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "claude-code"
SAMPLES = ("claude_code/*",)


def _lines(path):
    files = [path] if path.is_file() else sorted(path.rglob("*.jsonl"))
    seen = set()
    for file in files:
        for text in file.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and line.get("uuid") not in seen:
                seen |= {line["uuid"]} if "uuid" in line else set()
                yield line


def _text(content):
    if isinstance(content, str):
        return content
    texts = []
    for block in content or []:
        if block["type"] == "text":
            texts.append(block["text"])
        elif block["type"] != "image":
            texts.append(json.dumps(block, ensure_ascii=False))
    return "".join(texts)


def _kept(line, lines):
    told = line.get("compactMetadata", {})
    if "preservedSegment" in told:
        order = [each.get("uuid") for each in lines]
        first, last = (order.index(told["preservedSegment"][name]) for name in ("headUuid", "tailUuid"))
        return [each for each in lines[first : last + 1] if each.get("message")]
    named = told.get("preservedMessages", {}).get("uuids", [])
    return [each for each in lines if each.get("uuid") in named]


def count(path: Path) -> Counts:
    """Of a file, or of a folder with a session's files."""
    found = Counts(0, None, 0, 0, 0, 0, 0, [], 0, 0, 0)
    lines = list(_lines(path))
    sessions, of_line, steps = {}, {}, set()
    thinking = set()
    for number, line in enumerate(lines):
        kind, message = line.get("type"), line.get("message")
        session = line.get("sessionId") or line.get("session_id")
        root = of_line.get(line.get("parentUuid") or "", session)
        if isinstance(message, dict) or kind in ("tool_use", "tool_result"):
            sessions[session] = sessions.get(root, root)
            of_line[line.get("uuid")] = sessions[session]
        else:
            of_line[line.get("uuid")] = root
        again = _kept(line, lines)
        found.messages += len(again)
        found.characters += sum(len(_text(each["message"]["content"])) for each in again)
        if kind == "attachment" and line["attachment"]["type"] == "queued_command":
            found.messages += 1
            found.characters += len(line["attachment"]["prompt"])
        elif kind == "tool_use":
            steps.add(number)
            found.tool_calls += 1
        elif kind == "tool_result":
            found.messages += 1
            found.tool_results += 1
            found.characters += len(line["output"])
        if not isinstance(message, dict) or line.get("isApiErrorMessage"):
            continue
        content = message["content"]
        if message["role"] == "assistant":
            if message.get("model") == "<synthetic>":
                found.messages += 1
            else:
                steps.add((line.get("agentId"), message["id"]) if "id" in message else number)
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if block["type"] == "text":
                    found.characters += len(block["text"])
                elif block["type"] == "thinking" and block["thinking"]:
                    thinking.add(message["id"])
                elif block["type"].endswith("tool_use"):
                    found.tool_calls += 1
                elif block["type"].endswith("tool_result"):
                    found.messages += 1
                    found.tool_results += 1
                    found.characters += len(_text(block["content"]))
            continue
        results = [block for block in content if not isinstance(content, str) and block["type"] == "tool_result"]
        found.messages += len(results)
        found.tool_results += len(results)
        found.characters += sum(len(_text(block["content"])) for block in results)
        if len(results) < len(content) or not results:
            found.messages += 1
            found.characters += len(
                _text(content if isinstance(content, str) else [b for b in content if b not in results])
            )
    found.runs = len(set(sessions.values()))
    found.steps = len(steps)
    found.messages += len(steps)
    found.reasoning = len(thinking)
    return found

"""Turns of a run as a tree of tuples, for counters of formats in which each call shows its whole prompt."""


def said(role, text, calls=(), thought=False, result=None):
    """One message as a tuple: what makes two of them one."""
    return role, text, tuple(calls), thought, result


class Tree:
    """What prompts have in common is there once; each reply is one."""

    def __init__(self):
        self._nodes = [({}, None)]
        self.steps = 0
        self.rest = []
        self.replied = []

    def _follow(self, messages):
        node = 0
        for message in messages:
            children = self._nodes[node][0]
            if message not in children:
                self._nodes.append(({}, message))
                children[message] = len(self._nodes) - 1
            node = children[message]
        return node

    def step(self, prompt, reply):
        """A reply to a prompt; told again it is another one."""
        node = self._follow(prompt)
        self._nodes.append(({}, reply))
        self._nodes[node][0].setdefault(reply, len(self._nodes) - 1)
        self.replied += [call for call, _ in reply[2]]
        self.steps += 1

    def history(self, messages):
        """A conversation of which each reply is a step."""
        last = max((at for at, message in enumerate(messages) if message[0] == "assistant"), default=-1)
        self._follow(messages[: last + 1])
        self.steps += sum(message[0] == "assistant" for message in messages)
        self.rest += messages[last + 1 :]

    def result(self, call, text, called):
        """What a tool said; where no prompt shows it, it comes after all. `called`: with its call."""
        shown = {message[4] for message in self.messages if message[0] == "tool"}
        if called:
            self.rest.append(said("assistant", None, [(call, "")]))
        elif call in shown or call not in self.replied:
            return
        if text is not None:
            self.rest.append(said("tool", text, result=call))

    @property
    def messages(self):
        return [message for _, message in self._nodes[1:]] + self.rest

    def into(self, counts):
        counts.steps += self.steps
        counts.messages += len(self.messages)
        counts.tool_calls += sum(len(message[2]) for message in self.messages)
        counts.tool_results += sum(message[0] == "tool" for message in self.messages)
        counts.reasoning += sum(message[3] for message in self.messages)
        counts.characters += sum(len(message[1] or "") for message in self.messages)


def shaped(message):
    """A message of OpenAI, Anthropic, Gemini or LangChain as tuples: results of tools stand before what is said."""
    if isinstance(message, str):
        return [said("user", message)]
    message = {**message.get("kwargs", {}), "class": message.get("id", [""])[-1]} if "lc" in message else message
    role = {"model": "assistant", "H": "user", "S": "system", "A": "assistant"}
    role = role.get(message.get("role") or message["class"][0], message.get("role"))
    content = message.get("content")
    parts = message.get("parts") or (content if isinstance(content, list) else [])
    texts = [part["text"] for part in parts if "text" in part]
    calls = [(part["id"], part["name"]) for part in parts if part.get("type") == "tool_use"]
    for call in message.get("tool_calls") or []:
        calls.append((call["id"], call.get("name") or call["function"]["name"]))
    thought = any(part.get("type") == "thinking" for part in parts) or "reasoning_content" in message
    results = [
        said("tool", "".join(each["text"] for each in part["content"]), result=part["tool_use_id"])
        for part in parts
        if part.get("type") == "tool_result"
    ]
    text = content if isinstance(content, str) else "".join(texts) if texts else None
    return [*results, said(role, text, calls, thought, result=message.get("tool_call_id"))]

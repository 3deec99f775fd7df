"""Agents of tests."""

# It forgets: its second call does not go on from its first. And it samples as it likes.
FORGETFUL = """
import json, os, urllib.request
for text in ("One?", "Two?"):
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": "policy", "temperature": 0.3, "messages": messages}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})).read()
"""

"""Whether a command, a patch or a line of code writes, moves or deletes tests."""

from __future__ import annotations

import re

_BEGIN = r"(?:^|[\s/\"'=(`])"
_TEST_FILE = re.compile(
    rf"{_BEGIN}(?:test_[\w*?]+\.py|[\w*]+_test\.(?:py|go|cc|cpp|rs|rb)|[\w*-]+\.(?:test|spec)\.[jt]sx?|conftest\.py|"
    r"tests?/[\w./*?{},\[\]-]+|spec/[\w./*-]+|__tests__/[\w./*-]+|\w+Tests?\.java)(?!\w)"
)
_TEST_FOLDER = re.compile(rf"{_BEGIN}(?:tests|test/|specs?/|__tests__)/*(?=[\s\"'`;)|&]|$)")
_TEST_TREE = re.compile(rf"{_BEGIN}(?:tests?|specs?|__tests__)/*(?=[\s\"'`;)|&]|$)")
_WORDS = ("test", "spec", "Test")
_LEFTOVERS = re.compile(r"[^\s\"']*(?:__pycache__|\.pyc\b|\.pytest_cache)[^\s\"']*")
_TARGET = 400  # characters behind a command in which its target stands
_PARTS = re.compile(r"(?<=[\n;])|(?<=&&)|(?<=\|\|)")
_GIT = r"\bgit\s+(?:-C\s+\S+\s+)?"
# By what of the command's arguments counts: `into` the file named, `last` the last one, `tree` also bare folders.
_COMMAND = re.compile(
    r"(?<![<>&\d])>{1,2}\s*[\"']?(?P<into>[\w./*-]+)|"
    rf"(?P<checkout>{_GIT}checkout\s)|"
    rf"(?P<tree>\brm\s+(?:-\S+\s+)*-\w*[rR]\S*\s|\brmdir\s|{_GIT}rm\s)|"
    rf"(?P<folder>\bmv\s|{_GIT}(?:restore|mv)\s)|"
    r"(?P<file>\bsed\s+(?:-\w+\s+)*-i\S*\s|\b(?:tee|patch|rm|unlink|shred|truncate)\s|\bperl\s+-\w*i|\bdd\s)|"
    r"(?P<last>\b(?:cp|scp|rsync|ln)\s|^\s*(?:sudo\s+)?install\s)|"
    r"(?P<find>\bfind\s)"
)
_FIND_REMOVES = re.compile(
    r"\s-delete\b|-exec(?:dir)?\s+(?:rm|mv|sed|truncate|unlink)\b|\bxargs\s+(?:-\S+\s+)*(?:rm|mv)\b"
)
_FIND_NAMES = re.compile(r"-i?name\s+[\"']?\*?(?:test_|_?test\b|\.spec\b|\.test\b|conftest)")
_STREAM = re.compile(r"\d*[<>]|&\d")
_HEADERS = ("*** ", "+++ ", "--- ", "diff --git ", "rename ")
_PATCHED = re.compile(
    r"^[ \t]*(?:\*\*\* (?:(?:Update|Add|Delete) File|Move to): |\+\+\+ |--- |diff --git |rename (?:from|to) )"
    r"([^\n]{1,400})",
    re.MULTILINE,
)
_CODE = re.compile(
    r"\bopen\(\s*[rbf]?[\"']([^\"'\n]{1,200})[\"']\s*,\s*(?:mode\s*=\s*)?[\"'][rb]?[wax+]|"
    r"\b(?:os\.(?:remove|unlink|rename|replace|truncate)|shutil\.(?:rmtree|move)|"
    r"fs(?:\.promises)?\.(?:rm|rmdir|unlink|writeFile|rename|truncate)(?:Sync)?)\(\s*[rbf]?[\"']([^\"'\n]{1,200})[\"']|"
    r"\bPath\(\s*[rbf]?[\"']([^\"'\n]{1,200})[\"']\s*\)\.(?:write_text|write_bytes|unlink|rename|replace)\(|"
    r"\bshutil\.copy\w*\([^,\n]{1,200},\s*[rbf]?[\"']([^\"'\n]{1,200})[\"']"
)


def is_test(path: str) -> bool:
    """Whether a path names a test, or a folder of tests."""
    return _TEST_FILE.search(path) is not None or _TEST_FOLDER.search(path) is not None


def edited_by_patch(text: str) -> int | None:
    """Where a patch in the text names a test: unified diffs, and blocks of `*** Update File:` and their like."""
    if any(header in text for header in _HEADERS):
        for match in _PATCHED.finditer(text):
            if _TEST_FILE.search(match[1]):
                return match.start()
    return None


def edited_by_command(command: str) -> int | None:
    """Where a line of the command, or of code in it, writes, moves or deletes a test.

    Redirections count for the file that they write into, copies and links for the last of their arguments, and
    `git checkout` for what stands behind `--` or is a test's file.
    """
    if not any(word in command for word in _WORDS):
        return None
    begin = 0
    for line in _PARTS.split(command):
        for match in _COMMAND.finditer(line):
            if _is_edit(match, line):
                return begin + match.start()
        begin += len(line)
    for match in _CODE.finditer(command):
        path = next(each for each in match.groups() if each is not None)
        if is_test(path):
            return match.start()
    return None


def _is_edit(match: re.Match[str], line: str) -> bool:
    kind = match.lastgroup
    if kind == "into":
        return _TEST_FILE.search(match["into"]) is not None
    behind = _LEFTOVERS.sub("", line[match.end() - 1 : match.end() + _TARGET])
    if kind == "find":
        tests = is_test(behind) or _TEST_TREE.search(behind) or _FIND_NAMES.search(behind)
        return bool(tests) and _FIND_REMOVES.search(behind) is not None
    target = behind.partition("|")[0]
    if kind == "last":
        words = [word for word in target.split() if not _STREAM.match(word)]
        return len(words) > 1 and is_test(words[-1])
    if _TEST_FILE.search(target):
        return True
    if kind == "checkout":
        return _TEST_TREE.search(target.partition(" -- ")[2]) is not None
    if kind == "tree":
        return _TEST_TREE.search(target) is not None
    return kind == "folder" and _TEST_FOLDER.search(target) is not None

r"""Rules of curation: `when EXPRESSION then ACTION` over ended trajectories, `steps when ...` over their steps.

    when status == 'truncated' then exclude "ran out of turns"
    steps when finish_reason == 'length' then exclude "cut by length"
    when has label.check.loop then review "repeats itself" 0.8
    when task.difficulty >= 4 then tag hard
    when task.difficulty >= 4 then weight 2
    when reward >= 0.5 then ready

Rules are read from the first to the last. `tag` and `weight` take effect and the reading goes on (weights multiply);
the first `ready`, `exclude` or `review` that holds decides and ends it. Rules about trajectories and rules about steps
are read apart, each in its order. Pure: text in, checked rules out.

A rule is decided when something is written, so what changes by itself (`now`, `staleness`) is for a batch's `where` and
`max_staleness`, and what rules decide themselves (`ready`, `excluded`, `label.tag.*`, ...) is no field here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from agentworld.errors import QueryError
from agentworld.query.expression import Comparison, Expression, Membership, Now, conditions
from agentworld.query.fields import Subject
from agentworld.query.lexer import Token, tokenize
from agentworld.query.parser import elsewhere, parse

Action = Literal["ready", "exclude", "review", "tag", "weight"]
ACTIONS: tuple[Action, ...] = ("ready", "exclude", "review", "tag", "weight")
MAX_RULES = 100
MAX_REASON = 200
TAG = "tag."  # label.tag.NAME
WEIGHT = "weight"  # label.weight
_TAG_LENGTH = 64
_FORM = 'Write: when EXPRESSION then ready | exclude "REASON" | review "REASON" | tag NAME | weight NUMBER'
_TURNED: dict[Subject, str] = {
    "trajectories": "It is a field of trajectories: leave out `steps`",
    "steps": "It is a field of steps: write `steps when ...`",
}
_REFUSED = {
    "readiness": "Ask for what it is made of: status, reward, labels",
    "open": "Only what has ended is decided: leave it out",
    "complete": "Only what has ended is decided: leave it out",
    "ready": "Ask for what it is made of, such as: has reward",
    "excluded": "The rules decide that themselves",
    "excluded_reason": "The rules decide that themselves",
    "review": "The rules ask for reviews themselves",
    "staleness": "It changes as policies are published: give max_staleness to the batch",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `text`: the reason of exclude and review, the name of tag, else empty. `number`: a weight, or the worth
    of a review.
    """

    source: str
    subject: Subject
    when: Expression
    action: Action
    text: str = ""
    number: float = 1.0

    @property
    def decides(self) -> bool:
        """Whether the reading ends with it."""
        return self.action in ("ready", "exclude", "review")


def parse_rules(sources: tuple[str, ...] | list[str]) -> tuple[Rule, ...]:
    """The rules in order; QueryError names the rule, the position in it and what to write."""
    if len(sources) > MAX_RULES:
        raise QueryError(f"a policy has {len(sources)} rules, at most {MAX_RULES} are taken", path="rules")
    return tuple(_located(number, source) for number, source in enumerate(sources, 1))


def parse_rule(source: str) -> Rule:
    """One rule; QueryError names the position and what to write."""
    if not isinstance(source, str):
        raise _wrong(f"a rule must be a text, not a {type(source).__name__}", hint=_FORM)
    tokens = tokenize(source)
    subject: Subject = "trajectories"
    first = tokens[0]
    if _is(first, "steps"):
        subject, first = "steps", tokens[1]
    then = [index for index, token in enumerate(tokens) if _is(token, "then")]
    if not _is(first, "when") or not then:
        missing = "then" if _is(first, "when") else "when"
        raise _wrong(f"there is no {missing!r}", first.position, _FORM)
    begin, end = first.position + len("when"), tokens[then[-1]].position
    # Blanks keep the positions of errors right.
    try:
        expression = parse(" " * begin + source[begin:end], subject)
    except QueryError as error:
        other: Subject = "steps" if subject == "trajectories" else "trajectories"
        hint = _TURNED[other] if error.hint == elsewhere(other) else error.hint
        raise QueryError(error.message, path=error.path, hint=hint) from None
    for leaf in conditions(expression):
        name = leaf.field.field.name
        if name in _REFUSED:
            raise _wrong(f"{leaf.field} is no field of rules", hint=_REFUSED[name])
        if name == "label" and ((leaf.field.key or "").startswith(TAG) or leaf.field.key == WEIGHT):
            raise _wrong(f"{leaf.field} is no field of rules", hint="Rules set it themselves")
        if _names_now(leaf):
            raise _wrong("now is no value of rules", hint="It changes by itself: use it in the where of a batch")
    return _with_action(source, subject, expression, tokens[then[-1] + 1 :])


def _with_action(source: str, subject: Subject, when: Expression, rest: list[Token]) -> Rule:
    action = next((name for name in ACTIONS if _is(rest[0], name)), None)
    if action is None:
        shown = "the end" if rest[0].kind == "end" else repr(rest[0].text)
        raise _wrong(f"an action must follow then, not {shown},", rest[0].position, _FORM)
    what, *more = rest[1:]
    text, number = "", 1.0
    match action:
        case "exclude" | "review":
            if what.kind != "text" or not what.value.strip():
                raise _wrong(f"{action} needs its reason in quotes", what.position, _FORM)
            text = what.value.strip()
            if len(text) > MAX_REASON or not text.isprintable():
                raise _wrong(f"a reason is one line of up to {MAX_REASON} characters", what.position)
            if action == "review":
                number = 0.5
                if more[0].kind == "number":
                    number = _number(more.pop(0), 0.0)
        case "tag":
            text = what.text if what.kind == "name" else what.value if what.kind == "text" else ""
            if not text or len(text) > _TAG_LENGTH or not text.isprintable():
                raise _wrong(f"tag needs a name of up to {_TAG_LENGTH} characters", what.position, _FORM)
        case "weight":
            if what.kind != "number":
                raise _wrong("weight needs a number", what.position, _FORM)
            number = _number(what, 0.0)
        case "ready":
            more = rest[1:]
    if more[0].kind != "end":
        raise _wrong(f"unexpected {more[0].text!r}", more[0].position, _FORM)
    return Rule(source, subject, when, action, text, number)


def _number(token: Token, least: float) -> float:
    value = float(token.text)
    if not math.isfinite(value) or value < least or value > 1e6:
        raise _wrong(f"{token.text} is not from {least:g} to 1000000,", token.position)
    return value


def _names_now(leaf: Expression) -> bool:
    match leaf:
        case Comparison(_, _, Now()):
            return True
        case Membership(_, values):
            return any(isinstance(value, Now) for value in values)
        case _:
            return False


def _located(number: int, source: str) -> Rule:
    try:
        return parse_rule(source)
    except QueryError as error:
        message = error.message.removesuffix(" of the where expression")
        raise QueryError(f"rule {number}: {message}", path=f"rules[{number - 1}]", hint=error.hint) from None


def _is(token: Token, word: str) -> bool:
    return token.kind == "name" and token.text == word


def _wrong(message: str, position: int | None = None, hint: str | None = None) -> QueryError:
    where = "" if position is None else f" at position {position}"
    return QueryError(message + where, path="rule", hint=hint)

"""Recursive descent over the tokens: or, and, not, condition; bounded in length and depth."""

from __future__ import annotations

from agentworld.errors import QueryError
from agentworld.query.expression import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Flag,
    Has,
    Like,
    Membership,
    Not,
    Now,
    Operator,
    Value,
)
from agentworld.query.fields import Subject, find_field, nearest_field
from agentworld.query.lexer import Token, fault, tokenize
from agentworld.query.literals import CONSTANTS, checked, plain, read_literal
from agentworld.query.patterns import read_pattern
from agentworld.query.times import read_duration

MAX_DEPTH = 40
MAX_NODES = 500
_OPERATORS: dict[str, Operator] = {"==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED: dict[Operator, Operator] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WORDS = frozenset({"and", "or", "not", "in", "is", "like", "has", "now", *CONSTANTS})


def parse(source: str, subject: Subject) -> Expression:
    """The expression tree of `source` over steps or trajectories; QueryError names the position and what to write."""
    if not isinstance(source, str):
        raise QueryError(f"where must be a text, not a {type(source).__name__}", path="where")
    parser = _Parser(tokenize(source), subject)
    if parser.peek().kind == "end":
        raise fault("nothing to filter by", 0, "Leave where out to take everything")
    expression = parser.disjunction(0)
    parser.expect_end()
    return expression


def elsewhere(other: Subject) -> str:
    """What to do about a field that steps do not have and trajectories do, or the other way round."""
    return f"It is a field of {other}: list those with it"


class _Parser:
    def __init__(self, tokens: list[Token], subject: Subject) -> None:
        self._tokens = tokens
        self._next = 0
        self._nodes = 0
        self._subject = subject

    def peek(self) -> Token:
        return self._tokens[self._next]

    def expect_end(self) -> None:
        token = self.peek()
        if token.kind != "end":
            raise fault(f"unexpected {token.text!r}", token.position, "Join conditions with and or or")

    def disjunction(self, depth: int) -> Expression:
        items = [self._conjunction(depth)]
        while self._accept("or"):
            items.append(self._conjunction(depth))
        flat = [part for item in items for part in (item.items if isinstance(item, Disjunction) else [item])]
        return flat[0] if len(flat) == 1 else Disjunction(tuple(flat))

    def _conjunction(self, depth: int) -> Expression:
        items = [self._negation(depth)]
        while self._accept("and"):
            items.append(self._negation(depth))
        flat = [part for item in items for part in (item.items if isinstance(item, Conjunction) else [item])]
        return flat[0] if len(flat) == 1 else Conjunction(tuple(flat))

    def _negation(self, depth: int) -> Expression:
        position = self.peek().position
        if depth > MAX_DEPTH:
            raise fault(f"nested deeper than {MAX_DEPTH}", position)
        if self._accept("not"):
            return Not(self._negation(depth + 1))
        if self._accept("("):
            inner = self.disjunction(depth + 1)
            self._expect(")")
            return inner
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise fault(f"more than {MAX_NODES} conditions", position)
        return self._condition()

    def _condition(self) -> Expression:
        token = self.peek()
        if self._accept("has"):
            return self._presence()
        if token.kind in ("text", "number") or (token.kind == "name" and token.text in ("now", *CONSTANTS)):
            value = self._value()
            operator = self._operator()
            return self._comparison(self._field(self._take()), _FLIPPED[operator], value, token)
        field = self._field(self._take())
        if self._accept("is"):
            negated = self._accept("not")
            self._expect("null")
            return self._comparison(field, "!=" if negated else "==", None, token)
        if self._accept("not"):
            if self._accept("like"):
                return Not(self._like(field, token))
            self._expect("in", "in or like")
            return Not(self._membership(field))
        if self._accept("in"):
            return self._membership(field)
        if self._accept("like"):
            return self._like(field, token)
        if self.peek().text.lower() == "between":
            raise fault("there is no between,", self.peek().position, f"Write {field} >= LEAST and {field} <= MOST")
        if self.peek().text in _OPERATORS and self.peek().kind == "operator":
            operator = self._operator()
            literal = self.peek()
            return self._comparison(field, operator, self._value(), literal)
        if field.field.kind == "presence":
            raise fault(f"{field} is not true or false,", token.position, f"Ask for it: has {field}")
        if field.field.kind not in ("boolean", "json"):
            raise fault(
                f"{field} is a {field.field.kind}, not true or false,", token.position, f"Compare it: {field} == ..."
            )
        return Flag(field)

    def _presence(self) -> Has:
        bracket = self._accept("(")
        token = self._take()
        field = self._field(token)
        if bracket:
            self._expect(")")
        if field.field.kind == "boolean":
            raise fault(f"{field} is always there, true or false,", token.position, f"Leave has out: {field}")
        return Has(field)

    def _membership(self, field: FieldRef) -> Membership:
        self._expect("(")
        values = []
        while True:
            token = self.peek()
            values.append(checked(field, self._value(), token, exact=True))
            if self._accept(")"):
                return Membership(field, tuple(values))
            self._expect(",")

    def _like(self, field: FieldRef, name: Token) -> Like:
        token = self._take()
        if token.kind != "text":
            raise self._unexpected(token, "a pattern in quotes")
        if field.field.kind not in ("text", "json"):
            raise fault(f"{field} is a {field.field.kind}, no text that is like a pattern,", name.position)
        return Like(field, plain(field, read_pattern(token), token))

    def _comparison(self, field: FieldRef, operator: Operator, value: Value, token: Token) -> Comparison:
        exact = operator in ("==", "!=")
        if not exact and (value is None or isinstance(value, bool) or field.field.kind == "boolean"):
            raise fault(f"{operator} does not order {token.text!r}", token.position, "Use == or !=")
        return Comparison(field, operator, checked(field, value, token, exact))

    def _value(self) -> Value:
        token = self._take()
        if token.kind in ("text", "number") or (token.kind == "name" and token.text in CONSTANTS):
            return read_literal(token)
        if token.kind == "name" and token.text == "now":
            return self._now()
        if token.kind == "name":
            raise fault(
                f"a value must follow, not {token.text!r},", token.position, f"Put text in quotes: '{token.text}'"
            )
        if token.kind == "duration":
            raise fault(f"{token.text} is a duration, no moment,", token.position, f"Write now - {token.text}")
        raise self._unexpected(token, "a value")

    def _now(self) -> Now:
        for sign in "-+":
            if self._accept(sign):
                token = self._take()
                if token.kind != "duration":
                    raise self._unexpected(token, "a duration such as 90s, 30m, 2h, 7d or 1w")
                seconds = read_duration(token)
                return Now(seconds if sign == "+" else 0.0 - seconds)  # Never -0.0.
        token = self.peek()
        if token.kind == "number" and token.text.startswith("-"):
            raise fault(f"{token.text[1:]} has no unit,", token.position + 1, f"Write now - {token.text[1:]}s")
        return Now()

    def _field(self, token: Token) -> FieldRef:
        if token.kind != "name" or token.text in _WORDS:
            raise self._unexpected(token, "a field")
        found = find_field(token.pieces, self._subject)
        if found is None:
            other: Subject = "steps" if self._subject == "trajectories" else "trajectories"
            near = nearest_field(token.pieces, self._subject)
            if find_field(token.pieces, other) is not None:
                hint = elsewhere(other)
            else:
                hint = f"Did you mean {near}?" if near else "The field table is in the documentation of where"
            raise fault(f"{self._subject} have no field {token.text!r},", token.position, hint)
        return FieldRef(*found)

    def _operator(self) -> Operator:
        token = self._take()
        if token.kind != "operator" or token.text not in _OPERATORS:
            raise self._unexpected(token, "a comparison such as == or <=")
        return _OPERATORS[token.text]

    def _take(self) -> Token:
        token = self.peek()
        if token.kind != "end":
            self._next += 1
        return token

    def _accept(self, text: str) -> bool:
        token = self.peek()
        if token.text == text and token.kind in ("name", "operator"):
            self._next += 1
            return True
        return False

    def _expect(self, text: str, wanted: str | None = None) -> None:
        token = self.peek()
        if not self._accept(text):
            raise self._unexpected(token, wanted or repr(text))

    def _unexpected(self, token: Token, wanted: str) -> QueryError:
        shown = "the end" if token.kind == "end" else repr(token.text)
        return fault(f"{wanted} must stand there, not {shown},", token.position)

"""Recursive descent over the tokens: or, and, not, comparison; bounded in length and depth."""

from __future__ import annotations

import math

from agentworld.errors import QueryError
from agentworld.query.expression import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Flag,
    Membership,
    Not,
    Operator,
    Value,
)
from agentworld.query.fields import Subject, find_field, nearest_field
from agentworld.query.lexer import Token, fault, tokenize

MAX_DEPTH = 40
MAX_NODES = 500
_OPERATORS: dict[str, Operator] = {"==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED: dict[Operator, Operator] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None}
_WORDS = frozenset({"and", "or", "not", "in", "is", *_CONSTANTS})


def parse(source: str, subject: Subject) -> Expression:
    """The expression tree of `source` over steps or trajectories; QueryError names the position and what to write."""
    parser = _Parser(tokenize(source), subject)
    if parser.peek().kind == "end":
        raise fault("nothing to filter by", 0, "Leave where out to take everything")
    expression = parser.disjunction(0)
    parser.expect_end()
    return expression


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
        return items[0] if len(items) == 1 else Disjunction(tuple(items))

    def _conjunction(self, depth: int) -> Expression:
        items = [self._negation(depth)]
        while self._accept("and"):
            items.append(self._negation(depth))
        return items[0] if len(items) == 1 else Conjunction(tuple(items))

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
        token = self._take()
        if token.kind in ("text", "number") or token.text in _CONSTANTS:
            value = self._literal(token)
            operator = self._operator()
            field = self._field(self._take())
            return self._comparison(field, _FLIPPED[operator], value, token)
        field = self._field(token)
        if self._accept("is"):
            negated = self._accept("not")
            self._expect("null")
            return Comparison(field, "!=" if negated else "==", None)
        if self._accept("not"):
            self._expect("in")
            return Not(self._membership(field))
        if self._accept("in"):
            return self._membership(field)
        if self.peek().text in _OPERATORS and self.peek().kind == "operator":
            operator = self._operator()
            found = self._take()
            return self._comparison(field, operator, self._literal(found), found)
        if field.field.kind not in ("boolean", "json"):
            raise fault(
                f"{field} is a {field.field.kind}, not true or false,", token.position, f"Compare it: {field} == ..."
            )
        return Flag(field)

    def _membership(self, field: FieldRef) -> Membership:
        self._expect("(")
        values = []
        while True:
            token = self._take()
            values.append(self._checked(field, self._literal(token), token))
            if self._accept(")"):
                return Membership(field, tuple(values))
            self._expect(",")

    def _comparison(self, field: FieldRef, operator: Operator, value: Value, token: Token) -> Comparison:
        if operator not in ("==", "!=") and (value is None or isinstance(value, bool) or field.field.kind == "boolean"):
            raise fault(f"{operator} does not order {token.text!r}", token.position, "Use == or !=")
        return Comparison(field, operator, self._checked(field, value, token))

    def _checked(self, field: FieldRef, value: Value, token: Token) -> Value:
        kind = field.field.kind
        wanted: dict[str, type | tuple[type, ...]] = {"text": str, "number": (int, float), "boolean": bool}
        if value is None or kind == "json":
            return value
        if not isinstance(value, wanted[kind]) or (kind == "number" and isinstance(value, bool)):
            article = {"text": "a text in quotes", "number": "a number", "boolean": "true or false"}[kind]
            raise fault(f"{field} compares with {article}, not with {token.text!r},", token.position)
        return value

    def _literal(self, token: Token) -> Value:
        if token.kind == "text":
            return token.text
        if token.kind == "number":
            number = float(token.text)
            if not math.isfinite(number):
                raise fault(f"{token.text} is too large a number", token.position)
            whole = token.text.lstrip("-").isdigit() and abs(number) < 2**63
            return int(token.text) if whole else number
        if token.kind == "name" and token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        if token.kind == "name":
            raise fault(
                f"a value must follow, not {token.text!r},", token.position, f"Put text in quotes: '{token.text}'"
            )
        raise self._unexpected(token, "a value")

    def _field(self, token: Token) -> FieldRef:
        if token.kind != "name" or token.text in _WORDS:
            raise self._unexpected(token, "a field")
        found = find_field(token.text, self._subject)
        if found is None:
            other: Subject = "steps" if self._subject == "trajectories" else "trajectories"
            near = nearest_field(token.text, self._subject)
            if find_field(token.text, other) is not None:
                hint = f"It is a field of {other}: list those with it"
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

    def _expect(self, text: str) -> None:
        token = self.peek()
        if not self._accept(text):
            raise self._unexpected(token, repr(text))

    def _unexpected(self, token: Token, wanted: str) -> QueryError:
        shown = "the end" if token.kind == "end" else repr(token.text)
        return fault(f"{wanted} must stand there, not {shown},", token.position)

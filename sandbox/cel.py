# SPDX-License-Identifier: Apache-2.0
"""CEL as ValidatingAdmissionPolicies use it: parsing and evaluation, without CEL's type checker.

Values are those of JSON, quantities, types and optionals. Everything is dynamic: what a real server's checker refuses at creation comes
out here when it is evaluated. Not understood, and refused when parsed: messages, bytes, timestamps, regular expressions, arithmetic but
for +, and functions that are not in _METHODS and _FUNCTIONS. Pure functions; any thread.
"""

import functools
import re

import quantity

_TOKEN = re.compile(r"""\s*(?:(?P<number>\d+\.\d+|\d+)|(?P<name>[A-Za-z_]\w*)
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<op>==|!=|<=|>=|&&|\|\||[-+<>!?:.,()\[\]{}]))""", re.X | re.S)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


class CelError(Exception):
    """A mistake in an expression, or in what it is evaluated on."""


class Type:
    def __init__(self, name):
        self.name = name


TYPES = {name: Type(name) for name in ("int", "double", "string", "bool", "list", "map", "null_type", "quantity")}


class Optional:
    """A value that may be missing."""

    def __init__(self, *value):
        self.value = value


def type_of(value):
    for kinds, name in (((bool,), "bool"), ((int,), "int"), ((float,), "double"), ((str,), "string"), ((list,), "list"),
                        ((dict,), "map"), ((quantity.Quantity,), "quantity")):
        if isinstance(value, kinds):
            return TYPES[name]
    if value is None:
        return TYPES["null_type"]
    raise CelError(f"no such overload: type({value})")


def same(left, right):
    """==, where a bool is no number."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right))
    return left == right


def _want(value, *kinds):
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return value
    raise CelError("no such overload")


def _find(where, key):
    """An Optional of where[key]."""
    if isinstance(where, dict):
        return Optional(where[key]) if key in where else Optional()
    if isinstance(where, list) and isinstance(key, int):
        return Optional(where[key]) if 0 <= key < len(where) else Optional()
    raise CelError(f"no such key: {key}")


def select(where, key, is_optional=False):
    """where.key, where[key], and their forms with a question mark; from an optional it is an optional again."""
    if isinstance(where, Optional):
        return _find(where.value[0], key) if where.value else where
    found = _find(where, key)
    if is_optional:
        return found
    if not found.value:
        raise CelError(f"no such key: {key}" if isinstance(where, dict) else f"index out of bounds: {key}")
    return found.value[0]


def _quantity(text):
    try:
        return quantity.parse(_want(text, str))
    except quantity.QuantityError as error:
        raise CelError(str(error)) from None


def _is_quantity(text):
    try:
        quantity.parse(_want(text, str))
        return True
    except quantity.QuantityError:
        return False


def _string(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_want(value, str, int))


def _int(value):
    try:
        return int(_want(value, str, int, float))
    except ValueError:
        raise CelError("type conversion error from string to int") from None


def _or_value(receiver, other):
    return receiver.value[0] if _want(receiver, Optional).value else other


def _compare(left, right):
    return (_want(right, quantity.Quantity) < _want(left, quantity.Quantity)) - (left < right)


_FUNCTIONS = {("size", 1): lambda v: len(_want(v, str, list, dict)), ("type", 1): type_of, ("dyn", 1): lambda v: v,
              ("string", 1): _string, ("int", 1): _int, ("quantity", 1): _quantity, ("isQuantity", 1): _is_quantity}
_METHODS = {("orValue", 1): _or_value, ("hasValue", 0): lambda o: bool(_want(o, Optional).value),
            ("size", 0): lambda v: len(_want(v, str, list, dict)),
            ("startsWith", 1): lambda s, t: _want(s, str).startswith(_want(t, str)),
            ("endsWith", 1): lambda s, t: _want(s, str).endswith(_want(t, str)),
            ("contains", 1): lambda s, t: _want(t, str) in _want(s, str),
            ("compareTo", 1): _compare, ("isGreaterThan", 1): lambda a, b: _compare(a, b) > 0,
            ("isLessThan", 1): lambda a, b: _compare(a, b) < 0}
_MACROS = ("all", "exists", "filter", "map")


def _tokens(text):
    at, out = 0, []
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if not match:
            raise CelError(f"Syntax error: token recognition error at: '{text[at:at + 20]}'")
        out.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return out + [("end", "")]


class _Parser:
    """Recursive descent; every method returns a function of the variables (a dict)."""

    def __init__(self, text, names):
        self.tokens, self.at, self.names = _tokens(text), 0, set(names)
        self.selected = None  # the last a.b: a, b, and where it ends

    def take(self, *ops):
        kind, text = self.tokens[self.at]
        if kind == "op" and text in ops or kind == "name" and text in ops and text == "in":
            self.at += 1
            return text
        return None

    def expect(self, op):
        if not self.take(op):
            raise CelError(f"Syntax error: '{self.tokens[self.at][1]}' where '{op}' is expected")

    def name(self):
        kind, text = self.tokens[self.at]
        if kind != "name":
            raise CelError(f"Syntax error: '{text}' where a name is expected")
        self.at += 1
        return text

    def expression(self):
        condition = self.logic("||")
        if not self.take("?"):
            return condition
        yes = self.logic("||")
        self.expect(":")
        no = self.expression()
        return lambda v: (yes if _want(condition(v), bool) else no)(v)

    def logic(self, op):
        terms = [self.logic("&&") if op == "||" else self.relation()]
        while self.take(op):
            terms.append(self.logic("&&") if op == "||" else self.relation())
        return terms[0] if len(terms) == 1 else lambda v: _decide(terms, op == "||", v)

    def relation(self):
        left = self.sum()
        while True:
            op = self.take("==", "!=", "<=", ">=", "<", ">", "in")
            if not op:
                return left
            left = _relation(op, left, self.sum())

    def sum(self):
        left = self.unary()
        while self.take("+"):
            left = _sum(left, self.unary())
        return left

    def unary(self):
        if self.take("!"):
            operand = self.unary()
            return lambda v: not _want(operand(v), bool)
        if self.take("-"):
            operand = self.unary()
            return lambda v: -_want(operand(v), int, float)
        return self.member()

    def member(self):
        value = self.primary()
        while True:
            if self.take("."):
                is_optional = bool(self.take("?"))
                name = self.name()
                if self.take("("):
                    value = self.method(value, name)
                else:
                    self.selected = None if is_optional else (value, name, self.at)
                    value = _selection(value, lambda v, name=name: name, is_optional)
            elif self.take("["):
                is_optional = bool(self.take("?"))
                value = _selection(value, self.expression(), is_optional)
                self.expect("]")
            else:
                return value

    def primary(self):
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            number = float(text) if "." in text else int(text)
            return lambda v: number
        if kind == "string":
            string = re.sub(r"\\(.)", lambda m: _ESCAPES[m[1]], text[1:-1], flags=re.S)
            return lambda v: string
        if kind == "name":
            return self.named(text)
        if text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if text == "[":
            items = self.list("]")
            return lambda v: [i(v) for i in items]
        raise CelError(f"Syntax error: '{text}' where an expression is expected")

    def named(self, name):
        if name in ("true", "false", "null"):
            value = {"true": True, "false": False, "null": None}[name]
            return lambda v: value
        if name == "has" and self.take("("):
            return self.has()
        if self.take("("):
            args = self.list(")")
            function = _FUNCTIONS.get((name, len(args)))
            if not function:
                raise CelError(f"undeclared reference to '{name}'")
            return lambda v: function(*[a(v) for a in args])
        if name in self.names:
            return lambda v: v[name]
        if name in TYPES:
            return lambda v: TYPES[name]
        raise CelError(f"undeclared reference to '{name}'")

    def has(self):
        self.member()
        if not self.selected or self.selected[2] != self.at:
            raise CelError("invalid argument to has() macro")
        operand, name, _ = self.selected
        self.expect(")")
        return lambda v: bool(_find(operand(v), name).value)

    def list(self, close):
        out = []
        while not self.take(close):
            out.append(self.expression())
            if not self.take(","):
                self.expect(close)
                break
        return out

    def method(self, receiver, name):
        if name in _MACROS:
            return self.macro(receiver, name)
        args = self.list(")")
        function = _METHODS.get((name, len(args)))
        if not function:
            raise CelError(f"undeclared reference to '{name}'")
        return lambda v: function(receiver(v), *[a(v) for a in args])

    def macro(self, receiver, name):
        variable = self.name()
        self.expect(",")
        is_new = variable not in self.names
        self.names.add(variable)
        body = self.expression()
        if is_new:
            self.names.discard(variable)
        self.expect(")")

        def run(v):
            items = list(_want(receiver(v), list, dict))
            each = [lambda v, item=item: body({**v, variable: item}) for item in items]
            if name == "map":
                return [e(v) for e in each]
            if name == "filter":
                return [item for item, e in zip(items, each) if _want(e(v), bool)]
            return _decide(each, name == "exists", v)
        return run


def _selection(where, key, is_optional):
    return lambda v: select(where(v), key(v), is_optional)


def _sum(left, right):
    def run(v):
        a, b = left(v), right(v)
        if type(a) is not type(b) or not isinstance(a, (str, int, float, list)):
            raise CelError("no such overload")
        return a + b
    return run


def _relation(op, left, right):
    def run(v):
        a, b = left(v), right(v)
        if op in ("==", "!="):
            return same(a, b) == (op == "==")
        if op == "in":
            return any(same(a, x) for x in _want(b, list, dict))
        if not (isinstance(a, (int, float)) and isinstance(b, (int, float)) or type(a) is type(b) and isinstance(a, str)):
            raise CelError("no such overload")
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]
    return run


def _decide(terms, deciding, v):
    """&& and ||: a side that decides wins over the other's error."""
    error = None
    for term in terms:
        try:
            if _want(term(v), bool) == deciding:
                return deciding
        except CelError as failure:
            error = error or failure
    if error:
        raise error
    return not deciding


@functools.lru_cache(1024)
def compile_(text, names):
    """A function of a dict of these variables. CelError: it cannot be understood."""
    parser = _Parser(text, names)
    out = parser.expression()
    if parser.tokens[parser.at][0] != "end":
        raise CelError(f"Syntax error: '{parser.tokens[parser.at][1]}' where the end is expected")
    return out

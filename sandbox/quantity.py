# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities as the API server reads and rewrites them.

Owns parsing, the canonical form and exact arithmetic (integers of 1e-9). Pure functions without state, safe from
any thread. Rules: reference/dra.md 4.3; the rewritten forms are those of tests/conformance/sandbox/18-normalisation.
"""

import re

NANO = 10 ** 9
REGEX_MESSAGE = ("quantities must match the regular expression "
                 "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_BY_EXP = {exp: suffix for suffix, exp in _DECIMAL.items()}
_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(.*)\Z", re.S)


class QuantityError(ValueError):
    """The text is not a quantity; str() is the API server's wording."""


class Quantity:
    """An exact amount in 1e-9 units plus the notation it was written in."""

    __slots__ = ("nano", "form", "exp_char")

    def __init__(self, nano, form="decimal", exp_char="e"):
        self.nano = nano
        self.form = form
        self.exp_char = exp_char

    def __eq__(self, other):
        return isinstance(other, Quantity) and self.nano == other.nano

    def __lt__(self, other):
        return self.nano < other.nano

    def __le__(self, other):
        return self.nano <= other.nano

    def __hash__(self):
        return hash(self.nano)

    def __add__(self, other):
        return Quantity(self.nano + other.nano, self.form, self.exp_char)

    def __str__(self):
        nano, sign = abs(self.nano), "-" if self.nano < 0 else ""
        if nano == 0:
            return "0"
        if self.form == "binary" and nano % NANO == 0 and nano >= 1024 * NANO:
            value = nano // NANO
            for suffix, shift in reversed(_BINARY.items()):
                if value % (1 << shift) == 0:
                    return f"{sign}{value >> shift}{suffix}"
            return f"{sign}{value}"
        exp = -9
        while nano % 1000 == 0 and exp < 18:
            nano //= 1000
            exp += 3
        if self.form == "exponent":
            return f"{sign}{nano}" + (f"{self.exp_char}{exp}" if exp else "")
        return f"{sign}{nano}{_DECIMAL_BY_EXP[exp]}"


def parse(text):
    """Reads a quantity. Raises QuantityError with the API server's message."""
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise QuantityError(REGEX_MESSAGE)
    text = str(text)
    if text == "":
        raise QuantityError(REGEX_MESSAGE)
    sign, whole, frac, suffix = _FORM.match(text).groups()
    digits = whole + (frac or "")
    if not digits:
        raise QuantityError(REGEX_MESSAGE)
    form, shift, exp, exp_char = "decimal", 0, 0, "e"
    if suffix in _BINARY:
        form, shift = "binary", _BINARY[suffix]
    elif suffix in _DECIMAL:
        exp = _DECIMAL[suffix]
    elif re.fullmatch(r"[eE][+-]?[0-9]{1,9}", suffix):
        form, exp, exp_char = "exponent", int(suffix[1:]), suffix[0]
        if abs(exp) > 60:
            raise QuantityError("unable to parse quantity's suffix")
    elif re.fullmatch(r"[eEinumkKMGTP]*[-+]?[0-9]*", suffix):
        raise QuantityError("unable to parse quantity's suffix")
    else:
        raise QuantityError(REGEX_MESSAGE)
    numerator = int(digits) << shift
    power = 9 + exp - len(frac or "")
    if power >= 0:
        nano = numerator * 10 ** power
    else:
        divisor = 10 ** -power
        nano = -(-numerator // divisor)
    if form == "binary" and 0 < nano < 1024 * NANO:
        form = "decimal"
    limit = ((1 << 63) - 1) * NANO
    nano = min(nano, limit)
    return Quantity(-nano if sign == "-" else nano, form, exp_char)

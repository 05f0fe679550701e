# SPDX-License-Identifier: Apache-2.0
"""The sandbox's CEL for admission policies (sandbox/cel.py), against the language's definition."""

import pathlib
import sys
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "sandbox"))
sys.dont_write_bytecode = True
import cel  # noqa: E402

OBJECT = {"spec": {"nodeName": "n", "count": 2, "list": [1, 2, 3], "map": {"a": 1}, "none": None}, "labels": {"x.y/z": "16Gi"}}


def evaluate(text):
    return cel.compile_(text, ("object",))({"object": OBJECT})


class Cel(unittest.TestCase):
    def test_values(self):
        for text, value in (
                ("1 + 2 == 3 && !false", True), ("'a' + \"b\"", "ab"), ("object.spec.count > 1 ? 'many' : 'one'", "many"),
                ("'b' in ['a', 'b']", True), ("'a' in object.spec.map", True), ("object.spec.list[1]", 2), ("object['labels']['x.y/z']", "16Gi"),
                ("size(object.spec.list) + 'abc'.size()", 6), ("-1 < 0", True), ("'abc'.startsWith('a') && 'abc'.contains('bc')", True),
                ("object.spec.list.map(i, i + 1)", [2, 3, 4]), ("object.spec.list.filter(i, i != 2)", [1, 3]),
                ("object.spec.list.all(i, i > 0) && object.spec.list.exists(i, i == 3)", True), ("object.spec.map.all(k, k == 'a')", True),
                ("[1, 2].map(i, [3, 4].map(j, i + j))", [[4, 5], [5, 6]]), ("string(5) + 'x'", "5x"), ("null == object.spec.none", True),
                ("quantity('1Gi').compareTo(quantity('1024Mi'))", 0), ("quantity('1').isLessThan(quantity('1k'))", True),
                ("isQuantity('16Gi') && !isQuantity('lots')", True), ("type(1) == int && type('') == string && type([]) != map", True),
                ("1 == true", False), ("dyn(object).spec.count", 2), ("'it\\'s'", "it's"), ("1 == 1.0", True)):
            with self.subTest(text):
                self.assertEqual(evaluate(text), value)

    def test_what_may_be_missing(self):
        for text, value in (
                ("has(object.spec.nodeName) && !has(object.spec.other)", True), ("object.spec.?other.orValue('-')", "-"),
                ("object.?other.?deep.orValue(1)", 1), ("object.?other.deep.orValue(2)", 2), ("object.spec.?nodeName.hasValue()", True),
                ("object.labels[?'x.y/z'].orValue('')", "16Gi"), ("object.?none[?'k'][?0].orValue('')", ""), ("object.spec.list[?7].hasValue()", False)):
            with self.subTest(text):
                self.assertEqual(evaluate(text), value)

    def test_a_side_that_decides_wins_over_the_others_error(self):
        for text, value in (("object.other == 1 || true", True), ("true || object.other", True), ("object.other == 1 && false", False),
                            ("[1, 0].exists(i, i == 0 || object.other == 1)", True)):
            with self.subTest(text):
                self.assertEqual(evaluate(text), value)

    def test_mistakes_are_errors(self):
        for text, why in (
                ("object.other", "no such key: other"), ("has(object.other.deep)", "no such key: other"), ("object.spec.list[3]", "index out of bounds"),
                ("object.spec.nodeName.x", "no such key"), ("1 + 'a'", "no such overload"), ("1 < 'a'", "no such overload"), ("!1", "no such overload"),
                ("1 ? 2 : 3", "no such overload"), ("quantity('lots')", "quantities must match"), ("object.other == 1 || false", "no such key"),
                ("'abc'.all(c, true)", "no such overload"), ("true && 1", "no such overload")):
            with self.subTest(text), self.assertRaisesRegex(cel.CelError, why):
                evaluate(text)

    def test_what_it_does_not_know_is_refused_before_it_is_evaluated(self):
        for text in ("x == 1", "object.spec.matches()", "object.spec.nodeName.matches('n')", "foo(1)", "(1", "[1", "1 1", "object.", "has(object)",
                     "has(object.?spec)", "'open", "size()", "object.spec.list.all(1, true)", "quantity('1').sign()"):
            with self.subTest(text), self.assertRaises(cel.CelError):
                cel.compile_(text, ("object",))


if __name__ == "__main__":
    unittest.main()

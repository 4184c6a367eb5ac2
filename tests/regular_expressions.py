"""Finds every regular expression of the product and derives texts on which a backtracking engine is slow.

A match takes quadratic time or worse if a text can be divided between two repetitions in many ways, or if a long
repetition is tried again from every position. Either needs a text that repeats what a repetition accepts, after what
has to come before it and followed by what makes the match fail. All of these are read from the parsed pattern.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from msgspec import structs

# Not public, but there is no other parse tree. Type checkers do not know these modules.
code: Any = import_module("re._constants")
parser: Any = import_module("re._parser")

AnyPattern = re.Pattern[str] | re.Pattern[bytes]
# The methods called on each name.
Uses = Mapping[str, Set[str]]

_ANCHORED = frozenset(("match", "fullmatch"))
# A set of characters is represented by those of its members that other sets are likely to share.
_CHARACTERS = " a.0\n\tA_-<é中\u0301"
# Texts of one repeated character, which need no derivation.
_PRINTABLE = [chr(number) for number in range(32, 127)] + ["\n", "\t", "\r\n", "\u3000", "é", "中", "\u200b"]
_FAILING_ENDS = ("", "\0", "\n", "!", " x")
# By module, the function that compiles patterns from tables when they are first needed, and the name of these tables.
_COMPILED_LATER = {"sources.times.attached": ("_patterns", "_LANGUAGES")}
_SAMPLES_MAX = 12
_MOST = 10_000
_PUMPS = 200


class ProductPattern(NamedTuple):
    """A pattern, and whether it is only ever matched at the start of a text."""

    name: str
    pattern: AnyPattern
    is_anchored: bool


class _KeptPattern(NamedTuple):
    """A pattern of a module or class. `attribute` is the name by which it is used: empty inside a tuple or table."""

    name: str
    attribute: str
    pattern: AnyPattern


# -- collecting --------------------------------------------------------------------------------------------------------


def product_patterns(root: Path, packages: Iterable[str]) -> Iterator[ProductPattern]:
    """Yields the patterns that modules and classes keep, and those that functions pass to `re`."""
    texts = _module_texts(root, packages)
    kept = {module: list(_kept(module)) for module in texts}
    trees = _trees(texts, {pattern.attribute for patterns in kept.values() for pattern in patterns})
    uses = {module: _uses(tree) for module, tree in trees.items()}
    all_uses = _merged(uses.values())
    seen: set[tuple[object, int]] = set()
    for module in texts:
        own_uses = uses.get(module, {})
        passed = _passed(module, trees[module]) if "re" in own_uses else ()
        for name, pattern, methods in (*_kept_uses(kept[module], own_uses, all_uses), *passed):
            if (pattern.pattern, pattern.flags) not in seen:
                seen.add((pattern.pattern, pattern.flags))
                yield ProductPattern(name, pattern, bool(methods) and methods <= _ANCHORED)


def _module_texts(root: Path, packages: Iterable[str]) -> dict[str, str]:
    texts = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            relative = path.relative_to(root).with_suffix("")
            if relative.name != "__main__":
                texts[".".join(relative.parts).removesuffix(".__init__")] = path.read_text()
    return texts


def _trees(texts: Mapping[str, str], attributes: Set[str]) -> dict[str, ast.Module]:
    """Parses the modules that use `re` or one of these names. The others, most of them, would only take time."""
    words = re.compile(r"\b(?:re|" + "|".join(re.escape(name) for name in sorted(attributes) if name) + r")\b")
    return {module: ast.parse(text) for module, text in texts.items() if words.search(text)}


def _uses(tree: ast.Module) -> Uses:
    """Returns the methods called on each name, and `?` where a name is used in another way."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    owners = {id(node.value): node.attr for node in nodes if isinstance(node, ast.Attribute)}
    uses: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node.ctx, ast.Load):
            name = node.id if isinstance(node, ast.Name) else node.attr
            uses.setdefault(name, set()).add(owners.get(id(node), "?"))
    return {name: methods - {"pattern"} for name, methods in uses.items()}


def _merged(all_uses: Iterable[Uses]) -> Uses:
    merged: dict[str, set[str]] = {}
    for uses in all_uses:
        for name, methods in uses.items():
            merged.setdefault(name, set()).update(methods)
    return merged


def _kept(module: str) -> Iterator[_KeptPattern]:
    loaded = import_module(module)
    for name, value in vars(loaded).items():
        for attribute, pattern in _patterns_in(value, loaded, name):
            yield _KeptPattern(f"{module}.{name}", attribute, pattern)
    if module in _COMPILED_LATER:
        function, tables = (getattr(loaded, name) for name in _COMPILED_LATER[module])
        for number in range(len(tables)):
            for _, pattern in _patterns_in(structs.astuple(function(number)), loaded, ""):
                yield _KeptPattern(f"{module}.{function.__name__}", "", pattern)


def _kept_uses(
    kept: Iterable[_KeptPattern], own_uses: Uses, all_uses: Uses
) -> Iterator[tuple[str, AnyPattern, Set[str]]]:
    for name, attribute, pattern in kept:
        # A private name can mean another pattern in another module.
        uses = own_uses if attribute.startswith("_") else all_uses
        yield name, pattern, uses.get(attribute, frozenset())


def _patterns_in(value: object, module: ModuleType, name: str) -> Iterator[tuple[str, AnyPattern]]:
    """Yields patterns with the name by which they are used: none for those inside a tuple or table."""
    match value:
        case re.Pattern():
            yield name, value
        case dict():
            yield from _patterns_in(tuple(value.values()), module, "")
        case tuple() | list() | set() | frozenset():
            for inner in value:
                yield from _patterns_in(inner, module, "")
        case type() if value.__module__ == module.__name__:
            for attribute, inner in list(vars(value).items()):
                yield from _patterns_in(inner, module, attribute)


def _passed(module: str, tree: ast.Module) -> Iterator[tuple[str, AnyPattern, Set[str]]]:
    """Yields the patterns written in calls such as `re.sub`. What a pattern inserts from a variable becomes `a`."""
    later, _ = _COMPILED_LATER.get(module, ("", ""))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    functions = (function for function in functions if function.name != later)
    for node in (node for function in functions for node in ast.walk(function)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[pattern, *others]) if (
                method != "escape"
            ):
                text = _literal(pattern)
                assert text is not None, f"{module}:{node.lineno}: expected a pattern that is written in the call"
                flags = [argument for argument in others if "re." in ast.unparse(argument)]
                flags += [keyword.value for keyword in node.keywords if keyword.arg == "flags"]
                value = sum(eval(ast.unparse(flag), {"re": re}) for flag in flags)
                yield f"{module}:{node.lineno}", re.compile(text, value), frozenset((method,))


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | bytes() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_literal(part) or "a" for part in parts)
        case ast.FormattedValue():
            return "a"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (_literal(left) or "a") + (_literal(right) or "a")
    return None


# -- texts -------------------------------------------------------------------------------------------------------------


class AttackText(NamedTuple):
    start: str
    repeated: str
    end: str

    def of_length(self, chars: int) -> str:
        return self.start + self.repeated * max(1, chars // len(self.repeated)) + self.end


def attack_texts(pattern: AnyPattern) -> Iterator[AttackText]:
    """Yields every text once, the ones derived from the pattern first."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = parser.parse(text, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    texts = dict.fromkeys(
        AttackText(start, repeated, end)
        for start, repeated in _repetitions(list(tree), ("",), {})
        for end in _FAILING_ENDS
        if repeated
    )
    yield from texts
    for whole in _samples(list(tree), {}):
        for part in (whole, whole[:-1]):
            if part:
                yield AttackText("", part, "")
                yield AttackText("", part, "\0")
    for repeated in _PRINTABLE:
        yield AttackText("", repeated, "")
        yield AttackText("", repeated, "\0")
    for start in {start for start, _, _ in texts if start}:
        yield AttackText("", start, "")


def _repetitions(nodes: list[Any], starts: Iterable[str], groups: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Yields each repetition as what comes before it and what it repeats."""
    starts = tuple(starts)
    for index, (operator, argument) in enumerate(nodes):
        before = [start + sample for start in starts for sample in _samples(nodes[:index], groups)[:3]]
        for inner in inner_nodes(operator, argument):
            yield from _repetitions(inner, before, groups)
        if operator in (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT) and argument[1] > 1:
            pumps = _samples(list(argument[2]), groups)
            yield from ((start, pump) for start in before for pump in pumps)
            # The same, entered many times.
            yield from (("", start + pump * _PUMPS) for start in before for pump in pumps if start)


def inner_nodes(operator: Any, argument: Any) -> Iterator[list[Any]]:
    if operator in (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT):
        yield list(argument[2])
    elif operator is code.SUBPATTERN:
        yield list(argument[3])
    elif operator is code.ATOMIC_GROUP:
        yield list(argument)
    elif operator is code.BRANCH:
        yield from map(list, argument[1])
    elif operator in (code.ASSERT, code.ASSERT_NOT):
        yield list(argument[1])


def _samples(nodes: list[Any], groups: dict[int, str]) -> list[str]:
    """Returns texts that the nodes accept, with as few repetitions as possible."""
    texts = [""]
    for operator, argument in nodes:
        choices = _node_samples(operator, argument, groups) or [""]
        # Varies one node at a time: all combinations would be too many.
        varied = [text + choices[0] for text in texts] + [texts[0] + choice for choice in choices[1:]]
        texts = list(dict.fromkeys(varied))[:_SAMPLES_MAX]
    return texts


def _node_samples(operator: Any, argument: Any, groups: dict[int, str]) -> list[str]:
    if operator is code.LITERAL:
        return [chr(argument)]
    if operator is code.ANY:
        return ["a", " ", "."]
    if operator is code.NOT_LITERAL:
        return [character for character in _CHARACTERS if ord(character) != argument]
    if operator is code.IN:
        return list(islice(_members(argument), _SAMPLES_MAX))
    if operator in (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT):
        least, most, inner = argument
        counts = {min(max(least, 1), _MOST), min(most, 3), least}
        return [sample * count for count in sorted(counts, reverse=True) for sample in _samples(list(inner), groups)]
    if operator is code.BRANCH:
        return [sample for branch in argument[1] for sample in _samples(list(branch), groups)]
    if operator is code.GROUPREF:
        return [groups.get(argument, "")]
    if operator is code.SUBPATTERN:
        samples = _samples(list(argument[3]), groups)
        groups[argument[0]] = samples[0]
        return samples
    return _samples(list(argument), groups) if operator is code.ATOMIC_GROUP else [""]


def _members(items: list[Any]) -> Iterator[str]:
    literals = [chr(value) for operator, value in items if operator is code.LITERAL]
    ranges = [chr(value[0]) for operator, value in items if operator is code.RANGE]
    is_negated = any(operator is code.NEGATE for operator, _ in items)
    member = re.compile(_set_pattern(items), re.DOTALL)
    candidates = list(_CHARACTERS) if is_negated else [*_CHARACTERS, *literals, *ranges]
    return (character for character in dict.fromkeys(candidates) if member.fullmatch(character))


_CATEGORIES = {
    code.CATEGORY_DIGIT: r"\d",
    code.CATEGORY_NOT_DIGIT: r"\D",
    code.CATEGORY_SPACE: r"\s",
    code.CATEGORY_NOT_SPACE: r"\S",
    code.CATEGORY_WORD: r"\w",
    code.CATEGORY_NOT_WORD: r"\W",
}


def _set_pattern(items: list[Any]) -> str:
    parts = []
    for operator, value in items:
        match operator:
            case code.NEGATE:
                parts.append("^")
            case code.LITERAL:
                parts.append(re.escape(chr(value)))
            case code.RANGE:
                parts.append("-".join(re.escape(chr(end)) for end in value))
            case code.CATEGORY:
                parts.append(_CATEGORIES[value])
    return f"[{''.join(parts)}]"

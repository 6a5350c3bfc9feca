# SPDX-License-Identifier: Apache-2.0
"""Prints figures about the source tree: `python -m bench.house [FOLDER ...]`.

One column for each folder, so that two checkouts can be compared: the size of modules, how
much of them is imports and comments, protocols, settings classes, long constructors, and the
words that the project's texts avoid. It reads files and imports none of them, so it works on
a checkout whose requirements are not installed.

The figures about code are those of the programs (`common`, `extender`, `rebalancer`). Words
are counted in the programs, in all other Python, and in the pages for people: `a + b + c`.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import tokenize
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

PRODUCT: Final = ("common", "extender", "rebalancer")
OTHER_CODE: Final = ("simulator", "controlplane", "bench", "tests", "deploy")
SHORT_LINES: Final = 60
MAX_PARAMETERS: Final = 7
_OWN_NAME: Final = Path(__file__).name  # the list below would count itself

WORDS: Final = {
    "nobody, somebody, whoever": r"\b(?:nobody|somebody|whoever)\b",
    "anew": r"\banew\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "so long as": r"\bso long as\b",
    "is meant, unless told otherwise": r"\b(?:is|are) meant\b|\bunless told otherwise\b",
    # A comma, "for", up to four words and a verb: only a pattern, so it misses some.
    "for (because)": r",[\s#]+for\s+(?!example)(?:[\w'-]+\s+){1,4}?(?:is|are|was|were|has|have|had"
    r"|would|could|can|may|does|do|will|acts?|comes?|makes?|ranks?|demands?|brings?)\b",
    "look": r"\b_?look\b",
    "words": r"\b_?words\b",
}


@dataclass(frozen=True)
class Module:
    """One Python file, read once."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    @property
    def import_lines(self) -> int:
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)

    @property
    def comment_lines(self) -> int:
        """Count the lines with a comment; the license line at the top explains nothing."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        found = [token for token in tokens if token.type == tokenize.COMMENT]
        return sum("SPDX-License-Identifier" not in token.string for token in found)


@dataclass(frozen=True)
class House:
    """The source tree of one checkout."""

    folder: Path

    @cached_property
    def product(self) -> list[Module]:
        return [*self._modules(PRODUCT)]

    @cached_property
    def texts(self) -> tuple[str, str, str]:
        """The programs, all other Python, and the pages for people, each as one text."""
        pages = [*self.folder.glob("*.md"), *self.folder.glob("docs/**/*.md")]
        pages += self.folder.glob("deploy/**/*.md")
        others = [m.text for m in self._modules(OTHER_CODE) if m.path.name != _OWN_NAME]
        programs = [m.text for m in self.product]
        return "\n".join(programs), "\n".join(others), "\n".join(map(_read, pages))

    def _modules(self, names: Iterable[str]) -> Iterable[Module]:
        for name in names:
            for path in sorted((self.folder / name).rglob("*.py")):
                yield Module(path, _read(path))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def modules(house: House) -> str:
    return f"{len(house.product)}"


def median_length(house: House) -> str:
    return f"{statistics.median(m.lines for m in house.product if m.lines > 1):.0f}"


def short_files(house: House) -> str:
    return f"{sum(m.lines < SHORT_LINES and m.path.name != '__init__.py' for m in house.product)}"


def import_share(house: House) -> str:
    return _percent(sum(m.import_lines for m in house.product), house)


def comment_share(house: House) -> str:
    return _percent(sum(m.comment_lines for m in house.product), house)


def protocols(house: House) -> str:
    return f"{sum('Protocol' in _bases(node) for m in house.product for node in m.classes)}"


def settings(house: House) -> str:
    names = [node.name for m in house.product for node in m.classes]
    return f"{sum(name.endswith('Settings') for name in names)}"


def longest_constructor(house: House) -> str:
    count, name = max(_constructors(house))
    return f"{count} ({name})"


def long_constructors(house: House) -> str:
    return f"{sum(count > MAX_PARAMETERS for count, _ in _constructors(house))}"


def _percent(lines: int, house: House) -> str:
    return f"{100 * lines / sum(m.lines for m in house.product):.1f} %"


def _bases(node: ast.ClassDef) -> set[str]:
    """Return the last parts of the names of the base classes, `Protocol[T]` included."""
    roots = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return {ast.unparse(root).rpartition(".")[2] for root in roots}


def _constructors(house: House) -> list[tuple[int, str]]:
    """Return the number of parameters of every `__init__` that is written out."""
    return [
        (_parameters(item.args), node.name)
        for module in house.product
        for node in module.classes
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    ]


def _parameters(arguments: ast.arguments) -> int:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len(named) - 1  # without self


FIGURES: Final[dict[str, Callable[[House], str]]] = {
    "modules": modules,
    "median lines of a module": median_length,
    f"files under {SHORT_LINES} lines": short_files,
    "lines that import": import_share,
    "lines with a comment": comment_share,
    "protocols": protocols,
    "*Settings classes": settings,
    "most constructor parameters": longest_constructor,
    f"constructors with more than {MAX_PARAMETERS}": long_constructors,
}


def rows(houses: Sequence[House]) -> list[list[str]]:
    """Return the table: the name of each figure, and its value for each house."""
    table = [[title, *(figure(house) for house in houses)] for title, figure in FIGURES.items()]
    for title, pattern in WORDS.items():
        found = re.compile(pattern, re.IGNORECASE)
        table.append([f"word: {title}", *(_counted(found, house) for house in houses)])
    return table


def _counted(word: re.Pattern[str], house: House) -> str:
    return " + ".join(f"{len(word.findall(text))}" for text in house.texts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.house", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="*", type=Path, default=[Path()], help="checkouts")
    houses = [House(folder) for folder in parser.parse_args().folder]
    print(f"{'':38}" + "".join(f"  {house.folder.resolve().name:>24}" for house in houses))
    for title, *values in rows(houses):
        print(f"{title:38}" + "".join(f"  {value:>24}" for value in values))


if __name__ == "__main__":
    main()

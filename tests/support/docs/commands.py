# SPDX-License-Identifier: Apache-2.0
"""Commands on pages: what they call exists and understands its flags.

Our own programs are asked themselves: their real parser reads the arguments of the command, in
one process for all of them, and nothing is run after it. Tools of others are known by name,
and by the arguments that may follow; the files that they are given must be there.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import yaml

from evenkeel.commands import register
from evenkeel.shell import cli
from tests.support.docs.pages import Page
from tests.support.repository import DEPLOY, ROOT

_STARTS = re.compile(r"(?:\S*/)?(?:python3?|kubectl|helm|make|evenkeel)(?![\w.-])")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ENDS = frozenset({"|", "||", "&&", ";", "&"})
_REDIRECTS = frozenset({">", ">>", "<", "2>", "2>&1", "2>/dev/null"})
_PLACEHOLDER = re.compile(r"[<>…\[\]]|\.\.\.")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KUBECTL = _words(
    "annotate api-resources api-versions apply auth cluster-info config cordon create debug delete "
    "describe diff drain edit events exec explain expose get kustomize label logs patch "
    "port-forward proxy replace rollout run scale set taint top uncordon version wait"
)
HELM = _words(
    "create dependency diff get history install lint list package pull push repo rollback search "
    "show status template test uninstall upgrade verify version"
)
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
COMMAND = "evenkeel"
"""It reads its arguments with click."""
FOREIGN_MODULES = frozenset({"pip", "pytest", "venv"})
OTHERS = _words(
    "apt-get awk base64 cat cd chmod cp crictl curl cut diff docker echo export git go grep head "
    "journalctl jq kill kind kube-scheduler less ln ls mkdir mv openssl podman prometheus promtool "
    "rm rmdir scp sed sha256sum sleep sort ssh sudo systemctl tail tar tee umask uniq watch wc "
    "xargs"
)


@dataclass(frozen=True)
class Command:
    """One simple command and where it is."""

    place: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.arguments)


def commands(page: Page) -> Iterator[Command]:
    """Yield the commands of a page: of its blocks of code, and those in backticks."""
    for block in page.blocks:
        for number, line in command_lines(block.language, block.text):
            yield from _simple(f"{page}:{block.line + number}", line)
    for number, line in _indented(page.prose):
        yield from _simple(f"{page}:{number}", line)
    for number, span in page.spans():
        if _STARTS.match(span) and " " in span and not _PLACEHOLDER.search(span):
            # A program that is only named needs no arguments, even if running it does.
            named = re.fullmatch(r"\S*python3? -m \S+", span)
            yield from _simple(f"{page}:{number}", f"{span} --help" if named else span)


def problems(found: Sequence[Command]) -> list[str]:
    """Return what is wrong with commands, one line each."""
    wrong = [f"{c.place}: {c}: {why}" for c in found if (why := _wrong(c))]
    others = (*FOREIGN_MODULES, COMMAND)
    ours = [c for c in found if _module(c) and _module(c) not in others]
    asked = ask([_python(c) for c in ours])
    return wrong + [f"{c.place}: {c}: {why}" for c, why in zip(ours, asked, strict=True) if why]


def ask(calls: Sequence[tuple[str, tuple[str, ...]]]) -> list[str]:
    """Return for each module and its arguments what its parser objects to; empty if nothing."""
    if not calls:
        return []
    done = subprocess.run(
        [sys.executable, "-c", _ASKING],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    answers: list[str] = json.loads(done.stdout.splitlines()[-1])
    return answers


# Runs each module up to the moment when its parser has read the arguments. A module without a
# parser is only looked for: it would begin to work.
_ASKING = """
import argparse, contextlib, importlib.util, io, json, runpy, sys
from pathlib import Path

class Understood(BaseException):
    pass

original = argparse.ArgumentParser.parse_known_args

def reading(self, args=None, namespace=None):
    found = original(self, args, namespace)
    if not getattr(self, "_inner", False):
        if found[1]:
            self.error("unrecognized arguments: " + " ".join(found[1]))
        raise Understood
    return found

def inner(self, *args, **kwargs):
    made = original_add(self, *args, **kwargs)
    made._inner = True
    return made

original_add = argparse._SubParsersAction.add_parser
argparse.ArgumentParser.parse_known_args = reading
argparse._SubParsersAction.add_parser = inner

def source(module):
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        spec = importlib.util.find_spec(module + ".__main__")
    return None if spec is None else Path(spec.origin).read_text()

def verdict(module, arguments):
    text = source(module)
    if text is None:
        return "no such program"
    if "argparse" not in text:
        return "takes no arguments" if arguments else ""
    sys.argv = [module, *arguments]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            runpy.run_module(module, run_name="__main__", alter_sys=False)
    except Understood:
        return ""
    except SystemExit as ended:
        return said.getvalue().strip().splitlines()[-1] if ended.code else ""
    except Exception as error:
        return f"does not start: {error!r}"
    return "ended without reading its arguments"

import warnings
warnings.simplefilter("ignore")
print(json.dumps([verdict(module, arguments) for module, arguments in json.load(sys.stdin)]))
"""


def _indented(prose: str) -> Iterator[tuple[int, str]]:
    """Yield commands that stand as code without a fence: indented, after an empty line."""
    lines = prose.splitlines()
    for number, (before, line) in enumerate(pairwise(lines), start=2):
        if not before.strip() and line.startswith("    ") and _STARTS.match(line[4:]):
            yield number, line[4:]


def command_lines(language: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the commands of a block with their lines; lines that go on are joined."""
    joined = ""
    start = 0
    for number, line in enumerate(text.splitlines(), start=1):
        begins = _begins(language, line)
        if not joined and begins is None:
            continue
        start = start if joined else number
        joined += begins if begins is not None and not joined else line
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        yield start, joined
        joined = ""


def _begins(language: str, line: str) -> str | None:
    """Return the command that a line begins, None if it is output or a comment."""
    if line.startswith("$ "):
        return line[2:]
    if language in ("bash", "sh", "shell"):
        return line if line.strip() and not line.lstrip().startswith("#") else None
    return line if not language and _STARTS.match(line) else None


def _simple(place: str, line: str) -> Iterator[Command]:
    arguments: list[str] = []
    for word in shlex.split(line, comments=True):
        if word in _ENDS:
            yield from _command(place, arguments)
            arguments = []
        else:
            arguments.append(word)
    yield from _command(place, arguments)


def _command(place: str, arguments: list[str]) -> Iterator[Command]:
    while arguments and _ASSIGNMENT.match(arguments[0]):
        arguments = arguments[1:]
    for number, word in enumerate(arguments):
        if word in _REDIRECTS:
            arguments = arguments[:number]
            break
    if arguments:
        yield Command(place, tuple(arguments))


def _wrong(command: Command) -> str:
    name, rest = Path(command.arguments[0]).name, command.arguments[1:]
    if name in ("python", "python3") and _module(command) == COMMAND:
        return _evenkeel(_python(command)[1])
    if name in ("python", "python3"):
        return "" if _module(command) or rest == ("--version",) else "not `python -m …`"
    if name == "make":
        unknown = [w for w in rest if w not in _targets() and not _ASSIGNMENT.match(w)]
        return f"no target {unknown[0]}" if unknown else ""
    if name == "evenkeel" or (name == "kubectl" and rest[:1] == ("evenkeel",)):
        return _evenkeel(rest if name == "evenkeel" else rest[1:])
    if name == "kubectl":
        return _verb(rest, KUBECTL) or _missing(rest) or _unknown_object(rest)
    if name == "helm":
        return _verb(rest, HELM) or _missing_chart(rest) or _unknown_values(rest)
    return "" if name in OTHERS else "not a known command"


def _evenkeel(arguments: Sequence[str]) -> str:
    """Return what our own command objects to; its parser reads the arguments, nothing runs."""
    register(cli)
    context = None
    command: click.Command = cli
    left = list(arguments)
    try:
        while True:
            context = command.make_context(command.name, left, parent=context)
            if not isinstance(command, click.Group) or not (left := _rest(context)):
                return ""
            _, found, left = command.resolve_command(context, left)
            assert found is not None
            command = found
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        return ""
    except click.ClickException as error:
        return error.format_message()


def _rest(context: click.Context) -> list[str]:
    return [*context._protected_args, *context.args]


_SHIPPED = frozenset({"deployment", "daemonset", "configmap", "service", "lease", "namespace"})
_WITH_VALUE = frozenset({"-n", "--namespace", "--context", "--kubeconfig"})


def _verb(arguments: Sequence[str], known: frozenset[str]) -> str:
    left = list(arguments)
    while left and left[0].startswith("-"):
        left = left[2:] if left[0] in _WITH_VALUE else left[1:]
    if not left:
        return "" if arguments else "no verb"
    return "" if left[0] in known else f"no verb {left[0]}"


def _missing(arguments: Sequence[str]) -> str:
    """Return the first of our files that is named and not there."""
    given = [b for a, b in pairwise(arguments) if a in ("-f", "-k", "--filename")]
    given += [
        w.partition("=")[2] for w in arguments if w.startswith(("--filename=", "--kustomize="))
    ]
    if "kustomize" in arguments[:1]:
        given += [w for w in arguments[1:] if not w.startswith("-")]
    kustomized = {b for a, b in pairwise(arguments) if a == "-k"}
    ours = [path for path in given if path.split("/")[0] == "deploy"]
    for path in ours:
        if not (ROOT / path).exists():
            return f"no file {path}"
        folder = path in kustomized or "kustomize" in arguments[:1]
        if folder and not any((ROOT / path / name).exists() for name in KUSTOMIZATIONS):
            return f"no kustomization in {path}"
    return ""


def _unknown_object(arguments: Sequence[str]) -> str:
    """Return the first object that is called ours and that no manifest of ours makes."""
    slashed = [w.partition("/") for w in arguments if "/" in w]
    named = [name for kind, _, name in slashed if kind in _SHIPPED]
    named += [b for a, b in pairwise(arguments) if a in _SHIPPED]
    ours = [name for name in named if name.startswith("even")]
    return next((f"nothing named {name}" for name in ours if name not in _objects()), "")


def _missing_chart(arguments: Sequence[str]) -> str:
    ours = [w for w in arguments if w.removeprefix("./").startswith("deploy/")]
    return next((f"no file {w}" for w in ours if not (ROOT / w).exists()), "")


def _unknown_values(arguments: Sequence[str]) -> str:
    """Return the first `--set` whose key the chart's values do not have."""
    pairs = pairwise(arguments)
    given = [b for a, b in pairs if a in ("--set", "--set-string")]
    keys = [each.partition("=")[0] for text in given for each in text.split(",")]
    return next((f"no value {key}" for key in keys if not _is_value(key)), "")


def _is_value(key: str) -> bool:
    found = _values()
    for part in key.split("."):
        if not isinstance(found, dict) or (found and part not in found):
            return False
        # Below a block that is empty by default anything may be said.
        found = found.get(part, {})
    return True


@cache
def _objects() -> frozenset[str]:
    texts = [path.read_text() for path in DEPLOY.rglob("*.yaml")]
    # One Lease is not in a manifest: the program makes it.
    found = {name for text in texts for name in re.findall(r"\bname: ([a-z0-9-]+)\b", text)}
    return frozenset(found | {"evenkeel-rebalancer"})


@cache
def _values() -> object:
    path = DEPLOY / "helm" / "evenkeel" / "values.yaml"
    return yaml.safe_load(path.read_text()) if path.exists() else {}


@cache
def _targets() -> frozenset[str]:
    makefile = (ROOT / "Makefile").read_text()
    return frozenset(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))


def _module(command: Command) -> str:
    arguments = command.arguments
    python = Path(arguments[0]).name in ("python", "python3")
    return arguments[2] if python and len(arguments) > 2 and arguments[1] == "-m" else ""


def _python(command: Command) -> tuple[str, tuple[str, ...]]:
    return command.arguments[2], command.arguments[3:]

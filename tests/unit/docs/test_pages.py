# SPDX-License-Identifier: Apache-2.0
"""What the documentation says is what the code does.

Every check is also shown a page that is wrong, because a check that never fails proves nothing.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from common import __version__
from tests.support.docs import blocks as docs_blocks
from tests.support.docs import commands as docs_commands
from tests.support.docs import names as docs_names
from tests.support.docs import sentences as docs_sentences
from tests.support.docs.pages import Page, broken_links, pages, sample, slug, unreachable
from tests.support.repository import ROOT

PAGES = pages()
each_page = pytest.mark.parametrize("page", PAGES, ids=str)


@each_page
def test_every_link_leads_somewhere(page: Page) -> None:
    assert broken_links(page) == []


@each_page
def test_data_parses_and_configuration_loads(page: Page) -> None:
    assert docs_blocks.problems(page) == []


@each_page
def test_metrics_reasons_keys_and_files_exist(page: Page) -> None:
    assert docs_names.problems(page) == []


@each_page
def test_a_line_has_one_sentence(page: Page) -> None:
    assert docs_sentences.problems(page) == []


def test_every_command_exists_and_understands_its_flags() -> None:
    found = [command for page in PAGES for command in docs_commands.commands(page)]
    assert docs_commands.problems(found) == []


def test_every_page_is_reached_from_the_top() -> None:
    top = [page for page in PAGES if page.path.parent == ROOT]
    assert unreachable(PAGES, top) == []


def test_a_page_without_a_link_to_it_is_found() -> None:
    first = sample("[b](b.md) [x](https://example.org/c.md)", "a.md")
    others = [sample("[a](a.md)", "b.md"), sample("# c", "c.md")]
    assert unreachable([first, *others], [first]) == ["docs/c.md"]


def test_images_on_pages_are_of_this_version() -> None:
    texts = [page.text for page in PAGES if page.path.name != "CHANGELOG.md"]
    named = {tag for text in texts for tag in re.findall(r"evenkeel:(\d\S*)", text)}
    assert named == {__version__}


def test_there_is_something_to_check() -> None:
    """The readers of pages find what is there: a pattern that matches nothing finds no fault."""
    blocks = [block for page in PAGES for block in page.blocks]
    assert sum(block.language == "yaml" for block in blocks) > 10
    assert sum(1 for page in PAGES for _ in docs_commands.commands(page)) > 60
    assert sum(1 for page in PAGES for _ in page.links()) > 100
    assert sum("reason" in row.cells for page in PAGES for row in page.rows()) > 60


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[a](missing.md)", "missing.md: no such file"),
        ("see [a](load.md#nowhere)", "load.md#nowhere: no such heading"),
        ("[a](#nowhere)", "#nowhere: no such heading"),
        ("![a](missing.svg)", "missing.svg: no such file"),
        ('<img src="missing.png">', "missing.png: no such file"),
        ("[a]: missing.md", "missing.md: no such file"),
        ("[a](../../etc/passwd)", "no such file"),
        ("[a](mailto:someone)", "neither a page of ours nor of the web"),
        ("# A b, c!\n[a](#a-b-c) [`b`](load.md#overhead) [c](https://example.org/x)", ""),
        ("`[a](missing.md)`\n\n```\n[b](missing.md)\n```", ""),
    ],
)
def test_broken_links_are_found(text: str, why: str) -> None:
    found = broken_links(sample(text))
    assert (len(found) == 1 and why in found[0]) if why else found == []


@pytest.mark.parametrize(
    ("title", "anchor"),
    [
        ("weight: 6", "weight-6"),
        ("How `load` is judged", "how-load-is-judged"),
        ("Nothing happens: why?", "nothing-happens-why"),
        ("See [this](a.md) too", "see-this-too"),
    ],
)
def test_anchors_are_those_of_github(title: str, anchor: str) -> None:
    assert slug(title) == anchor


def test_the_second_heading_of_a_name_has_a_number() -> None:
    assert sample("# a\n# a\n").anchors == {"a", "a-1"}


@pytest.mark.parametrize(
    "text",
    [
        "One is here. Two is here.",
        "- It ends in `code`. `Code` begins the next.",
        "1. **A title.** One. Two.",
        "Is it so? **It is.**",
        "A quarter (25 %). [A link](load.md) follows.",
        "It goes. kube-scheduler stays.",
    ],
)
def test_lines_with_two_sentences_are_found(text: str) -> None:
    assert len(docs_sentences.problems(sample(f"# Title\n\n{text}\n"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "One is here.\nTwo is here.",
        "1. **Memory.** 5,000 nodes took v1.36.4, e.g. One, to `a. B`.",
        "- *A title.* One.",
        "| One. Two. |\n|---|\n| Three. Four. |",
        "```text\nOne. Two.\n```",
    ],
)
def test_lines_with_one_sentence_are_left_alone(text: str) -> None:
    assert docs_sentences.problems(sample(text)) == []


WRONG_COMMANDS = (
    ("```console\n$ make nonsense\n```", "no target nonsense"),
    ("```console\n$ python -m rebalancer --dry-runn\n```", "unrecognized arguments"),
    ("```console\n$ .venv/bin/python -m rebalancer --output xml\n```", "invalid choice"),
    ("```console\n$ python -m controlplane up --nods 3\n```", "unrecognized arguments"),
    ("```console\n$ python -m controlplane upp\n```", "invalid choice"),
    ("```console\n$ python -m rebalancr\n```", "no such program"),
    ("```console\n$ python -m rebalancer.report --all\n```", "takes no arguments"),
    ("```console\n$ python manage.py\n```", "not `python -m …`"),
    ("```console\n$ kubectl aply -f x.yaml\n```", "no verb aply"),
    ("```console\n$ kubectl -n evenkeel lgos deploy/x\n```", "no verb lgos"),
    ("```console\n$ kubectl apply -f deploy/none.yaml\n```", "no file deploy/none.yaml"),
    ("```console\n$ kubectl apply -k deploy/none\n```", "no file deploy/none"),
    ("```console\n$ kubectl apply -k deploy\n```", "no kustomization in deploy"),
    ("```console\n$ kubectl scale deployment/evenkel --replicas=0\n```", "nothing named evenkel"),
    ("```console\n$ kubectl edit configmap evenkeel-rebalncer\n```", "nothing named evenkeel-r"),
    ("```console\n$ helm instal x y\n```", "no verb instal"),
    ("```console\n$ helm install evenkeel deploy/helm/none\n```", "no file deploy/helm/none"),
    ("```console\n$ helm upgrade x y --set no.such=1\n```", "no value no.such"),
    ("```console\n$ kubctl get nodes\n```", "not a known command"),
    ("```sh\ncurl x \\\n  | nonsense\n```", "not a known command"),
    ("```\nkubectl gett pods\n```", "no verb gett"),
    ("run `make nonsense` now", "no target nonsense"),
    ("So:\n\n    make nonsense\n", "no target nonsense"),
    ("run `python -m extender --prot 1` now", "unrecognized arguments"),
)
GOOD_COMMANDS = (
    "```console\n$ make test SEED=7 # again\nmake nonsense is only output\n```",
    "```console\n$ KUBECONFIG=x python -m rebalancer --once \\\n    --dry-run > plan.txt\n```",
    "```console\n$ kubectl -n evenkeel get pods -o wide | grep -v Running\n```",
    "run `python -m simulator demo [--scenario S]` or `make`",
    "```text\nkubectl gett\n```",
)


@cache
def problems_of_samples() -> dict[str, list[str]]:
    """Ask about all of them at once: starting the programs is what takes time."""
    texts = [*(text for text, _ in WRONG_COMMANDS), *GOOD_COMMANDS]
    named = {f"docs/sample-{number}.md": text for number, text in enumerate(texts)}
    found = [
        command
        for name, text in named.items()
        for command in docs_commands.commands(sample(text, name.removeprefix("docs/")))
    ]
    reported = docs_commands.problems(found)
    return {
        text: [line for line in reported if line.startswith(f"{name}:")]
        for name, text in named.items()
    }


@pytest.mark.parametrize(("text", "why"), WRONG_COMMANDS)
def test_wrong_commands_are_found(text: str, why: str) -> None:
    found = problems_of_samples()[text]
    assert len(found) == 1
    assert why in found[0]


@pytest.mark.parametrize("text", GOOD_COMMANDS)
def test_good_commands_are_left_alone(text: str) -> None:
    assert problems_of_samples()[text] == []


HEAD = "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\n"


@pytest.mark.parametrize(
    ("language", "text", "why"),
    [
        ("yaml", "a: [", "does not parse"),
        ("json", "{a: 1}", "does not parse"),
        ("yaml", f"{HEAD}maxReschedulePod: 3", "did you mean maxReschedulePods?"),
        ("yaml", "mode: act\nmodus: act", "unknown key"),
        ("yaml", "reschedulingInterval: 30", "reschedulingInterval"),
        ("yaml", "overloaded: drop", "overloaded"),
        ("yaml", "kind: Scenario\napiVersion: evenkeel.io/v1alpha1\npool: []", "pool"),
        (
            "yaml",
            "kind: ConfigMap\ndata:\n  rebalancer.yaml: |\n"
            "    apiVersion: evenkeel.io/v1alpha1\n    kind: RebalancerConfiguration\n    mde: act",
            "unknown key",
        ),
        ("yaml", "kind: Kustomization\nresources: [../deploy/none]", "no file deploy/none"),
    ],
)
def test_wrong_data_is_found(language: str, text: str, why: str) -> None:
    found = docs_blocks.problems(sample(f"```{language}\n{text}\n```"))
    assert found
    assert why in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "metadata:\n  labels: {a: b}",
        "mode: observe\nmodes: {LoadBalancing: act}",
        "overloaded: filter",
        "extenders:\n  - urlPrefix: http://127.0.0.1:8888",
        f"{HEAD}---\nkind: Pod",
    ],
)
def test_good_data_is_left_alone(text: str) -> None:
    assert docs_blocks.problems(sample(f"```yaml\n{text}\n```")) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("`evenkeel_nodes_unknwn`", "no metric evenkeel_nodes_unknwn"),
        ("```promql\nrate(evenkeel_evictions[1m])\n```", "no metric evenkeel_evictions"),
        ("| reason | x |\n|---|---|\n| `TooYuong` | |", "no reason TooYuong"),
        ("| x | outcome |\n|---|---|\n| | `AsPlaned` |", "no reason AsPlaned"),
        ("| key | x |\n|---|---|\n| `breaker.windo` | |", "no key breaker.windo"),
        ("see `common/{clock,clok}.py`", "no file common/clok.py"),
        ("| event | x |\n|---|---|\n| `cycle faild` | |", "no log event cycle faild"),
        ("it is `cycle faild` in the log", "no log event cycle faild"),
    ],
)
def test_wrong_names_are_found(text: str, why: str) -> None:
    found = docs_names.problems(sample(text))
    assert len(found) == 1
    assert why in found[0]


def test_good_names_are_left_alone() -> None:
    text = (
        "`evenkeel_plan_duration_seconds_bucket`\n\n"
        "| reason | key |\n|---|---|\n| `TooYoung` | `minPodAge` (`2m`) |\n\n"
        "`rebalancer/planner/`, `common/{clock,health}.py`, `cycle failed` in the log"
    )
    assert docs_names.problems(sample(text)) == []

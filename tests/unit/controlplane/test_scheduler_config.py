# SPDX-License-Identifier: Apache-2.0
"""R1.4: of the file that users copy, two values are replaced and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import ConfigError
from controlplane.scheduler_config import SHIPPED, localize, without_extenders

WITH_EXTENDER = """\
# A comment with kubeconfig: in it.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
  - urlPrefix: 'http://127.0.0.1:8888'   # the sidecar
    filterVerb: filter
    kubeconfig: not-this-one
  - urlPrefix: http://other:1
clientConnection: {qps: 5000, kubeconfig: "/etc/kubernetes/scheduler.conf"}
profiles: [{schedulerName: urlPrefix}]
"""
EXTENDER_LAST = """\
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf # kubeadm's
extenders: [{urlPrefix: "http://127.0.0.1:8888", filterVerb: filter}]
"""
both_orders = pytest.mark.parametrize(
    "text", [WITH_EXTENDER, EXTENDER_LAST], ids=["extender first", "extender last"]
)


def test_the_shipped_file_changes_in_its_kubeconfig_only() -> None:
    shipped = SHIPPED.read_text()
    fitted = localize(shipped, kubeconfig="/tmp/my config")
    assert fitted == shipped.replace("/etc/kubernetes/scheduler.conf", '"/tmp/my config"')
    assert shipped.count("/etc/kubernetes/scheduler.conf") == 1


def test_the_shipped_file_looks_at_every_node_and_elects_a_leader() -> None:
    config = yaml.safe_load(SHIPPED.read_text())
    assert config["leaderElection"] == {"leaderElect": True}
    assert config["profiles"] == [
        {"schedulerName": "default-scheduler", "percentageOfNodesToScore": 100}
    ]


def test_both_values_are_replaced_and_every_other_character_stays() -> None:
    fitted = localize(WITH_EXTENDER, kubeconfig="/k", extender_url="http://127.0.0.1:1")
    expected = WITH_EXTENDER.replace("'http://127.0.0.1:8888'", '"http://127.0.0.1:1"').replace(
        '"/etc/kubernetes/scheduler.conf"', '"/k"'
    )
    assert fitted == expected


def test_the_extender_stays_as_it_is_unless_another_is_given() -> None:
    fitted = localize(WITH_EXTENDER, kubeconfig="/k")
    assert yaml.safe_load(fitted)["extenders"] == yaml.safe_load(WITH_EXTENDER)["extenders"]


@both_orders
@given(kubeconfig=st.text(min_size=1), url=st.text(min_size=1))
def test_any_text_arrives_as_it_was_given(text: str, kubeconfig: str, url: str) -> None:
    expected = yaml.safe_load(text)
    expected["clientConnection"]["kubeconfig"] = kubeconfig
    expected["extenders"][0]["urlPrefix"] = url
    fitted = localize(text, kubeconfig=kubeconfig, extender_url=url)
    assert yaml.safe_load(fitted) == expected


@given(
    comment=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])),
    style=st.sampled_from(["block", "flow"]),
    before=st.integers(0, 3),
)
def test_the_place_in_the_file_does_not_matter(comment: str, style: str, before: int) -> None:
    connection = {
        "block": "clientConnection:\n  kubeconfig: /old\n",
        "flow": "clientConnection: {kubeconfig: /old}\n",
    }[style]
    text = f"# {comment}\n" + "\n" * before + "kind: X\n" + connection + "last: [1, 2]\n"
    assert localize(text, kubeconfig="/new") == text.replace("/old", '"/new"', 1).replace(
        '"/new"', "/old", comment.count("/old")
    )


def test_only_the_extenders_are_left_out() -> None:
    expected = yaml.safe_load(SHIPPED.read_text())
    assert len(expected.pop("extenders")) == 1
    assert yaml.safe_load(without_extenders(SHIPPED.read_text())) == expected
    assert without_extenders("kind: X\n") == "kind: X\n"
    assert yaml.safe_load(without_extenders("extenders: [{a: 1}]\nkind: X\n")) == {"kind": "X"}


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", {}, "no clientConnection.kubeconfig"),
        ("kind: X\n", {}, "no clientConnection.kubeconfig"),
        ("clientConnection:\n  kubeconfig:\n", {}, "no clientConnection.kubeconfig"),
        ("clientConnection: [kubeconfig]\n", {}, "no clientConnection.kubeconfig"),
        ("clientConnection: {kubeconfig: [a]}\n", {}, "no clientConnection.kubeconfig"),
        ("a: [\n", {}, "not one YAML document"),
        ("a: 1\n---\nb: 2\n", {}, "not one YAML document"),
        (
            without_extenders(SHIPPED.read_text()),
            {"extender_url": "http://x"},
            r"no extenders\[0\].urlPrefix",
        ),
    ],
)
def test_a_file_without_the_place_is_refused(
    text: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        localize(text, kubeconfig="/k", **arguments)

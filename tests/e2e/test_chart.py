# SPDX-License-Identifier: Apache-2.0
"""The chart gives what kustomize gives, and a real API server takes, changes and forgets it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.stands.cluster import Cluster
from common.config import (
    ConfigError,
    ExtenderConfiguration,
    RebalancerConfiguration,
    load_config,
    load_settings_hash,
)
from controlplane.build import TOOLS, build
from tests.e2e.chart_release import Release
from tests.e2e.chart_values import (
    ACT,
    COMBINATIONS,
    EVERYTHING,
    EXPOSED,
    GUARD,
    HOST,
    MORE,
    NONE,
    PAGE,
    WATCHED,
)
from tests.support.deploy.chart import (
    CHART,
    CHECKSUM,
    HOOK,
    KEEP,
    NAMESPACE,
    Combination,
    Json,
    Objects,
    Tools,
    annotated,
    objects,
    of_kind,
    without_helms_own,
    without_namespace,
)
from tests.support.deploy.containers import lasting
from tests.support.releases import MUTATES


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(build(extras=TOOLS), tmp_path)


@pytest.fixture
async def release(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Release]:
    """A cluster with the Prometheus Operator's kinds; nothing of a release is left in it."""
    made = Release(cluster, Tools(build(extras=TOOLS), tmp_path, cluster.kubeconfig))
    async with made.alone():
        yield made


@pytest.mark.parametrize("wanted", COMBINATIONS, ids=str)
def test_the_chart_gives_the_same_objects_as_kustomize(tools: Tools, wanted: Combination) -> None:
    theirs = without_namespace(objects(tools.kustomize(wanted)))
    rendered = objects(tools.template(wanted.values))
    assert annotated(rendered, KEEP) == {("CustomResourceDefinition", "migrations.evenkeel.io")}
    assert annotated(rendered, CHECKSUM) == pods_with_fixed_keys(rendered)
    assert annotated(rendered, HOOK) == {("Pod", "evenkeel-test")}
    ours = without_helms_own(rendered)
    assert ours.keys() == theirs.keys()
    for key, obj in ours.items():
        assert obj == theirs[key], key


def pods_with_fixed_keys(rendered: Objects) -> set[tuple[str, str]]:
    """Return what reads all of its configuration only once, or some keys of it."""
    names = {
        ("Deployment", "evenkeel-scheduler"),
        ("DaemonSet", "evenkeel-extender"),
        ("Deployment", "evenkeel-rebalancer"),
    }
    return names & {(kind, name) for _, kind, _, name in rendered}


@pytest.mark.parametrize(
    "values", [EVERYTHING, {**HOST, **WATCHED, **GUARD, **EXPOSED}], ids=["second", "host"]
)
def test_a_release_may_live_in_any_namespace(tools: Tools, values: Json) -> None:
    elsewhere = tools.template(values, namespace="otherplace")
    for key, obj in objects(elsewhere).items():
        assert set(places_of(obj, NAMESPACE, "")) <= NOT_A_NAMESPACE, key
    # Nothing else differs; but checksums are over text that names the namespace.
    found = objects(elsewhere.replace("otherplace", NAMESPACE))
    assert without_helms_own(found) == without_helms_own(objects(tools.template(values)))


NOT_A_NAMESPACE = {
    "name",
    "app.kubernetes.io/name",
    "priorityClassName",
    "categories",
    "uid",
    "tags",
}


def places_of(value: Any, namespace: str, key: str) -> Iterator[str]:
    """Return under which keys something speaks of the namespace, or of what could be it."""
    if isinstance(value, dict):
        for inner_key, inner in value.items():
            yield from places_of(inner, namespace, inner_key)
    elif isinstance(value, list):
        for inner in value:
            yield from places_of(inner, namespace, key)
    elif isinstance(value, str):
        usual = (namespace, f"{namespace}-control-plane")
        if value in usual or f"serviceaccount:{namespace}:" in value:
            yield key


def test_lint_has_nothing_to_say(tools: Tools) -> None:
    said = tools.helm("lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("mode=Act", "mode"),
        ("modus=act", "modus"),
        ("scheduler.mode=first", "scheduler"),
        ("rebalancer.config.mode=act", "set the value `mode` instead"),
        ("rebalancer.config.barePods=replace", "barePods.enabled"),
        ("scheduler.mode=none,namespaceOptIn.enabled=true", "no second scheduler"),
        ("guide=admission", "set scheduler.mode to none"),
        ("guide=webhook", "guide"),
        ("rebalancer.config.guide=admission", "set the value `guide` instead"),
        ("networkPolicy.from[0].namespace=x", "namespace"),
        ("namespaceOptIn.schedulerNames={a'b}", "schedulerNames"),
        ("monitoring.runbookBaseUrl=here", "runbookBaseUrl"),
        ("rebalancer.extraEnv[0].value=x", "name"),
        ("image.repository=registry.example:5000/evenkeel:1.0", "repository"),
        ("scheduler.image.tag=v1.36.2+k3s1", "tag"),
        ("monitoring=null", "missing property 'monitoring'"),
        ("scheduler.mode=null", "missing property 'mode'"),
        ("scheduler.config.profiles[0].percentageOfNodesToScore=50", "has no schedulerName"),
        ("scheduler.config.profiles=null", "has no schedulerName"),
        (
            "namespaceOptIn.enabled=true,scheduler.config.profiles[0].schedulerName=mine",
            "they would stay Pending",
        ),
        ("rebalancer.extraVolumes[0].name=config", "has a volume named config already"),
        (
            "scheduler.extraVolumes[0].name=ca,extender.extraVolumes[0].name=ca,"
            "extender.extraVolumes[0].emptyDir.medium=Memory",
            "two different volumes of one pod are named ca",
        ),
    ],
)
def test_values_that_cannot_be_meant_are_refused(tools: Tools, settings: str, words: str) -> None:
    assert words in tools.refusal("template", "evenkeel", str(CHART), "--set", settings)


def test_a_section_or_switch_without_a_value_is_missed_by_its_name() -> None:
    """Such as `monitoring:` with its lines commented out, which Helm takes for null."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def not_missed(values: Json, known: Json) -> Iterator[str]:
        for key, value in values.items():
            part = known["properties"][key]
            if "$ref" in part:
                part = schema["definitions"][part["$ref"].rpartition("/")[2]]
            section = "properties" in part and key != "resources"
            if (section or isinstance(value, bool)) and key not in known["required"]:
                yield key
            if section:
                yield from not_missed(value, {"required": [], **part})

    shipped = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [*not_missed(shipped, schema)] == []


@pytest.mark.parametrize("namespace", ["0815", "1e3", "true", "null"])
@pytest.mark.parametrize("values", [EVERYTHING, {**HOST, **EXPOSED}], ids=["second", "host"])
def test_a_namespace_may_look_like_a_number(tools: Tools, namespace: str, values: Json) -> None:
    found = objects(tools.template(values, namespace=namespace))
    assert {key[2] for key in found} <= {"", "kube-system", namespace, f"{namespace}-control-plane"}


def test_a_namespace_is_refused_if_the_second_one_would_be_too_long(tools: Tools) -> None:
    tools.template(HOST, namespace="n" * 49)
    host = ("template", "evenkeel", str(CHART), "--set=scheduler.mode=controlPlane")
    words = tools.refusal(*host, f"-n={'n' * 50}")
    assert "at most 49" in words


def test_a_volume_that_programs_of_one_pod_share_is_there_once(tools: Tools) -> None:
    found = of_kind(objects(tools.template({"extender": MORE, "scheduler": MORE})), "Deployment")
    [pod] = [d["spec"]["template"]["spec"] for d in found if "scheduler" in d["metadata"]["name"]]
    assert [v["name"] for v in pod["volumes"]] == ["scheduler-config", "config", "ca"]


def test_the_rebalancer_moves_the_pods_of_every_profile_that_is_named(
    tools: Tools, tmp_path: Path
) -> None:
    profiles = [{"schedulerName": "evenkeel-scheduler"}, {"schedulerName": "batch"}]
    values = {"scheduler": {"config": {"profiles": profiles}}}
    files = configurations(objects(tools.template(values)), tmp_path)
    rebalancer = load_config(str(files["rebalancer.yaml"]), RebalancerConfiguration)
    assert rebalancer.scheduler_names == ("evenkeel-scheduler", "batch")


@pytest.mark.parametrize(
    ("cluster", "tag", "expected"),
    [
        ("1.33.2", "", "v1.33.2"),
        ("v1.33.2-gke.1234567", "", "v1.33.2"),
        ("v1.33.2-eks-abc123", "", "v1.33.2"),
        ("v1.33.2+k3s1", "", "v1.33.2"),
        ("1.33", "", "v1.33.0"),
        ("v1.33", "v1.33.7", "v1.33.7"),
        ("1.33.2", "v1.32.9", "v1.32.9"),
        ("1.33.2", "v1.33.9", "v1.33.9"),
        ("1.33.2", "mine", "mine"),
        ("1.33.2", "2026.11.16", "2026.11.16"),
    ],
)
def test_the_second_scheduler_has_the_version_of_the_cluster(
    tools: Tools, cluster: str, tag: str, expected: str
) -> None:
    values = {"scheduler": {"image": {"tag": tag}}}
    found = objects(tools.template(values, cluster=cluster))
    pods = [d["spec"]["template"]["spec"] for d in of_kind(found, "Deployment")]
    images = {c["name"]: c["image"] for pod in pods for c in lasting(pod)}
    assert images["kube-scheduler"] == f"registry.k8s.io/kube-scheduler:{expected}"


@pytest.mark.parametrize("tag", ["v1.34.0", "1.36", "v1.36.4-mine"])
def test_a_scheduler_that_is_newer_than_its_cluster_is_refused(tools: Tools, tag: str) -> None:
    chart = ("template", "evenkeel", str(CHART), "--kube-version=1.33.2")
    words = tools.refusal(*chart, "--set", f"scheduler.image.tag={tag}")
    assert f"scheduler.image.tag: {tag} is newer than the API server (v1.33.2)" in words
    tools.helm(*chart, "--set", f"scheduler.mode=none,scheduler.image.tag={tag}")


def test_configuration_is_merged_over_what_is_shipped(tools: Tools, tmp_path: Path) -> None:
    config = {"breaker": {"window": 30}, "enabledStrategies": ["NodeMaintenance"], "paused": True}
    own = {"config": {"overloaded": "filter"}}
    values = {**ACT, "rebalancer": {"config": config}, "extender": own}
    files = configurations(objects(tools.template(values)), tmp_path)
    rebalancer = load_config(str(files["rebalancer.yaml"]), RebalancerConfiguration)
    assert rebalancer.mode.value == "act"
    assert rebalancer.paused
    assert rebalancer.breaker.window == 30
    assert [strategy.value for strategy in rebalancer.enabled_strategies] == ["NodeMaintenance"]
    assert rebalancer.scheduler_names == ("evenkeel-scheduler",)
    extender = load_config(str(files["extender.yaml"]), ExtenderConfiguration)
    assert extender.overloaded.value == "filter"


def test_what_decides_load_is_said_once_for_both_programs(tools: Tools, tmp_path: Path) -> None:
    asked = {"url": "http://prometheus:9090", "window": "5m"}
    values = {
        "load": {"cpuThreshold": 70, "usageSource": "prometheus", "prometheus": asked},
        # How it is reached may differ, what is asked may not.
        "extender": {"config": {"prometheus": {"timeout": "3s"}}},
    }
    files = configurations(objects(tools.template(values)), tmp_path)
    rebalancer = load_config(str(files["rebalancer.yaml"]), RebalancerConfiguration)
    extender = load_config(str(files["extender.yaml"]), ExtenderConfiguration)
    assert rebalancer.cpu_threshold == extender.cpu_threshold == 70
    assert load_settings_hash(rebalancer) == load_settings_hash(extender)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rebalancer": {"config": {"cpuThreshold": 70}}}, "set load.cpuThreshold instead"),
        ({"extender": {"config": {"observations": 5}}}, "set load.observations instead"),
        (
            {
                "rebalancer": {"config": {"estimates": {"cpu": "1"}}},
                "extender": {"config": {"estimates": {"cpu": "2"}}},
            },
            "set load.estimates instead",
        ),
        ({"load": {"paused": True}}, "load.paused: not one of the keys"),
    ],
    ids=str,
)
def test_two_ideas_of_load_are_refused(tools: Tools, values: Json, words: str) -> None:
    file = tools.write(values)
    assert words in tools.refusal("template", "evenkeel", str(CHART), f"-f={file}")
    if "load" not in values:
        tools.template({**values, **NONE})


@pytest.mark.parametrize(
    "values",
    [
        {"rebalancer": {"config": None}, "extender": {"config": None}, "load": None},
        {key: {"config": {"cpuThreshold": 70}} for key in ("rebalancer", "extender")},
    ],
    ids=["nothing", "twice-the-same"],
)
def test_configurations_that_agree_are_taken(tools: Tools, values: Json, tmp_path: Path) -> None:
    files = configurations(objects(tools.template(values)), tmp_path)
    rebalancer = load_config(str(files["rebalancer.yaml"]), RebalancerConfiguration)
    extender = load_config(str(files["extender.yaml"]), ExtenderConfiguration)
    assert load_settings_hash(rebalancer) == load_settings_hash(extender)


def test_a_key_that_does_not_exist_is_refused_by_the_program(tools: Tools, tmp_path: Path) -> None:
    values = {"rebalancer": {"config": {"cpuTreshold": 70}}}
    files = configurations(objects(tools.template(values)), tmp_path)
    with pytest.raises(ConfigError, match="cpuThreshold"):
        load_config(str(files["rebalancer.yaml"]), RebalancerConfiguration)


def configurations(found: Objects, folder: Path) -> dict[str, Path]:
    """Write the files of the ConfigMaps as they would be mounted."""
    maps = (obj["data"] for obj in of_kind(found, "ConfigMap"))
    files = {name: content for data in maps for name, content in data.items()}
    for name, content in files.items():
        (folder / name).write_text(yaml.safe_dump(content))
    return {name: folder / name for name in files}


def test_only_pods_that_do_not_follow_their_configuration_are_restarted_for_it(
    tools: Tools,
) -> None:
    changed = {
        **ACT,
        "rebalancer": {"config": {"paused": True}},
        "extender": {"config": {"overloaded": "filter"}},
    }
    before, after = (
        {d["metadata"]["name"]: d["spec"]["template"] for d in of_kind(found, "Deployment")}
        for found in (objects(tools.template()), objects(tools.template(changed)))
    )
    assert before["evenkeel-rebalancer"] == after["evenkeel-rebalancer"]
    assert before["evenkeel-scheduler"] != after["evenkeel-scheduler"]


@pytest.mark.parametrize(
    ("load", "restarted"),
    [
        ({"cpuThreshold": 70}, {"evenkeel-scheduler"}),
        ({"metricExpiry": "120s"}, {"evenkeel-scheduler", "evenkeel-rebalancer"}),
        (
            {"usageSource": "prometheus", "prometheus": {"url": "http://prometheus:9090"}},
            {"evenkeel-scheduler", "evenkeel-rebalancer"},
        ),
    ],
    ids=["reloaded", "expiry", "source"],
)
def test_values_that_need_a_restart_restart_both_programs(
    tools: Tools, load: Json, restarted: set[str]
) -> None:
    before, after = (
        {d["metadata"]["name"]: d["spec"]["template"] for d in of_kind(found, "Deployment")}
        for found in (objects(tools.template()), objects(tools.template({"load": load})))
    )
    assert {name for name in before if before[name] != after[name]} == restarted


@pytest.mark.parametrize(
    ("program", "values", "owner", "container"),
    [
        ("rebalancer", {}, ("Deployment", "evenkeel-rebalancer"), "rebalancer"),
        ("scheduler", {}, ("Deployment", "evenkeel-scheduler"), "kube-scheduler"),
        ("extender", HOST, ("DaemonSet", "evenkeel-extender"), "extender"),
    ],
)
def test_pods_get_what_the_user_adds(
    tools: Tools, program: str, values: Json, owner: tuple[str, str], container: str
) -> None:
    own = {**MORE, "priorityClassName": "mine"}
    if program != "extender":
        own["affinity"] = {"podAntiAffinity": {}}
    merged = {**values, program: own}
    found = objects(tools.template(merged))
    [template] = [
        obj["spec"]["template"] for key, obj in found.items() if (key[1], key[3]) == owner
    ]
    [running] = [c for c in lasting(template["spec"]) if c["name"] == container]
    assert running["args"][-1] == "-v=4"
    assert running["env"] == MORE["extraEnv"]
    assert MORE["extraVolumeMounts"][0] in running["volumeMounts"]
    assert MORE["extraVolumes"][0] in template["spec"]["volumes"]
    assert template["metadata"]["annotations"]["example.com/a"] == "b"
    assert template["spec"]["priorityClassName"] == "mine"
    if program != "extender":
        assert template["spec"]["affinity"] == own["affinity"]
    [account] = [
        a for a in of_kind(found, "ServiceAccount")
        if a["metadata"]["name"] == template["spec"]["serviceAccountName"]
    ]  # fmt: skip
    assert account["metadata"]["annotations"] == MORE["serviceAccountAnnotations"]


def test_the_sidecar_gets_what_the_user_adds_too(tools: Tools) -> None:
    found = of_kind(objects(tools.template({"extender": MORE})), "Deployment")
    [pod] = [d["spec"]["template"]["spec"] for d in found if "scheduler" in d["metadata"]["name"]]
    [extender] = pod["initContainers"]
    assert extender["args"][-1] == "-v=4"
    assert extender["env"] == MORE["extraEnv"]
    assert MORE["extraVolumes"][0] in pod["volumes"]


@pytest.mark.parametrize("values", [EVERYTHING, {**HOST, **WATCHED, **EXPOSED}], ids=["2", "host"])
def test_common_labels_are_on_every_object_and_in_no_selector(tools: Tools, values: Json) -> None:
    labels = {"example.com/team": "platform"}
    plain = objects(tools.template(values))
    found = objects(tools.template({**values, "commonLabels": labels}))
    assert found.keys() == plain.keys()
    for key, obj in found.items():
        assert labels.items() <= obj["metadata"]["labels"].items(), key
        if key[1] in {"Deployment", "DaemonSet"}:
            template = obj["spec"]["template"]
            assert labels.items() <= template["metadata"]["labels"].items()
            assert obj["spec"]["selector"] == plain[key]["spec"]["selector"]
        if key[1] == "Service":
            assert obj["spec"]["selector"] == plain[key]["spec"]["selector"]


def test_with_a_pinned_scheduler_the_render_depends_on_the_values_alone(tools: Tools) -> None:
    pinned = {**EVERYTHING, "scheduler": {"image": {"tag": "v1.36.0"}}}
    first, again, elsewhere = (
        tools.template(pinned, cluster=version) for version in ("1.36.4", "1.36.4", "v1.37.1-gke.5")
    )
    assert first == again == elsewhere


def test_nothing_is_written_in_kube_system_where_that_is_forbidden(tools: Tools) -> None:
    values = {**EVERYTHING, "scheduler": {"authenticationReader": False}}
    everything, less = objects(tools.template(EVERYTHING)), objects(tools.template(values))
    there = {key for key in everything if key[2] == "kube-system"}
    assert there
    assert everything.keys() - less.keys() == there


def test_nothing_is_rendered_where_an_umbrella_chart_turns_it_off(tools: Tools) -> None:
    assert objects(tools.template({**EVERYTHING, "enabled": False})) == {}


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("serviceMonitors", "ServiceMonitor"),
        ("alerts", "PrometheusRule"),
        ("dashboard", "evenkeel-dashboard"),
    ],
)
def test_parts_of_monitoring_are_left_out_one_by_one(tools: Tools, part: str, kind: str) -> None:
    every = objects(tools.template(WATCHED))
    some = objects(tools.template({"monitoring": {"enabled": True, part: False}}))
    gone = every.keys() - some.keys()
    assert gone
    assert all(kind in key for key in gone)


def test_alerts_link_their_page_only_where_one_is_published(tools: Tools) -> None:
    base = "https://git.example.com/evenkeel/blob/main"
    for url in (base, base + "/"):
        linked = tools.template({"monitoring": {"enabled": True, "runbookBaseUrl": url}})
        [rule] = of_kind(objects(linked), "PrometheusRule")
        notes = [r["annotations"] for group in rule["spec"]["groups"] for r in group["rules"]]
        assert all(n["runbook_url"] == f"{base}/{n['runbook']}" for n in notes)
    assert "runbook_url" not in tools.template(WATCHED)


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        ("1.36.4", True),
        ("v1.36.0-gke.100", True),
        ("v1.37.1-eks-abc", True),
        ("1.35.9", False),
        ("v1.35.3-gke.1", False),
    ],
)
@pytest.mark.parametrize(
    "settings", ["namespaceOptIn.enabled=true", "guide=admission,scheduler.mode=none"]
)
def test_policies_that_mutate_are_rendered_only_where_the_cluster_can(
    tools: Tools, version: str, taken: bool, settings: str
) -> None:
    chart = ("template", "evenkeel", str(CHART), f"--kube-version={version}")
    wish = ("--set", settings)
    if taken:
        tools.helm(*chart, *wish)
    else:
        assert "needs MutatingAdmissionPolicies" in tools.refusal(*chart, *wish)


def test_the_schedulers_that_are_replaced_can_be_named(tools: Tools) -> None:
    names = ["default-scheduler", "my-scheduler"]
    values = {"namespaceOptIn": {"enabled": True, "schedulerNames": names}}
    [policy] = of_kind(objects(tools.template(values)), "MutatingAdmissionPolicy")
    [first, _] = policy["spec"]["matchConditions"]
    expected = "object.spec.schedulerName in ['default-scheduler', 'my-scheduler']"
    assert first["expression"] == expected


def test_the_schedulers_configuration_and_image_can_be_changed(
    tools: Tools, tmp_path: Path
) -> None:
    digest = f"sha256:{'ab' * 32}"
    own = {"image": {"digest": digest}, "config": {"parallelism": 4}}
    found = objects(tools.template({"scheduler": own}))
    shipped = configurations(objects(tools.template()), tmp_path)["scheduler-config.yaml"]
    expected = {**yaml.safe_load(shipped.read_text()), "parallelism": 4}
    changed = configurations(found, tmp_path)["scheduler-config.yaml"]
    assert yaml.safe_load(changed.read_text()) == expected
    pods = [d["spec"]["template"]["spec"] for d in of_kind(found, "Deployment")]
    images = {c["name"]: c["image"] for pod in pods for c in lasting(pod)}
    assert images["kube-scheduler"] == f"registry.k8s.io/kube-scheduler@{digest}"


def test_everything_that_is_optional_can_be_left_out(tools: Tools) -> None:
    values = {
        "crds": {"enabled": False},
        "priorityClass": {"create": False},
        "networkPolicy": {"enabled": False},
        "image": {"pullSecrets": ["mine"], "pullPolicy": "Always"},
    }
    found = objects(tools.template(values))
    kinds = {kind for _, kind, _, _ in found}
    assert not kinds & {"CustomResourceDefinition", "PriorityClass", "NetworkPolicy"}
    (pod, *_) = (d["spec"]["template"]["spec"] for d in of_kind(found, "Deployment"))
    assert "priorityClassName" not in pod
    assert pod["imagePullSecrets"] == [{"name": "mine"}]
    assert pod["containers"][0]["imagePullPolicy"] == "Always"


ELSEWHERE = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]


@pytest.mark.parametrize("peers", [ELSEWHERE, [], None])
def test_health_ports_are_open_to_those_that_are_named_and_to_no_others(
    tools: Tools, peers: list[Json] | None
) -> None:
    found = of_kind(objects(tools.template({"networkPolicy": {"from": peers}})), "NetworkPolicy")
    assert len(found) == 2
    for policy in found:
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        # A rule with an empty `from` would let everything in; no rule lets nothing in.
        assert [rule["from"] for rule in policy["spec"]["ingress"]] == ([peers] if peers else [])


@pytest.mark.parametrize(
    ("values", "scheduler", "rebalancer"),
    [
        ({}, "evenkeel-scheduler", "evenkeel"),
        ({"scheduler": {"priorityClassName": "mine"}}, "mine", "evenkeel"),
        ({"rebalancer": {"priorityClassName": "mine"}}, "evenkeel-scheduler", "mine"),
        (
            {"priorityClass": {"create": False}, "scheduler": {"priorityClassName": "mine"}},
            "mine",
            None,
        ),
    ],
)
def test_pods_have_the_class_that_is_named_or_ours(
    tools: Tools, values: Json, scheduler: str, rebalancer: str | None
) -> None:
    found = of_kind(objects(tools.template(values)), "Deployment")
    classes = {
        d["metadata"]["name"]: d["spec"]["template"]["spec"].get("priorityClassName") for d in found
    }
    assert classes == {"evenkeel-scheduler": scheduler, "evenkeel-rebalancer": rebalancer}


@pytest.mark.parametrize(
    ("values", "reached"),
    [({}, True), ({**HOST, **EXPOSED}, True), (HOST, False), (NONE, False)],
    ids=["second", "host-exposed", "host", "none"],
)
def test_what_is_scraped_is_what_is_there(tools: Tools, values: Json, reached: bool) -> None:
    found = objects(tools.template({**WATCHED, **values}, namespace="otherplace"))
    scraped = {
        monitor["metadata"]["name"]: [
            (service["metadata"]["name"], sorted(scraped_ports(found, monitor, service)))
            for service in of_kind(found, "Service")
            if selects(monitor["spec"]["selector"], service["metadata"]["labels"])
        ]
        for monitor in of_kind(found, "ServiceMonitor")
    }
    extender = [("evenkeel-extender-metrics", ["extender 8889"])]
    scheduler = [("evenkeel-scheduler-metrics", ["kube-scheduler 10259"])]
    assert scraped == {
        "evenkeel-extender": extender if reached else [],
        "evenkeel-rebalancer": [("evenkeel-rebalancer-metrics", ["rebalancer 8890"])],
        "evenkeel-scheduler": scheduler if "scheduler" not in values else [],
    }


def scraped_ports(found: Objects, monitor: Json, service: Json) -> Iterator[str]:
    """Return the containers and ports behind what a monitor wants of a service."""
    wanted = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
    targets = {p["targetPort"] for p in service["spec"]["ports"] if p["name"] in wanted}
    namespace = service["metadata"]["namespace"]
    assert namespace in monitor["spec"]["namespaceSelector"]["matchNames"]
    for owner in (*of_kind(found, "Deployment"), *of_kind(found, "DaemonSet")):
        template = owner["spec"]["template"]
        if owner["metadata"]["namespace"] != namespace:
            continue
        if service["spec"]["selector"].items() <= template["metadata"]["labels"].items():
            for container in lasting(template["spec"]):
                for port in container["ports"]:
                    if port["name"] in targets:
                        yield f"{container['name']} {port['containerPort']}"


def selects(selector: Json, labels: Json) -> bool:
    return bool(selector["matchLabels"].items() <= labels.items())


# Kubernetes puts the last two into every namespace.
LEFT = {
    f"Namespace <none> {NAMESPACE}",
    f"ServiceAccount {NAMESPACE} default",
    f"ConfigMap {NAMESPACE} kube-root-ca.crt",
}
DEFINITION = {
    "CustomResourceDefinition <none> migrations.evenkeel.io",
    "APIService <none> v1alpha1.evenkeel.io",
}


@pytest.mark.real
async def test_a_release_is_installed_changed_and_removed_without_a_trace(
    release: Release,
) -> None:
    before = await release.names()
    everything = EVERYTHING if MUTATES else {**EVERYTHING, "namespaceOptIn": {"enabled": False}}
    notes = await release.put("install", everything)
    assert "makes plans and shows them, and moves nothing" in notes
    assert "mode=act" in notes
    assert "filter-calls" in notes
    await release.check_strictly(everything)
    installed = await release.names()
    assert f"Deployment {NAMESPACE} evenkeel-scheduler" in installed
    assert f"PrometheusRule {NAMESPACE} evenkeel" in installed

    other = {**HOST, **ACT, "rebalancer": {"replicas": 1, "config": {"paused": True}}}
    assert "It runs in act mode" in await release.put("upgrade", other)
    await release.check_strictly(other)
    upgraded = await release.names()
    assert f"DaemonSet {NAMESPACE}-control-plane evenkeel-extender" in upgraded
    assert f"Deployment {NAMESPACE} evenkeel-scheduler" not in upgraded
    assert f"PrometheusRule {NAMESPACE} evenkeel" not in upgraded

    await release.helm("uninstall", "--wait")
    await release.until_left(before, LEFT | DEFINITION)

    await release.put("install", {"crds": {"keep": False}})
    await release.helm("uninstall", "--wait")
    await release.until_left(before, LEFT)


@pytest.mark.real
async def test_a_release_of_an_older_chart_is_upgraded_as_documented(
    release: Release, tmp_path: Path
) -> None:
    mine = "--set=image.repository=registry.example/mine"
    await release.helm("install", str(older_chart(tmp_path)), mine, "--create-namespace")
    await release.helm("upgrade", str(CHART), *documented_flags())
    command = ("get", "deployment", f"-n={NAMESPACE}", "-o=jsonpath={..image}")
    assert "registry.example/mine:" in await release.kubectl(*command)


def older_chart(folder: Path) -> Path:
    """Return the chart as it would be if the first value of the newest template was not there."""
    older = Path(shutil.copytree(CHART, folder / "older"))
    (older / "templates" / "policies.yaml").unlink()
    values = yaml.safe_load((older / "values.yaml").read_text())
    del values["podGuard"]
    (older / "values.yaml").write_text(yaml.safe_dump(values))
    schema = json.loads((older / "values.schema.json").read_text())
    del schema["properties"]["podGuard"]
    schema["required"].remove("podGuard")
    (older / "values.schema.json").write_text(json.dumps(schema))
    return older


def documented_flags() -> list[str]:
    """Return how the page has people upgrade, after the name of the chart."""
    page = PAGE.read_text().partition("## Upgrading")[2]
    [command] = re.findall(r"`(helm upgrade [^`]+)`", page)
    *_, chart, namespace, name, flags = command.split(maxsplit=6)
    assert (chart, namespace, name) == ("deploy/helm/evenkeel", "--namespace", NAMESPACE)
    return [str(flag) for flag in flags.split()]

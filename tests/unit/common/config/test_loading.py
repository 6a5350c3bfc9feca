# SPDX-License-Identifier: Apache-2.0
"""Configuration files: what is accepted, and one line per problem for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.config import (
    ConfigError,
    Configuration,
    Duration,
    ExtenderConfiguration,
    Mode,
    Overloaded,
    Prometheus,
    RebalancerConfiguration,
    SourceKind,
    Strategy,
    effective,
    load_config,
    load_settings_hash,
)

*_FIRST, _LAST = map(str, Strategy)
STRATEGIES = f"{', '.join(_FIRST)} or {_LAST}"
HEAD = "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def load(file: Path, body: str) -> RebalancerConfiguration:
    file.write_text(HEAD + body)
    return load_config(str(file), RebalancerConfiguration)


def problems(
    file: Path, text: str, kind: type[Configuration] = RebalancerConfiguration
) -> list[str]:
    """Return the lines of the refusal, without the file's name that each begins with."""
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as refusal:
        load_config(str(file), kind)
    lines = str(refusal.value).splitlines()
    assert lines == list(refusal.value.problems)
    assert all(line.startswith(f"{file}: ") for line in lines)
    return [line.removeprefix(f"{file}: ") for line in lines]


def test_without_a_file_everything_has_its_default() -> None:
    assert load_config(None, ExtenderConfiguration) == ExtenderConfiguration()


def test_a_file_may_state_nothing_but_its_kind(file: Path) -> None:
    assert load(file, "") == RebalancerConfiguration()


def test_a_whole_file_is_understood(file: Path) -> None:
    config = load(
        file,
        """
reschedulingInterval: 1m30s
enabledStrategies: [NodeMaintenance]
cpuThreshold: 75
mode: observe
modes: {NodeMaintenance: act}
excludedPodSelector: "app in (db, cache), !movable"
usageSource: prometheus
prometheus:
  url: https://prometheus.example:9090/base
  bearerTokenFile: /var/run/secrets/token
  queries: {nodeCpu: 'sum by (node) (rate(x[2m]))'}
estimates: {cpu: 1, memory: 1Gi}
evictionGracePeriod: 1m
temporaryPdb: {maxUnavailable: 25%, expiry: 10m}
breaker: {badShare: 1}
replacingOwners: [Rollout.argoproj.io, CloneSet]
poolLabel: node.kubernetes.io/pool
""",
    )
    assert float(config.rescheduling_interval) == 90
    assert config.cpu_threshold == 75.0
    assert config.enabled_strategies == (Strategy.NODE_MAINTENANCE,)
    assert config.mode_of(Strategy.NODE_MAINTENANCE) is Mode.ACT
    assert config.mode_of(Strategy.LOAD_BALANCING) is Mode.OBSERVE
    assert config.usage_source is SourceKind.PROMETHEUS
    assert config.prometheus is not None
    assert config.prometheus.url == "https://prometheus.example:9090/base"
    assert config.estimates.cpu_milli == 1000
    assert config.estimates.mem_bytes == 1 << 30
    assert config.temporary_pdb is not None
    assert config.temporary_pdb.min_available is None
    assert config.temporary_pdb.max_unavailable == "25%"
    assert config.breaker.bad_share == 1.0
    assert config.breaker.window == 20


def aliases(levels: int, each: int) -> str:
    """Return keys of which each names the one before it so many times."""
    named = (f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * each)}]\n" for n in range(1, levels))
    return "k0: &k0 [x]\n" + "".join(named)


BOMB, CHAIN = aliases(20, 10), aliases(2000, 1)


@pytest.mark.parametrize("word", ["off", '"off"', "false"])
def test_the_temporary_budget_can_be_switched_off(file: Path, word: str) -> None:
    config = load(file, f"temporaryPdb: {word}\n")
    assert config.temporary_pdb is None
    assert effective(config)["temporaryPdb"] == "off"
    assert RebalancerConfiguration.model_validate(effective(config)) == config


def test_a_temporary_budget_with_only_an_expiry_keeps_one_pod(file: Path) -> None:
    budget = load(file, "temporaryPdb: {expiry: 1m}\n").temporary_pdb
    assert budget is not None
    assert (budget.min_available, budget.max_unavailable, float(budget.expiry)) == (1, None, 60)


def test_anchors_may_be_used(file: Path) -> None:
    config = load(file, "workloadCooldown: &rest 2m\nminPodAge: *rest\n")
    assert config.min_pod_age == config.workload_cooldown == Duration("2m")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("cpuThreshhold: 70", "cpuThreshhold: unknown key, did you mean cpuThreshold?"),
        ("rescheduling_interval: 30s",
         "rescheduling_interval: unknown key, did you mean reschedulingInterval?"),
        ("CPUTHRESHOLD: 70", "CPUTHRESHOLD: unknown key, did you mean cpuThreshold?"),
        ("zebra: 1", "zebra: unknown key"),
        ("overloaded: score", "overloaded: unknown key"),
        ("breaker: {windov: 3}", "breaker.windov: unknown key, did you mean window?"),
        ("prometheus: {url: http://p, queries: {nodeCPU: x}}",
         "prometheus.queries.nodeCPU: unknown key, did you mean nodeCpu?"),
        ("reschedulingInterval: 30",
         "reschedulingInterval: 30 is not a duration: write 30s, 5m or 1h"),
        ("reschedulingInterval: 1:30",
         "reschedulingInterval: 1:30 is not a duration: write 30s, 5m or 1h"),
        ("reschedulingInterval: -30s",
         "reschedulingInterval: -30s is not a duration: write 30s, 5m or 1h"),
        ("reschedulingInterval: true",
         "reschedulingInterval: true is not a duration: write 30s, 5m or 1h"),
        ("reschedulingInterval: 0s", "reschedulingInterval: must be longer than 0s"),
        ("reschedulingInterval:",
         "reschedulingInterval: nothing is not a duration: write 30s, 5m or 1h"),
        ("breaker: {halfOpenAfter: 10}",
         "breaker.halfOpenAfter: 10 is not a duration: write 30s, 5m or 1h"),
        ("cpuThreshold: 0", "cpuThreshold: must be above 0, not 0"),
        ("cpuThreshold: -5.5", "cpuThreshold: must be above 0, not -5.5"),
        ("memoryThreshold: 100.5", "memoryThreshold: must be at most 100, not 100.5"),
        ("imbalanceThreshold: 0", "imbalanceThreshold: must be above 0, not 0"),
        ("cpuThreshold: 80%", "cpuThreshold: must be a number, not the text 80%"),
        ("cpuThreshold: .nan", "cpuThreshold: must be a number, not the text .nan"),
        ("cpuThreshold: 1e999", "cpuThreshold: must be a finite number, not inf"),
        ("cpuThreshold: true", "cpuThreshold: must be a number, not true"),
        ("minGain: -1", "minGain: must be at least 0, not -1"),
        ("maxReschedulePods: 0", "maxReschedulePods: must be at least 1, not 0"),
        ("maxReschedulePods: 1.5", "maxReschedulePods: must be a whole number, not 1.5"),
        ('maxReschedulePods: "10"', "maxReschedulePods: must be a whole number, not the text 10"),
        ("maxReschedulePods: 010", "maxReschedulePods: must be a whole number, not the text 010"),
        ("maxReschedulePods: [1]", "maxReschedulePods: must be a whole number, not a list"),
        ("paused: yes", "paused: must be true or false, not the text yes"),
        ("paused: 1", "paused: must be true or false, not 1"),
        ("maintenance: {cordon: off}",
         "maintenance.cordon: must be true or false, not the text off"),
        ("maintenance: true", "maintenance: must be a block of keys, not true"),
        ("breaker:", "breaker: must be a block of keys, not nothing"),
        ("breaker: []", "breaker: must be a block of keys, not an empty list"),
        ("breaker: {badShare: 20}", "breaker.badShare: must be at most 1, not 20"),
        ("breaker: {window: 3}",
         "breaker.minimum: 5 is more than window (3): it would never open"),
        ("mode: of", "mode: must be act or observe, not of"),
        ("mode: {a: b}", "mode: must be act or observe, not a block of keys"),
        ("modes: {LoadBalancing: off}", "modes.LoadBalancing: must be act or observe, not off"),
        ("modes: {Balance: act}",
         f"modes.Balance: must be {STRATEGIES}, not Balance"),
        ("modes: act", "modes: must be a block of keys, not the text act"),
        ("enabledStrategies: [LoadBalancing, Balance]",
         f"enabledStrategies[1]: must be {STRATEGIES}, not Balance"),
        ("enabledStrategies: LoadBalancing",
         "enabledStrategies: must be a list, not the text LoadBalancing"),
        ("enabledStrategies: [NodeMaintenance, NodeMaintenance]",
         "enabledStrategies: NodeMaintenance is listed twice"),
        ("excludedNamespaces: [Kube_System]",
         "excludedNamespaces[0]: Kube_System is not a namespace name"),
        ("excludedNamespaces: [1]",
         "excludedNamespaces[0]: must be text (put it in quotes), not 1"),
        ("schedulerNames: []", "schedulerNames: must not be empty"),
        ('schedulerNames: [""]', "schedulerNames[0]: must not be empty"),
        ("poolLabel: a/b/c", "poolLabel: a/b/c is not a label key"),
        ("replacingOwners: [rollout]",
         "replacingOwners[0]: rollout is not a kind: write Kind.group, "
         "such as Rollout.argoproj.io"),
        ("estimates: {memory: 0}", "estimates.memory: must be above 0, not 0"),
        ("estimates: {cpu: -1}", "estimates.cpu: must be above 0, not -1"),
        ("estimates: {cpu: [1]}",
         "estimates.cpu: must be text (put it in quotes), not a list"),
        ("usageSource: prometheus",
         "usageSource: prometheus needs a prometheus block with a url"),
        ("prometheus: {url: http://p}",
         "prometheus: usageSource: auto never queries Prometheus: set usageSource: prometheus"),
        ("usageSource: prometheus\nprometheus: {timeout: 3s}", "prometheus.url: missing"),
        ("prometheus: {url: prom:9090}",
         "prometheus.url: prom:9090 is not a URL: write http://host:port or https://host"),
        ("prometheus: {url: 'http://me:hunter2@prom'}",
         "prometheus.url: must not contain a password: use bearerTokenFile"),
        ("prometheus: {url: 'http://prom/?a=b'}",
         "prometheus.url: http://prom/?a=b has more than a path after the host"),
        ("temporaryPdb:",
         "temporaryPdb: is empty: write off, or a block with minAvailable or maxUnavailable"),
        ("temporaryPdb: on", "temporaryPdb: must be a block of keys or off, not on"),
        ("temporaryPdb: true", "temporaryPdb: must be a block of keys or off, not true"),
        ("temporaryPdb: {minAvailable: 0}",
         "temporaryPdb.minAvailable: must be a number of pods from 1 or a share such as 25%, "
         "not 0"),
        ("temporaryPdb: {maxUnavailable: 0%}",
         "temporaryPdb.maxUnavailable: must be a number of pods from 1 or a share such as 25%, "
         "not 0%"),
        ("temporaryPdb: {minAvailable: 1, maxUnavailable: 1}",
         "temporaryPdb.maxUnavailable: minAvailable is set too: a PodDisruptionBudget takes only "
         "one of them"),
        ("priorityThreshold: {}", "priorityThreshold.name: set either name or value"),
        ("priorityThreshold: {name: high, value: 5}",
         "priorityThreshold.name: set either name or value"),
        ("priorityThreshold: {value: high}",
         "priorityThreshold.value: must be a whole number, not the text high"),
        ("protectedStorageClasses: [Fast!]",
         "protectedStorageClasses[0]: Fast! is not a name that Kubernetes accepts"),
        ("namespaceSelector: 'a in'",
         "namespaceSelector: '(' is wanted, not the end (at character 5)"),
        ("evictionGracePeriod: 30",
         "evictionGracePeriod: 30 is not a duration: write 30s, 5m or 1h"),
        ("revalidateAfter: 2m",
         "revalidateAfter: 2m is longer than revalidateWithin (90s)"),
        ("lineageCooldown: 2h",
         "keepFinished: 1h is shorter than lineageCooldown (2h), which is remembered in "
         "finished Migrations"),
        ("metricExpiry: 15s",
         "metricExpiry: 15s is not longer than usageInterval (15s): every sample would be "
         "too old"),
        ("reading: {maxWatch: 1m}", "reading.minWatch: 5m is longer than maxWatch (1m)"),
        ("reading: {backoffMin: 1m}", "reading.backoffMin: 1m is longer than backoffMax (30s)"),
        ("clientConnection: {qps: 0}", "clientConnection.qps: must be above 0, not 0"),
        ("leaderElection: {leaseDuration: 10s}",
         "leaderElection.leaseDuration: 10s is not longer than renewDeadline (10s)"),
        ("leaderElection: {retryPeriod: 9s}",
         "leaderElection.renewDeadline: 10s is not longer than 1.2 × retryPeriod (9s)"),
        ("leaderElection: {name: Not_A_Name}",
         "leaderElection.name: Not_A_Name is not a name that Kubernetes accepts"),
    ],
)  # fmt: skip
def test_each_mistake_gets_one_line_that_names_it(file: Path, body: str, problem: str) -> None:
    line = 4 if problem.startswith("prometheus.url: missing") else 3
    assert problems(file, HEAD + body) == [f"line {line}: {problem}"]


@pytest.mark.parametrize(
    ("key", "value"), [("excludedPodSelector", "a in (b"), ("estimates", "{cpu: 250q}")]
)
def test_the_words_of_a_parser_are_passed_on(file: Path, key: str, value: str) -> None:
    (problem,) = problems(file, f"{HEAD}{key}: {value}\n")
    assert problem.startswith(f"line 3: {key}")
    assert len(problem) > len(f"line 3: {key}: ")


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(file: Path) -> None:
    text = HEAD + "zebra: 1\n\n# why not\ncpuThreshold: 0\nbreaker:\n  window: 4\n  badShare: 9\n"
    assert problems(file, text) == [
        "line 3: zebra: unknown key",
        "line 6: cpuThreshold: must be above 0, not 0",
        "line 9: breaker.badShare: must be at most 1, not 9",
    ]


def test_a_rule_over_two_keys_points_to_the_one_in_the_file(file: Path) -> None:
    (problem,) = problems(file, HEAD + "\n\nlineageCooldown: 2h\n")
    assert problem.startswith("line 5: keepFinished: ")


def test_a_long_value_is_cut(file: Path) -> None:
    (problem,) = problems(file, f"{HEAD}mode: {'x' * 5000}\n")
    assert len(problem) < 120


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["line 1: apiVersion: missing: write evenkeel.io/v1alpha1",
              "line 1: kind: missing: write RebalancerConfiguration"]),
        ("# nothing\n", ["line 1: apiVersion: missing: write evenkeel.io/v1alpha1",
                         "line 1: kind: missing: write RebalancerConfiguration"]),
        ("kind: RebalancerConfiguration\n",
         ["line 1: apiVersion: missing: write evenkeel.io/v1alpha1"]),
        ("apiVersion: evenkeel.io/v1\nkind: RebalancerConfiguration\nzebra: 1\n",
         ["line 1: apiVersion: must be evenkeel.io/v1alpha1, not evenkeel.io/v1"]),
        ("apiVersion: evenkeel.io/v1alpha1\nkind: ExtenderConfiguration\noverloaded: filter\n",
         ["line 2: kind: this file is for another program: "
          "expected RebalancerConfiguration, found ExtenderConfiguration"]),
        ("apiVersion: evenkeel.io/v1alpha1\nkind: [Deployment]\n",
         ["line 2: kind: must be RebalancerConfiguration, not a list"]),
        ("apiVersion: apps/v1\nkind: Deployment\n",
         ["line 1: apiVersion: must be evenkeel.io/v1alpha1, not apps/v1",
          "line 2: kind: must be RebalancerConfiguration, not Deployment"]),
        ("- a\n", ["line 1: must be a block of keys"]),
        ("just words\n", ["line 1: must be a block of keys"]),
        (HEAD + "a: b: c\n", ["line 3: is not YAML: mapping values are not allowed here"]),
        (HEAD + "a:\n\t- b\n",
         ["line 4: is not YAML: found character '\\t' that cannot start any token"]),
        (HEAD + "a: \x01\n", ["line 3: is not YAML: special characters are not allowed"]),
        (HEAD + "---\n" + HEAD, ["line 3: is not YAML: only one document is expected"]),
        (HEAD + "observations: 2\nobservations: 3\n",
         ["line 4: observations: duplicate key, first set on line 3"]),
        (HEAD + "breaker: {window: 9, window: 9}\n",
         ["line 3: breaker.window: duplicate key, first set on line 3"]),
        (HEAD + "breaker: &b {window: *b}\n", ["line 3: breaker.window: contains itself"]),
        (HEAD + "observations: !!int x\n", ["line 3: observations: x cannot be read as !!int"]),
        (HEAD + "mode: !custom x\n", ["line 3: mode: x cannot be read as !custom"]),
        (HEAD + "? [a, b]\n: c\n", ["line 3: has a key that is not a plain string"]),
        ("[" * 3000, ["line 1: is nested too deeply"]),
        (HEAD + CHAIN, ["line 1: is nested too deeply"]),
        (HEAD + BOMB, ["line 3: more than 100,000 values"]),
        ("kind: \udcff\n", ["is not text in UTF-8"]),
    ],
)  # fmt: skip
def test_a_file_that_is_none_gets_one_line_per_reason(
    file: Path, text: str, expected: list[str]
) -> None:
    assert problems(file, text) == expected


def test_the_other_program_refuses_too(file: Path) -> None:
    assert problems(file, HEAD, ExtenderConfiguration) == [
        "line 2: kind: this file is for another program: "
        "expected ExtenderConfiguration, found RebalancerConfiguration"
    ]


def test_the_extender_reads_its_own_kind(file: Path) -> None:
    file.write_text(HEAD.replace("Rebalancer", "Extender") + "overloaded: filter\n")
    assert load_config(str(file), ExtenderConfiguration).overloaded is Overloaded.FILTER


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config("/nowhere/config.yaml", RebalancerConfiguration)
    assert str(refusal.value) == "/nowhere/config.yaml: cannot be read: no such file or directory"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: is a directory"):
        load_config(str(tmp_path), RebalancerConfiguration)


WORDS = st.sampled_from(
    ["cpuThreshold", "breaker", "modes", "prometheus", "url", "temporaryPdb", "estimates", "x"]
)
VALUES = st.recursive(
    st.sampled_from(["1", "30s", "off", "~", "true", "[", "&a 1", "*a", "!!binary x", "'"])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(WORDS, inner, max_size=3).map(
            lambda block: "{" + ", ".join(f"{key}: {value}" for key, value in block.items()) + "}"
        )
    ),
    max_leaves=6,
)


@given(st.dictionaries(WORDS, VALUES, max_size=4))
def test_whatever_stands_in_a_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, body: dict[str, str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    text = HEAD + "".join(f"{key}: {value}\n" for key, value in body.items())
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    problems: tuple[str, ...] = ()
    try:
        load_config(str(file), RebalancerConfiguration)
    except ConfigError as refusal:
        problems = refusal.problems
    assert all(problem and "\n" not in problem for problem in problems)


def test_programs_that_agree_on_load_have_the_same_hash(file: Path) -> None:
    rebalancer = load(file, "cpuThreshold: 80.0\nmetricExpiry: 3m\nestimates: {cpu: 0.25}\n")
    assert load_settings_hash(rebalancer) == load_settings_hash(ExtenderConfiguration())


@pytest.mark.parametrize(
    "line",
    [
        "cpuThreshold: 79",
        "usageSource: requests",
        "metricExpiry: 181s",
        "observations: 4",
        "estimates: {memory: 201Mi}",
        "usageSource: prometheus\nprometheus: {url: http://p}",
    ],
)
def test_programs_that_differ_on_load_have_different_hashes(file: Path, line: str) -> None:
    assert load_settings_hash(load(file, line)) != load_settings_hash(ExtenderConfiguration())


@pytest.mark.parametrize("line", ["mode: observe", "usageInterval: 5s", "reading: {pageSize: 9}"])
def test_other_settings_do_not_change_the_hash(file: Path, line: str) -> None:
    assert load_settings_hash(load(file, line)) == load_settings_hash(ExtenderConfiguration())


def test_where_credentials_are_mounted_does_not_change_the_hash() -> None:
    def hash_of(prometheus: Prometheus) -> str:
        source = SourceKind.PROMETHEUS
        config = ExtenderConfiguration(usage_source=source, prometheus=prometheus)
        return load_settings_hash(config)

    plain = Prometheus(url="http://p")
    mounted = Prometheus(url="http://p", bearer_token_file="/a", ca_file="/b")
    assert hash_of(plain) == hash_of(mounted)
    assert hash_of(plain) != hash_of(Prometheus(url="http://q"))


@pytest.mark.parametrize("folder", ["/var/run/secrets", "/run/secrets", "/var/run/secrets/x/.."])
def test_the_token_of_the_service_account_is_not_for_prometheus(file: Path, folder: str) -> None:
    path = f"{folder}/kubernetes.io/serviceaccount/token"
    block = f"usageSource: prometheus\nprometheus: {{url: 'http://p', bearerTokenFile: {path}}}"
    with pytest.raises(ConfigError) as refused:
        load(file, block)
    assert "prometheus.bearerTokenFile" in str(refused.value)
    assert "is the token of the service account, which opens the Kubernetes API" in str(
        refused.value
    )


def test_jobs_that_are_no_regular_expression_are_refused(file: Path) -> None:
    block = "usageSource: prometheus\nprometheus: {url: 'http://p', podJobs: '(kubelet'}"
    with pytest.raises(ConfigError, match="is not a regular expression"):
        load(file, block)

"""The defaults on the reference page are the ones that the parts themselves have."""

from __future__ import annotations

from common.config import Prometheus, Queries, RebalancerConfiguration
from common.kube.leader import ElectionSettings
from common.kube.reflector import ReflectorSettings
from common.load import LoadSettings
from common.observer import load_settings, prometheus_settings, reflector_settings
from common.usage import prometheus

CONFIG = RebalancerConfiguration()


def test_reading() -> None:
    assert reflector_settings(CONFIG) == ReflectorSettings()


def test_load() -> None:
    assert load_settings(CONFIG) == LoadSettings()


def test_prometheus() -> None:
    url = "http://prometheus"
    assert prometheus_settings(Prometheus(url=url)) == prometheus.PrometheusSettings(url)
    assert prometheus_settings(None) is None


def test_leader_election() -> None:
    election = CONFIG.leader_election
    assert ElectionSettings() == ElectionSettings(
        lease_duration_s=election.lease_duration.seconds,
        renew_deadline_s=election.renew_deadline.seconds,
        retry_period_s=election.retry_period.seconds,
    )


def test_every_query_can_be_replaced() -> None:
    assert set(Queries.model_fields) == set(prometheus.Queries.__slots__)

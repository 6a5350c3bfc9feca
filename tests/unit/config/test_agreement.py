"""The defaults on the reference page are the ones that the parts themselves have."""

from __future__ import annotations

from common.config import Prometheus, Queries, RebalancerConfiguration
from common.kube.leader import ElectionSettings
from common.kube.reflector import ReflectorSettings
from common.load import settings as load
from common.usage import prometheus

CONFIG = RebalancerConfiguration()


def test_reading() -> None:
    reading = CONFIG.reading
    assert ReflectorSettings() == ReflectorSettings(
        page_size=reading.page_size,
        min_watch_s=reading.min_watch.seconds,
        max_watch_s=reading.max_watch.seconds,
        watch_grace_s=reading.watch_grace.seconds,
        silence_s=reading.silence.seconds,
        stale_after_s=reading.stale_after.seconds,
        backoff_min_s=reading.backoff_min.seconds,
        backoff_max_s=reading.backoff_max.seconds,
        connect_s=reading.connect_timeout.seconds,
    )


def test_leader_election() -> None:
    election = CONFIG.leader_election
    assert ElectionSettings() == ElectionSettings(
        lease_duration_s=election.lease_duration.seconds,
        renew_deadline_s=election.renew_deadline.seconds,
        retry_period_s=election.retry_period.seconds,
    )


def test_load() -> None:
    assert load.LoadSettings() == load.LoadSettings(
        metric_expiry_s=CONFIG.metric_expiry.seconds,
        clock_skew_s=CONFIG.clock_skew.seconds,
        smoothing_s=CONFIG.smoothing.seconds,
        peak_s=CONFIG.peak_decay.seconds,
        estimates=load.EstimateSettings(
            cpu_of_request=CONFIG.estimates.cpu_of_request,
            mem_of_request=CONFIG.estimates.memory_of_request,
            default_cpu_milli=CONFIG.estimates.cpu_milli,
            default_mem_bytes=CONFIG.estimates.mem_bytes,
        ),
    )


def test_prometheus() -> None:
    wanted = Prometheus(url="http://prometheus")
    assert prometheus.PrometheusSettings("http://prometheus") == prometheus.PrometheusSettings(
        wanted.url,
        bearer_token_file=wanted.bearer_token_file,
        ca_file=wanted.ca_file,
        insecure_skip_verify=wanted.insecure_skip_verify,
        timeout_s=wanted.timeout.seconds,
        window_s=wanted.window.seconds,
        node_label=wanted.node_label,
        queries=prometheus.Queries(**wanted.queries.model_dump()),
    )


def test_every_query_can_be_replaced() -> None:
    assert set(Queries.model_fields) == set(prometheus.Queries.__slots__)

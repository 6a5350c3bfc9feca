# SPDX-License-Identifier: Apache-2.0
"""For every alert: a history in which it fires, and histories in which it must not.

Histories are in the notation of `promtool test rules`, one value a minute: `0x60` is 0 for an
hour, `0+2x60` grows by 2 a minute, `_x10` is nothing for ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]  # Any: a JSON object


@dataclass(frozen=True)
class Case:
    """What Prometheus has seen, and how many alerts of one name then fire."""

    alert: str
    what: str
    series: dict[str, str]
    minutes: int
    firing: int = 0

    def __str__(self) -> str:
        return f"{self.alert}: {self.what}"

    def as_test(self) -> Json:
        """Return the case as an entry of promtool's test file."""
        asked = f'count(ALERTS{{alertname="{self.alert}", alertstate="firing"}})'
        expected = [{"labels": "{}", "value": self.firing}] if self.firing else []
        return {
            "name": str(self),
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in self.series.items()],
            "promql_expr_test": [
                {"expr": asked, "eval_time": f"{self.minutes}m", "exp_samples": expected}
            ],
        }


LEADS: Final = 'evenkeel_leader{job="r", instance="1"}'
WAITS: Final = 'evenkeel_leader{job="r", instance="2"}'
ONE_LEADS: Final = {LEADS: "1x400", WAITS: "0x400"}
EXTENDER: Final = 'evenkeel_build_info{job="e", instance="1", program="extender"}'


def _by(metric: str, instance: str, **labels: str) -> str:
    more = "".join(f', {key}="{value}"' for key, value in labels.items())
    return f'{metric}{{job="r", instance="{instance}"{more}}}'


def _ended(**per_hour: int) -> dict[str, str]:
    """Return Migrations that end at a steady pace."""
    return {
        f'evenkeel_migrations_total{{outcome="{name}"}}': f"0+{count / 60}x400"
        for name, count in per_hour.items()
    }


def _prioritized(cause: str, share: float) -> dict[str, str]:
    neutral = f'evenkeel_neutral_answers_total{{verb="prioritize", cause="{cause}"}}'
    asked = 'evenkeel_extender_requests_total{verb="prioritize", code="200"}'
    return {neutral: f"0+{60 * share}x60", asked: "0+60x60"}


def _slow(le: str) -> dict[str, str]:
    """Return answers of which all take no longer than `le`, in seconds."""
    bounds = ("0.05", "0.1", "0.25", "+Inf")
    full = bounds.index(le)
    name = "evenkeel_extender_request_duration_seconds_bucket"
    return {
        f'{name}{{verb="filter", le="{bound}"}}': "0+60x60" if at >= full else "0x60"
        for at, bound in enumerate(bounds)
    }


def _internal(values: str) -> dict[str, str]:
    return {'evenkeel_neutral_answers_total{verb="filter", cause="internal"}': values}


def _waiting(accepted: str) -> dict[str, str]:
    return {
        **ONE_LEADS,
        _by("evenkeel_maintenance_pods", "1", state="waiting"): "3x200",
        'evenkeel_evictions_total{result="accepted"}': accepted,
    }


def _seen(live: str) -> dict[str, str]:
    """Return how many extenders the leader sees, where none is scraped."""
    return {
        LEADS: "1x1700",
        WAITS: "0x1700",
        _by("evenkeel_extenders_live", "1"): live,
        _by("evenkeel_extenders_live", "2"): "0x1700",
    }


_FILTERED: Final = 'evenkeel_extender_requests_total{verb="filter", code="200"}'
_CYCLES: Final = 'evenkeel_cycles_total{result="failed"}'
_IN_A_ROW: Final = 'evenkeel_cycles_failed_in_a_row{namespace="evenkeel", pod="r-1"}'
_REFUSED: Final = 'evenkeel_config_refused{namespace="evenkeel", pod="r-1"}'
_UP: Final = 'up{job="evenkeel-extender-metrics", pod="e-1"}'
_MISSING: Final = 'evenkeel_usage_missing{namespace="evenkeel", pod="e-1"}'
_SAMPLED: Final = 'evenkeel_usage_sample_timestamp_seconds{namespace="evenkeel", pod="e-1"}'
_STALE: Final = 'evenkeel_cache_staleness_seconds{pod="e-1", kind="Pod"}'

_FIRST: Final = 'leader_election_master_status{job="evenkeel-scheduler-metrics", pod="s-1"}'
_OTHER: Final = 'leader_election_master_status{job="evenkeel-scheduler-metrics", pod="s-2"}'
_FOREIGN: Final = 'leader_election_master_status{job="kube-scheduler", pod="k-1"}'


def _in(cluster: str, series: str) -> str:
    return f'{series[:-1]}, cluster="{cluster}"}}'


CASES: Final = (
    Case("EvenkeelSchedulerDown", "it went away", {_FIRST: "1x10 _x60"}, 30, 1),
    Case("EvenkeelSchedulerDown", "gone since yesterday", {_FIRST: "1x10 _x1700"}, 1700, 1),
    Case("EvenkeelSchedulerDown", "no one leads", {_FIRST: "1x10 0x60", _OTHER: "0x70"}, 30, 1),
    Case("EvenkeelSchedulerDown", "another leads", {_FIRST: "1x10 0x60", _OTHER: "0x10 1x60"}, 30),
    Case("EvenkeelSchedulerDown", "it is restarted", {_FIRST: "1x10 _x2 1x60"}, 13),
    Case("EvenkeelSchedulerDown", "there never was one", {LEADS: "1x60"}, 30),
    Case("EvenkeelSchedulerDown", "it was never scraped", {_FIRST: "_x60"}, 30),
    Case("EvenkeelSchedulerDown", "only the cluster's own one", {_FOREIGN: "1x10 0x60"}, 30),
    Case(
        "EvenkeelSchedulerDown",
        "in one of two clusters",
        {_in("a", _FIRST): "1x10 _x60", _in("b", _FIRST): "1x70"},
        30,
        1,
    ),
    Case("EvenkeelExtenderDown", "it went away", {EXTENDER: "1x10 _x60"}, 30, 1),
    Case("EvenkeelExtenderDown", "it runs", {EXTENDER: "1x60"}, 30),
    Case("EvenkeelExtenderDown", "it is restarted", {EXTENDER: "1x10 _x3 1x60"}, 14),
    Case("EvenkeelExtenderDown", "there never was one", {LEADS: "1x60"}, 30),
    Case("EvenkeelExtenderDown", "not scraped, the leader lost it", _seen("2x10 0x60"), 30, 1),
    Case("EvenkeelExtenderDown", "not scraped, the leader sees it", _seen("2x60"), 30),
    Case("EvenkeelExtenderDown", "not scraped, it is restarted", _seen("2x10 0x3 2x60"), 14),
    Case("EvenkeelExtenderDown", "the leader never saw one", _seen("0x60"), 30),
    Case("EvenkeelExtenderDown", "only gone since long", _seen("2x10 0x1600"), 1500),
    Case(
        "EvenkeelExtenderDown",
        "no one leads, so no one knows",
        {LEADS: "1x10 0x60", _by("evenkeel_extenders_live", "1"): "2x10 0x60"},
        30,
    ),
    Case(
        "EvenkeelExtenderDown",
        "it runs, and only its Lease is not seen",
        {**_seen("2x10 0x60"), EXTENDER: "1x60"},
        30,
    ),
    Case(
        "EvenkeelExtenderDown",
        "seen by the one that leads now",
        {
            LEADS: "1x10 0x60",
            WAITS: "0x10 1x60",
            _by("evenkeel_extenders_live", "1"): "2x10 0x60",
            _by("evenkeel_extenders_live", "2"): "0x10 2x60",
        },
        30,
    ),
    Case("EvenkeelExtenderNotAsked", "no scheduler asks", {_FILTERED: "0x90"}, 80, 1),
    Case("EvenkeelExtenderNotAsked", "it was asked once", {_FILTERED: "0x10 1x90"}, 80),
    Case("EvenkeelExtenderNotAsked", "there is none", {LEADS: "1x90"}, 80),
    Case(
        "EvenkeelExtenderNotAsked",
        "another replica is asked",
        {_FILTERED: "0x90", f'{_FILTERED[:-1]}, instance="2"}}': "0+5x90"},
        80,
    ),
    Case("EvenkeelExtenderNeutral", "no load is known", _prioritized("resting", 1), 40, 1),
    Case("EvenkeelExtenderNeutral", "just started", _prioritized("cold", 1), 8),
    Case("EvenkeelExtenderNeutral", "some answers", _prioritized("resting", 0.3), 40),
    Case("EvenkeelExtenderNeutral", "pods that make no sense", _prioritized("pod", 1), 40),
    Case("EvenkeelExtenderNeutral", "no scheduler asks", {_FILTERED: "0x60"}, 40),
    Case("EvenkeelExtenderBug", "the first one", _internal("_x20 1x60"), 25, 1),
    Case("EvenkeelExtenderBug", "another one", _internal("1x40 2x60"), 45, 1),
    Case("EvenkeelExtenderBug", "long ago", _internal("_x20 1x60"), 50),
    Case("EvenkeelExtenderSlow", "a quarter of a second", _slow("0.25"), 40, 1),
    Case("EvenkeelExtenderSlow", "as quick as ever", _slow("0.05"), 40),
    Case(
        "EvenkeelExtenderNotSeen",
        "no Lease",
        {**ONE_LEADS, EXTENDER: "1x60", _by("evenkeel_extenders_live", "1"): "0x60"},
        30,
        1,
    ),
    Case(
        "EvenkeelExtenderNotSeen",
        "seen by the leader",
        {
            **ONE_LEADS,
            EXTENDER: "1x60",
            _by("evenkeel_extenders_live", "1"): "1x60",
            _by("evenkeel_extenders_live", "2"): "0x60",
        },
        30,
    ),
    Case("EvenkeelNoLeader", "two wait", {LEADS: "0x60", WAITS: "0x60"}, 30, 1),
    Case("EvenkeelNoLeader", "none runs", {EXTENDER: "1x60"}, 30, 1),
    Case("EvenkeelNoLeader", "nothing is installed", {'up{job="other"}': "1x60"}, 30),
    Case("EvenkeelNoLeader", "one leads", ONE_LEADS, 30),
    Case("EvenkeelNoLeader", "it changes", {LEADS: "1x10 0x60", WAITS: "0x13 1x60"}, 30),
    Case("EvenkeelPlanningFails", "every cycle", {_CYCLES: "0+2x60"}, 40, 1),
    Case("EvenkeelEveryCycleFails", "five in a row", {_IN_A_ROW: "0x10 1 2 3 4 5x60"}, 20, 1),
    Case("EvenkeelEveryCycleFails", "two, an hour apart", {_IN_A_ROW: "0x5 1x60 2x60"}, 120),
    Case("EvenkeelEveryCycleFails", "an hour apart, three", {_IN_A_ROW: "1x60 2x60 3x60"}, 130, 1),
    Case("EvenkeelEveryCycleFails", "every other cycle", {_IN_A_ROW: "0 1 0 1 0 2 0 1x60"}, 40),
    Case("EvenkeelEveryCycleFails", "none, or a standby", {_IN_A_ROW: "0x60"}, 40),
    Case("EvenkeelPlanningFails", "one cycle, long ago", {_CYCLES: "0x2 1x60"}, 40),
    Case("EvenkeelConfigRefused", "a bad key", {_REFUSED: "0x10 1x60"}, 30, 1),
    Case("EvenkeelConfigRefused", "fixed", {_REFUSED: "0x10 1x3 0x60"}, 30),
    Case(
        "EvenkeelBreakerOpen",
        "for load",
        {
            **ONE_LEADS,
            _by("evenkeel_breaker_open", "1", purpose="load"): "0x10 1x60",
            _by("evenkeel_breaker_open", "1", purpose="maintenance"): "0x60",
        },
        30,
        1,
    ),
    Case(
        "EvenkeelBreakerOpen",
        "one may try",
        {**ONE_LEADS, _by("evenkeel_breaker_open", "1", purpose="load"): "0.5x60"},
        30,
    ),
    Case(
        "EvenkeelBreakerOpen",
        "only by one that led before",
        {
            **ONE_LEADS,
            _by("evenkeel_breaker_open", "1", purpose="load"): "0x60",
            _by("evenkeel_breaker_open", "2", purpose="load"): "1x60",
        },
        30,
    ),
    Case("EvenkeelMigrationsFailing", "half", _ended(AsPlanned=6, Failed=6), 120, 1),
    Case("EvenkeelMigrationsFailing", "two of two", _ended(Failed=2), 120),
    Case("EvenkeelMigrationsFailing", "few of many", _ended(AsPlanned=60, Failed=6), 120),
    Case("EvenkeelIntentHitRateLow", "every fifth", _ended(AsPlanned=8, Elsewhere=2), 380, 1),
    Case("EvenkeelIntentHitRateLow", "all land", _ended(AsPlanned=10), 380),
    Case("EvenkeelIntentHitRateLow", "a handful", _ended(AsPlanned=0, Elsewhere=1), 380),
    Case("EvenkeelIntentHitRateLow", "not needed", _ended(AsPlanned=8, NotReplaced=9), 380),
    Case("EvenkeelMovesUnguided", "one", _ended(AsPlanned=8, Unguided=1), 90, 1),
    Case("EvenkeelMovesUnguided", "none", _ended(AsPlanned=8, Unguided=0), 90),
    Case(
        "EvenkeelSchedulerShowsTooLittle",
        "less than half",
        {**ONE_LEADS, _by("evenkeel_extender_share", "1", scheduler="s"): "0.42x60"},
        40,
        1,
    ),
    Case(
        "EvenkeelSchedulerShowsTooLittle",
        "all",
        {**ONE_LEADS, _by("evenkeel_extender_share", "1", scheduler="s"): "1x60"},
        40,
    ),
    Case("EvenkeelMaintenanceStuck", "nothing leaves", _waiting("5x200"), 90, 1),
    Case("EvenkeelMaintenanceStuck", "some leave", _waiting("0+0.1x200"), 90),
    Case("EvenkeelTargetDown", "not reached", {_UP: "1x10 0x60"}, 40, 1),
    Case("EvenkeelTargetDown", "reached", {_UP: "1x60"}, 40),
    Case("EvenkeelTargetDown", "not ours", {'up{job="else"}': "0x60"}, 40),
    Case("EvenkeelMetricsStale", "stopped", {_SAMPLED: "0+60x10 600x60"}, 40, 1),
    Case("EvenkeelMetricsStale", "never read", {_SAMPLED: "0x60"}, 40, 1),
    Case("EvenkeelMetricsStale", "read every minute", {_SAMPLED: "0+60x60"}, 40),
    Case("EvenkeelNoMetrics", "none", {_MISSING: "1x60"}, 40, 1),
    Case("EvenkeelNoMetrics", "just installed", {_MISSING: "1x30 0x30"}, 40),
    Case(
        "EvenkeelNodesUnknown",
        "some",
        {EXTENDER: "1x60", 'evenkeel_nodes_unknown{job="e", instance="1"}': "2x60"},
        40,
        1,
    ),
    Case(
        "EvenkeelNodesUnknown",
        "only by one that led before",
        {
            **ONE_LEADS,
            _by("evenkeel_nodes_unknown", "1"): "0x60",
            _by("evenkeel_nodes_unknown", "2"): "2x60",
        },
        40,
    ),
    Case("EvenkeelCacheStale", "silence", {_STALE: "0+60x60"}, 40, 1),
    Case("EvenkeelCacheStale", "bookmarks come", {_STALE: "45x60"}, 40),
)

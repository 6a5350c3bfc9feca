"""What both programs are told in a demo: `simulator/demo.yaml`, and how to put it in words.

The file is the only place where a demo differs from the defaults. Whatever is shorter there
is named on screen beside its default, so that nobody takes the demo's pace for a promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.config import ExtenderConfiguration, RebalancerConfiguration, load_config
from common.config.durations import Duration
from simulator.process import CannotServe

FILE: Final = Path(__file__).parents[1] / "demo.yaml"
REPOSITORY: Final = FILE.parents[1]
DEFINITIONS: Final = REPOSITORY / "deploy" / "crds" / "migrations.yaml"
SCHEDULER: Final = REPOSITORY / "scheduler-config.yaml"
NAMESPACE: Final = "evenkeel"

_SHIPPED_URL: Final = "http://127.0.0.1:8888"
WAITS: Final = {
    "rescheduling_interval": "a cycle every",
    "usage_interval": "usage read every",
    "observations": "samples that must agree",
    "smoothing": "smoothing",
    "revalidate_after": "plans held for",
    "min_pod_age": "pods rest for",
    "min_node_age": "new nodes for",
    "workload_cooldown": "workloads for",
}
"""Keys of the rebalancer's configuration that are waits, in words."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """Both configurations, and the files that the programs read."""

    extender_file: Path
    rebalancer_file: Path
    extender: ExtenderConfiguration
    rebalancer: RebalancerConfiguration

    @property
    def ceiling(self) -> float:
        """Percent of CPU above which a node is hot."""
        return float(self.rebalancer.cpu_threshold)

    def waits(self) -> str:
        """Say which waits are shorter than by default."""
        default = RebalancerConfiguration()
        named = [
            f"{words} {_amount(getattr(self.rebalancer, key))} ({_amount(getattr(default, key))})"
            for key, words in WAITS.items()
            if getattr(self.rebalancer, key) != getattr(default, key)
        ]
        named[:1] = [text.replace("(", "(default ") for text in named[:1]]
        return f"Short waits for the demo: {', '.join(named)}."


def load(folder: Path) -> DemoSettings:
    """Write the two configurations of the demo into a folder, a file each, and read them."""
    extender, rebalancer = folder / "extender.yaml", folder / "rebalancer.yaml"
    for path, text in zip((extender, rebalancer), _parts(FILE.read_text()), strict=True):
        path.write_text(text)
    return DemoSettings(
        extender,
        rebalancer,
        load_config(str(extender), ExtenderConfiguration),
        load_config(str(rebalancer), RebalancerConfiguration),
    )


def scheduler_config(folder: Path, extender_port: int) -> Path:
    """Write the scheduler configuration that users copy, with this extender in it."""
    text = _text(SCHEDULER)
    if _SHIPPED_URL not in text:
        raise CannotServe(f"{SCHEDULER} does not name the extender {_SHIPPED_URL}")
    path = folder / "scheduler-config.yaml"
    path.write_text(text.replace(_SHIPPED_URL, f"http://127.0.0.1:{extender_port}"))
    return path


def definitions() -> str:
    """Return the definition of Migrations, as YAML."""
    return _text(DEFINITIONS)


def _parts(text: str) -> list[str]:
    return text.split("\n---\n")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise CannotServe(f"{path}: {why}; the demo runs from a copy of the repository") from None


def _amount(value: Duration | int) -> str:
    return f"{value.seconds:g} s" if isinstance(value, Duration) else str(value)

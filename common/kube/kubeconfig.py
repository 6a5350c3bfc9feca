# SPDX-License-Identifier: Apache-2.0
"""Finding the cluster, and staying logged in to it.

The official client reads kubeconfigs and service accounts and runs exec plugins; here
stands in which order they are looked for, and when a credential is read again. Two
invariants: an explicit choice is never silently replaced by another cluster, and the
error names on one line every way that was tried.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog
import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.dateutil import parse_rfc3339
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes.aio.config.kube_config import (
    ConfigNode,
    FileOrData,
    KubeConfigLoader,
    KubeConfigMerger,
)

from common.clock import Clock
from common.kube.errors import KubeconfigError
from common.kube.exec_plugin import run_plugin

log: structlog.stdlib.BoundLogger = structlog.get_logger()

# client-go reads a token file again as often (transport/token_source.go).
_REREAD_S: Final = 60.0
# A token that expires while the request travels is of no use.
_EXPIRY_MARGIN_S: Final = 10.0
_HOME: Final = "~/.kube/config"


Certificate = tuple[str, int]
Identity = tuple[str | None, Certificate | None]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides about the cluster besides the flags."""

    environ: Mapping[str, str]
    home: Path
    token_file: str = SERVICE_TOKEN_FILENAME
    ca_file: str = SERVICE_CERT_FILENAME

    @classmethod
    def of_process(cls) -> Surroundings:
        return cls(os.environ, Path(_HOME).expanduser())


async def log_in(
    *,
    kubeconfig: str | None,
    context: str | None,
    clock: Clock,
    surroundings: Surroundings | None = None,
) -> Login:
    """Find the cluster in the order flag, KUBECONFIG, in-cluster, home, and log in to it."""
    around = surroundings or Surroundings.of_process()
    login = _choose(kubeconfig, context, around, clock)
    await login.load()
    return login


def _choose(flag: str | None, context: str | None, around: Surroundings, clock: Clock) -> Login:
    if flag:
        return _from_files(f"--kubeconfig {flag}", [flag], context, clock)
    listed = around.environ.get("KUBECONFIG", "")
    if listed:
        paths = [path for path in listed.split(os.pathsep) if path]
        return _from_files(f"KUBECONFIG={listed}", paths, context, clock)
    missing = _why_not_in_cluster(around, context)
    if not missing:
        return _from_service_account(around, clock)
    if around.home.exists():
        return _from_files(str(around.home), [str(around.home)], context, clock)
    raise KubeconfigError(
        "no cluster configured: --kubeconfig is not given; KUBECONFIG is not set; "
        f"in-cluster: {missing}; {around.home} does not exist"
    )


def _why_not_in_cluster(around: Surroundings, context: str | None) -> str:
    if not around.environ.get(SERVICE_HOST_ENV_NAME):
        return f"{SERVICE_HOST_ENV_NAME} is not set"
    if context:
        return "a service account has no contexts"
    return "" if Path(around.token_file).exists() else f"{around.token_file} does not exist"


def _from_service_account(around: Surroundings, clock: Clock) -> Login:
    loader = InClusterConfigLoader(
        around.token_file, around.ca_file, try_refresh_token=False, environ=around.environ
    )
    return Login(loader, source="in-cluster", clock=clock, reread_s=_REREAD_S)


def _from_files(source: str, paths: Sequence[str], context: str | None, clock: Clock) -> Login:
    present = [path for path in paths if Path(path).expanduser().exists()]
    if not present:
        raise KubeconfigError(f"{source}: no such file")
    with _explained(source):
        merged = KubeConfigMerger(os.pathsep.join(present))
        loader = _Loader(
            config_dict=merged.config,
            active_context=context or _current_context(merged.config_files.values()),
            config_base_path=None,
            clock=clock,
        )
    return Login(loader, source=source, clock=clock, reread_s=loader.reread_s)


def _current_context(files: Any) -> str:
    # kubectl lets the first file win that sets it; the official merger takes the last.
    for config in files:
        if config.get("current-context"):
            return str(config["current-context"])
    raise ConfigException("no current-context")


class _Loader(KubeConfigLoader):  # type: ignore[misc]  # the official client is untyped to us
    """The official loader, but a missing user or a failing plugin is an error with words."""

    _user: Any  # a ConfigNode

    def __init__(self, *, clock: Clock, **settings: Any) -> None:
        self._clock = clock
        self.expires_at: float | None = None
        super().__init__(**settings)

    @property
    def reread_s(self) -> float | None:
        """Tell how often the credential may have changed behind our back; None: never."""
        changes = "tokenFile" in self._user or self.provider is not None
        return _REREAD_S if changes else None

    def set_active_context(self, context_name: str | None = None) -> None:
        names = [entry["name"] for entry in self._config["contexts"].value]
        if context_name not in names:
            known = ", ".join(names) or "none"
            raise ConfigException(f"context {context_name!r} does not exist (known: {known})")
        super().set_active_context(context_name)
        user = self._current_context["context"].safe_get("user")
        if user and self._user is None:
            raise ConfigException(f"user {user!r} of context {context_name!r} does not exist")
        if self._user is None:
            self._user = ConfigNode("anonymous", {}, self._cluster.path)

    async def load_from_exec_plugin(self) -> bool:
        status = await run_plugin(self._user["exec"], self._clock)
        if status.token:
            self.token = f"Bearer {status.token}"
        if status.client_certificate_data:
            self.cert_file = _as_file(status.client_certificate_data)
            self.key_file = _as_file(status.client_key_data)
        expiry = status.expiration_timestamp
        self.expires_at = parse_rfc3339(expiry).timestamp() if expiry else None
        return True


class Login:
    """A configuration of the official client whose credentials stay fresh.

    They are read again when they expire, when their file may have changed, and once when
    the server refuses them.
    """

    def __init__(
        self,
        loader: InClusterConfigLoader | _Loader,
        *,
        source: str,
        clock: Clock,
        reread_s: float | None,
    ) -> None:
        self.source = source
        self.configuration = Configuration()
        # Python 3.13 demands extensions of CA certificates that Go never asked for.
        self.configuration.disable_strict_ssl_verification = True
        self._loader = loader
        self._clock = clock
        self._reread_s = reread_s
        self._read_at = clock.monotonic()
        self._lock = asyncio.Lock()

    @property
    def token(self) -> str | None:
        """Return the Authorization header as it would be sent now."""
        token: str | None = self.configuration.api_key.get("BearerToken")
        return token

    @property
    def certificate(self) -> Certificate | None:
        """Return the current client certificate, and when it was written."""
        path = self.configuration.cert_file
        return (path, _changed_at(path)) if path else None

    async def load(self) -> None:
        """Read the credentials and the address of the server."""
        with _explained(self.source):
            done = self._loader.load_and_set(self.configuration)
            if inspect.isawaitable(done):
                await done
        self._read_at = self._clock.monotonic()
        self._tidy()

    @property
    def identity(self) -> Identity:
        """Return the identity that a request would have now."""
        return self.token, self.certificate

    async def renew(self, refused: Identity) -> bool:
        """Tell whether there is another identity than the one that the server refused."""
        async with self._lock:
            if self.identity == refused and (self._from_plugin or self._reread_s is not None):
                await self.load()
            return self.identity != refused

    async def refresh_if_due(self) -> None:
        """Read the credentials again if they expire or may have changed."""
        if not self._due():
            return
        async with self._lock:
            if self._due():
                await self._refresh()

    @property
    def _from_plugin(self) -> bool:
        return isinstance(self._loader, _Loader) and "exec" in self._loader._user

    def _due(self) -> bool:
        expires_at = getattr(self._loader, "expires_at", None)
        if expires_at is not None:
            return bool(self._clock.now() >= expires_at - _EXPIRY_MARGIN_S)
        age_s = self._clock.monotonic() - self._read_at
        return self._reread_s is not None and age_s >= self._reread_s

    async def _refresh(self) -> None:
        try:
            await self.load()
        except KubeconfigError as error:
            if self._from_plugin:
                raise
            # A file that is being replaced: the old token is good until the server says no.
            self._read_at = self._clock.monotonic()
            log.warning("credentials not read again", error=str(error))

    def _tidy(self) -> None:
        host = self.configuration.host
        if urlsplit(host).scheme not in ("http", "https"):
            raise KubeconfigError(f"{self.source}: {host!r} is not the address of an API server")
        if self.token is not None:
            # A newline at the end of a token file would make an invalid header.
            self.configuration.api_key["BearerToken"] = self.token.strip()
        self.configuration.proxy = self.configuration.proxy or _proxy_for(host)


def _proxy_for(server: str) -> str | None:
    # Decided once instead of with aiohttp's `trust_env`, which also reads ~/.netrc in a
    # thread for each request, and refuses to send a token to a host that it finds there.
    url = urlsplit(server)
    proxy = getproxies().get(url.scheme)
    return None if proxy is None or proxy_bypass(url.hostname or "") else proxy


def _as_file(text: str) -> Any:
    return FileOrData({"data": text}, "file", "data", base64_file_content=False).as_file()


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@contextmanager
def _explained(source: str) -> Iterator[None]:
    """Turn what the official loaders raise on bad input into one line with its source."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise KubeconfigError(f"{source}: not YAML: {error.problem} in line {line}") from error
    except (KeyError, TypeError, AttributeError) as error:
        # The loaders index and iterate whatever the file holds.
        raise KubeconfigError(f"{source}: not a kubeconfig ({_one_line(error)})") from error
    except (ConfigException, yaml.YAMLError, OSError, ValueError) as error:
        raise KubeconfigError(f"{source}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    # The official loader names an entry by its whole content, keys and tokens included.
    return text.split("/{")[0] if text.startswith("Invalid kube-config") else text

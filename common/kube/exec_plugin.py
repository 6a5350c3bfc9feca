# SPDX-License-Identifier: Apache-2.0
"""Runs the programs that hand out credentials (`exec` in a kubeconfig).

Command line and environment are read by the official client. Running is ours, because a
plugin that waits for keyboard input must be ended, with everything it started,
and because what it says on stderr is what people need to read.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any, Final

import msgspec
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider

from common.clock import Clock, within
from common.kube.translate import shortened

_LIMIT_S: Final = 60.0


class PluginStatus(msgspec.Struct, rename="camel"):
    """What a plugin hands out: a token, or a certificate with its key."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str
    status: PluginStatus


_CREDENTIAL: Final = msgspec.json.Decoder(_Credential)


async def run_plugin(settings: Any, clock: Clock) -> PluginStatus:
    """Run the plugin of a kubeconfig's user (a ConfigNode) and return what it gave."""
    provider = ExecProvider(settings)
    try:
        output = await within(clock, _LIMIT_S, _output_of(provider))
    except FileNotFoundError as error:
        hint = settings.safe_get("installHint") or ""
        raise ConfigException(f"exec plugin {provider.args[0]} is missing. {hint}") from error
    except TimeoutError as error:
        raise ConfigException(f"exec plugin {provider.args[0]} took too long") from error
    return _checked(provider, output)


def _checked(provider: ExecProvider, output: bytes) -> PluginStatus:
    name = provider.args[0]
    try:
        credential = _CREDENTIAL.decode(output)
    except ValueError as error:
        raise ConfigException(f"exec plugin {name} gave no ExecCredential: {error}") from error
    if credential.api_version != provider.api_version:
        raise ConfigException(
            f"exec plugin {name} speaks {credential.api_version}, not {provider.api_version}"
        )
    status = credential.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ConfigException(f"exec plugin {name} gave neither a token nor certificate and key")
    return status


async def _output_of(provider: ExecProvider) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *provider.args,
        env={**provider.env, "KUBERNETES_EXEC_INFO": _info(provider)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, said = await process.communicate()
    finally:
        if process.returncode is None:
            await _end(process)
    if process.returncode:
        words = shortened(said.decode("utf-8", "replace"))
        code = process.returncode
        raise ConfigException(f"exec plugin {provider.args[0]} exited with {code}: {words}")
    return output


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        # The whole session: a shell's children would keep our pipes open.
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _info(provider: ExecProvider) -> str:
    info = {
        "apiVersion": provider.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    return msgspec.json.encode(info).decode()

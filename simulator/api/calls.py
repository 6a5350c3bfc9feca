# SPDX-License-Identifier: Apache-2.0
"""Parsed requests: the target object and the operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from simulator.api.deletion import DeleteOptions
from simulator.api.errors import (
    BadRequest,
    NotSupported,
    UnsupportedMedia,
    invalid_options,
    no_such_method,
    no_such_route,
    unknown_value,
)
from simulator.api.kind import Kind, Kinds
from simulator.api.storage import Json

_decode: Final = msgspec.json.Decoder().decode
_ON_COLLECTION: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ON_OBJECT: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_PARTS: Final = ("status", "finalize")
_OPTIONS_OF: Final = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
    "deletecollection": "DeleteOptions",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names."""

    kind: Kind
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    @property
    def resource(self) -> str:
        """Return the plural, with the subresource after a slash."""
        plural = self.kind.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


def target_of(kinds: Kinds, group: str, version: str, rest: Sequence[str]) -> Target:
    """Find what the part of a path after the group version names."""
    served = kinds.group_version(group, version)
    if served is None:
        raise no_such_route()
    if rest[0] == "watch":
        raise NotSupported("the simulator watches with `?watch=true` only")
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and not _is_namespace_part(group, rest):
        namespace, rest = rest[1], rest[2:]
    kind = served.get(rest[0])
    if kind is None or len(rest) > 3:
        raise no_such_route()
    name, subresource = (*rest[1:], None, None)[:2]
    if (namespace is not None) != kind.resource.namespaced and (namespace or name):
        raise no_such_route()
    return Target(kind, namespace, name, subresource)


def _is_namespace_part(group: str, rest: Sequence[str]) -> bool:
    return not group and len(rest) == 3 and rest[2] in _NAMESPACE_PARTS


def verb_of(method: str, target: Target, *, watch: bool) -> str:
    """Return the verb of a method on a target, or raise if it is not allowed."""
    if target.subresource:
        return {**_ON_OBJECT, "POST": "create"}.get(method, method.lower())
    if target.name:
        verb = _ON_OBJECT.get(method)
    else:
        verb = _ON_COLLECTION.get(method)
        everywhere = target.kind.resource.namespaced and target.namespace is None
        if verb != "list" and everywhere:
            verb = None
        if verb == "list" and watch:
            verb = "watch"
    if verb is None or verb not in target.kind.verbs:
        raise no_such_method()
    return verb


@dataclass(frozen=True, slots=True)
class Call:
    """One request about objects."""

    verb: str
    target: Target
    params: Mapping[str, str]
    body: bytes = b""
    content_type: str = ""
    accept: str = ""

    @property
    def kind(self) -> Kind:
        return self.target.kind

    @property
    def name(self) -> str:
        if self.target.name is None:
            raise no_such_route()
        return self.target.name

    @property
    def namespace(self) -> str | None:
        return self.target.namespace

    @property
    def dry_run(self) -> bool:
        """Return whether the request is a dry run."""
        return check_dry_run(self.params.get("dryRun", ""), _OPTIONS_OF.get(self.verb, ""))

    def json(self) -> Any:
        """Return the decoded body of a patch."""
        try:
            return _decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"error decoding patch: {error}") from None

    def obj(self, kind: str, api_version: str) -> Json:
        """Return the object in the body; its type, if given, must be the expected one."""
        _check_media(self.content_type)
        try:
            obj = _decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            raise BadRequest(f"{message}version/kind; json parse error: {error}") from None
        if not isinstance(obj, dict):
            raise BadRequest(f"the object provided is unrecognized (must be of type {kind})")
        _check_type(obj, kind, api_version, custom=self.kind.custom)
        return obj

    def delete_options(self) -> DeleteOptions:
        """Return how to delete, from the body and the parameters."""
        body: Json = {}
        if self.body:
            _check_media(self.content_type)
            body = self._options_body()
        merged = {**body, **_deletion_parameters(self.params)}
        return parse_delete_options(merged)

    def _options_body(self) -> Json:
        try:
            body = _decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"couldn't get version/kind; json parse error: {error}"
            raise BadRequest(message) from None
        if not isinstance(body, dict) or body.get("kind", "DeleteOptions") != "DeleteOptions":
            raise BadRequest("the body of a deletion must be of type DeleteOptions")
        return body


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteBody(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None
    preconditions: _Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None


def parse_delete_options(body: Json) -> DeleteOptions:
    """Read a DeleteOptions object."""
    try:
        read = msgspec.convert(body, _DeleteBody, strict=False)
    except msgspec.ValidationError as error:
        message = f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {error}'
        raise BadRequest(message) from None
    expected = read.preconditions or _Preconditions()
    dry_run = check_dry_run(",".join(read.dry_run or ()), "DeleteOptions")
    return DeleteOptions(
        grace_s=read.grace_period_seconds,
        uid=expected.uid,
        resource_version=expected.resource_version,
        propagation=read.propagation_policy,
        orphan_dependents=read.orphan_dependents,
        dry_run=dry_run,
    )


def _deletion_parameters(params: Mapping[str, str]) -> Json:
    found: Json = {
        key: params[key]
        for key in ("gracePeriodSeconds", "propagationPolicy", "orphanDependents")
        if params.get(key)
    }
    if params.get("dryRun"):
        found["dryRun"] = [params["dryRun"]]
    return found


def check_dry_run(given: str, options: str) -> bool:
    """Return whether a dry run is requested; reject any other value than All."""
    if given and given != "All":
        raise invalid_options(options, unknown_value("dryRun", [given], ("All",)))
    return bool(given)


def _check_media(content_type: str) -> None:
    media = content_type.partition(";")[0].strip()
    if media and media != "application/json":
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
        )
        raise UnsupportedMedia(f"{message}application/json{_hint(media)}")


def _hint(media: str) -> str:
    """Say what to do where kubectl sends protobuf, as `kubectl create deployment` does."""
    if "protobuf" not in media:
        return ""
    return (
        " (the simulator reads JSON only: add --dry-run=client -o yaml to kubectl create, "
        "and pipe it to kubectl apply -f -)"
    )


def _check_type(obj: Json, kind: str, api_version: str, *, custom: bool) -> None:
    if custom and not obj.get("kind"):
        message = f"the object provided is unrecognized (must be of type {kind}): Object 'Kind' is "
        raise BadRequest(f"{message}missing")
    said = obj.get("apiVersion") or api_version
    if said != api_version:
        if custom:
            message = (
                f"the API version in the data ({said}) does not match the expected API version "
            )
            raise BadRequest(f"{message}({api_version})")
        message = f'{obj.get("kind", kind)} in version "{said}" cannot be handled as a {kind}'
        raise BadRequest(message)
    if not custom and (obj.get("kind") or kind) != kind:
        message = f'{obj["kind"]} in version "{said}" cannot be handled as a {kind}'
        raise BadRequest(f"{message}: unknown conversion")

# SPDX-License-Identifier: Apache-2.0
"""The verbs of the API and their responses, except watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from common.clock import Clock
from simulator.api import bindings, deletion, eviction, scales
from simulator.api.calls import Call, parse_delete_options
from simulator.api.deletion import Deleted
from simulator.api.errors import (
    BadRequest,
    NotFound,
    NotSupported,
    about,
    invalid,
    no_such_method,
    no_such_route,
    success,
    wrong,
)
from simulator.api.kinds.definitions import CustomStrategy
from simulator.api.kubectl.presentation import Presenter, presenter_of
from simulator.api.lists import Lister, ListOptions
from simulator.api.patches import Patch, kind_of
from simulator.api.registry import Registry
from simulator.api.storage import Json

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Endpoints:
    """Handles calls with the registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lister = Lister(registry.storage)
        self._verbs: Mapping[str, Callable[[Call], Answer]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        self._subresources: Mapping[str, Callable[[Call], Answer]] = {
            "status": self._on_status,
            "scale": self._on_scale,
            "binding": self._bind,
            "eviction": self._evict,
            "finalize": self._finalize,
        }

    @property
    def clock(self) -> Clock:
        return self._registry.clock

    def answer(self, call: Call) -> Answer:
        """Handle a call."""
        if call.target.subresource is None:
            return self._verbs[call.verb](call)
        return self._subresources[self._known_subresource(call)](call)

    def _known_subresource(self, call: Call) -> str:
        kind, wanted = call.kind, call.target.subresource or ""
        if wanted in kind.subresources.unsupported:
            raise NotSupported(f"the simulator does not support {call.target.resource}")
        if wanted == "status" and kind.subresources.status:
            allowed: tuple[str, ...] = ("get", "update", "patch")
        else:
            found = [sub.verbs for sub in kind.subresources.others if sub.name == wanted]
            if not found:
                raise self._no_subresource(call)
            allowed = found[0]
        if call.verb not in allowed:
            raise no_such_method()
        return wanted

    def _no_subresource(self, call: Call) -> NotFound:
        if call.kind.custom:
            self._registry.entry(call.kind, call.name, call.namespace)
            message = (
                f'{call.kind.resource.plural}.{call.kind.resource.group} "{call.name}" not found'
            )
            return NotFound(message, details=about(call.kind.resource, call.name))
        return no_such_route()

    def _presenter(self, call: Call) -> Presenter:
        return presenter_of(call.accept, call.kind, self.clock)

    def _get(self, call: Call) -> Answer:
        presenter = self._presenter(call)
        if call.params.get("resourceVersion"):
            self._lister.check_version(call.params["resourceVersion"])
        entry = self._registry.entry(call.kind, call.name, call.namespace)
        return Answer(presenter.item(entry))

    def _list(self, call: Call) -> Answer:
        presenter = self._presenter(call)
        options = ListOptions.parse(call.params)
        return Answer(presenter.page(self._lister.page(call.kind, call.namespace, options)))

    def _create(self, call: Call) -> Answer:
        presenter = self._presenter(call)
        dry_run = call.dry_run
        obj, headers = self._read(call)
        decoded = self._registry.decoded(call.kind, obj)
        entry = self._registry.create_decoded(call.kind, decoded, call.namespace, dry_run=dry_run)
        return Answer(presenter.item(entry), 201, headers)

    def _update(self, call: Call, *, status: bool = False) -> Answer:
        presenter = self._presenter(call)
        dry_run = call.dry_run
        obj, headers = self._read(call)
        entry, created = self._registry.update_decoded(
            call.kind,
            self._registry.decoded(call.kind, obj),
            call.name,
            call.namespace,
            status=status,
            dry_run=dry_run,
        )
        return Answer(presenter.item(entry), 201 if created else 200, headers)

    def _patch(self, call: Call, *, status: bool = False) -> Answer:
        presenter = self._presenter(call)
        entry = self._registry.patch_decoded(
            call.kind,
            self._read_patch(call),
            call.name,
            call.namespace,
            status=status,
            dry_run=call.dry_run,
        )
        return Answer(presenter.item(entry), headers=_unchecked(call))

    def _delete(self, call: Call) -> Answer:
        options = call.delete_options()
        deleted = deletion.delete(self._registry, call.kind, call.name, call.namespace, options)
        return Answer(_encode(self._deleted(call, deleted)))

    def _deleted(self, call: Call, deleted: Deleted) -> Json:
        if not deleted.gone or call.kind.strategy.returns_deleted:
            return deleted.obj
        details = about(call.kind.resource, call.name, uid=deleted.obj["metadata"]["uid"])
        return success(details=details)

    def _delete_collection(self, call: Call) -> Answer:
        options = call.delete_options()
        asked = ListOptions.parse(call.params)
        wanted = replace(asked, page=replace(asked.page, token=""), watch=False)
        page = self._lister.page(call.kind, call.namespace, wanted)
        for entry in page.entries:
            metadata = entry.obj["metadata"]
            deletion.delete(
                self._registry, call.kind, metadata["name"], metadata.get("namespace"), options
            )
        return Answer(self._presenter(call).page(page))

    def _on_status(self, call: Call) -> Answer:
        if call.verb == "get":
            return self._get(call)
        if call.verb == "update":
            return self._update(call, status=True)
        return self._patch(call, status=True)

    def _on_scale(self, call: Call) -> Answer:
        registry, place = self._registry, (call.name, call.namespace)
        if call.verb == "get":
            scale = scales.scale_of(registry.entry(call.kind, *place).obj)
        elif call.verb == "update":
            given = call.obj("Scale", "autoscaling/v1")
            manager = call.params.get("fieldManager", "")
            scale = scales.replace_scale(
                registry, call.kind, given, *place, manager=manager, dry_run=call.dry_run
            )
        else:
            patch = self._read_patch(call)
            scale = scales.patch_scale(registry, call.kind, patch, *place, dry_run=call.dry_run)
        return Answer(_encode(scale))

    def _bind(self, call: Call) -> Answer:
        binding = call.obj("Binding", "v1")
        dry_run = call.dry_run
        bindings.bind(self._registry, binding, call.name, call.namespace, dry_run=dry_run)
        return Answer(_encode(success(201)), 201)

    def bind_by_body(self, call: Call) -> Answer:
        """Answer a POST to `bindings`, which names the pod only in its body."""
        binding = call.obj("Binding", "v1")
        name = (binding.get("metadata") or {}).get("name") or ""
        bindings.bind(self._registry, binding, name, call.namespace, dry_run=call.dry_run)
        return Answer(_encode(success(201)), 201)

    def _evict(self, call: Call) -> Answer:
        body = self._read_eviction(call)
        if (body.get("metadata") or {}).get("name") != call.name:
            raise BadRequest("name in URL does not match name in Eviction object")
        options = parse_delete_options(body.get("deleteOptions") or {})
        options = replace(options, dry_run=options.dry_run or call.dry_run)
        eviction.evict(self._registry, call.name, call.namespace, options)
        return Answer(_encode(success(201)), 201)

    def _read_eviction(self, call: Call) -> Json:
        try:
            said = msgspec.json.decode(call.body).get("apiVersion")
        except (msgspec.DecodeError, AttributeError):
            said = None
        beta = (
            said == "policy/v1beta1"
        )  # the real server still accepts it, although it is no longer served
        return call.obj("Eviction", "policy/v1beta1" if beta else "policy/v1")

    def _finalize(self, call: Call) -> Answer:
        """Replace the finalizers in the spec of a namespace, which an update cannot change."""
        given = call.obj("Namespace", "v1")
        old = self._registry.entry(call.kind, call.name)
        self._registry.check_version(
            call.kind, (given.get("metadata") or {}).get("resourceVersion"), old
        )
        wanted = (given.get("spec") or {}).get("finalizers") or []
        obj = {**old.obj, "spec": {**old.obj["spec"], "finalizers": wanted}}
        if deletion.is_over(obj, old.obj):
            self._registry.storage.remove(call.kind.storage, old.key, obj)
            return Answer(_encode(obj))
        return Answer(self._registry.put(call.kind, old.key, obj).data)

    def _read_patch(self, call: Call) -> Patch:
        return Patch(kind_of(call.content_type, custom=call.kind.custom), call.json())

    def _read(self, call: Call) -> tuple[Json, Mapping[str, str]]:
        """Return the object in a body, and warnings about unknown fields."""
        resource = call.kind.resource
        obj = call.obj(resource.kind, resource.api_version)
        strategy = call.kind.strategy
        if not isinstance(strategy, CustomStrategy):
            return obj, _unchecked(call)
        self._check_custom_kind(call, obj)
        unknown = sorted(strategy.prune(obj))
        if not unknown or call.params.get("fieldValidation") == "Ignore":
            return obj, {}
        if call.params.get("fieldValidation") == "Strict":
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            message = f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            raise BadRequest(f"{message}{resource.kind}: strict decoding error: {listed}")
        warnings = ", ".join(f'299 - "unknown field \\"{path}\\""' for path in unknown)
        return obj, {"Warning": warnings}

    def _check_custom_kind(self, call: Call, obj: Json) -> None:
        resource = call.kind.resource
        if obj["kind"] != resource.kind:
            cause = wrong("kind", obj["kind"], f"must be {resource.kind}")
            name = (obj.get("metadata") or {}).get("name", "")
            raise invalid(obj["kind"], resource.group, name, [cause])


def _unchecked(call: Call) -> Mapping[str, str]:
    """Warn a client that asks for strict validation where fields are not validated."""
    if call.params.get("fieldValidation") != "Strict":
        return {}
    return {"Warning": '299 - "the simulator does not look for unknown fields here"'}

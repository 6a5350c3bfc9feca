# SPDX-License-Identifier: Apache-2.0
"""The shapes of events and of definitions; see `shapes`."""

from __future__ import annotations

from typing import Any

import msgspec

from simulator.api.kinds.shapes import Free, Int32, Int64, Shape


class Reference(Shape):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class Source(Shape):
    component: str = ""
    host: str = ""


class Series(Shape):
    count: Int32 = 0
    last_observed_time: str = ""


class Event(Shape):
    """An event in the stored form."""

    involved_object: Reference | None = None
    reason: str = ""
    message: str = ""
    type: str = ""
    action: str = ""
    count: Int32 = 0
    source: Source | None = None
    series: Series | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class Rule(Shape):
    rule: str = ""
    message: str = ""


class Schema(Shape):
    """A structural schema, as deep as it goes."""

    type: str = ""
    format: str = ""
    pattern: str = ""
    nullable: bool = False
    properties: dict[str, Schema] | None = None
    items: Schema | None = None
    additional_properties: bool | Schema | None = None
    required: tuple[str, ...] = ()
    enum: tuple[Any, ...] = ()  # Any: values of the type that the schema defines
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    min_length: Int64 | None = None
    max_length: Int64 | None = None
    min_items: Int64 | None = None
    max_items: Int64 | None = None
    min_properties: Int64 | None = None
    max_properties: Int64 | None = None
    preserve: bool = msgspec.field(name="x-kubernetes-preserve-unknown-fields", default=False)
    int_or_string: bool = msgspec.field(name="x-kubernetes-int-or-string", default=False)
    list_type: str = msgspec.field(name="x-kubernetes-list-type", default="")
    list_keys: list[str] = msgspec.field(name="x-kubernetes-list-map-keys", default_factory=list)
    rules: list[Rule] = msgspec.field(name="x-kubernetes-validations", default_factory=list)


class Validation(Shape):
    open_schema: Schema | None = msgspec.field(name="openAPIV3Schema", default=None)


class Selectable(Shape):
    json_path: str


class Column(Shape):
    name: str
    type: str
    json_path: str
    priority: Int32 = 0


class Subresources(Shape):
    status: Free | None = None
    scale: Free | None = None


class Version(Shape):
    name: str
    served: bool = False
    storage: bool = False
    schema: Validation | None = None
    subresources: Subresources | None = None
    selectable_fields: tuple[Selectable, ...] = ()
    additional_printer_columns: tuple[Column, ...] = ()


class Names(Shape):
    plural: str = ""
    singular: str = ""
    kind: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class Conversion(Shape):
    strategy: str = ""


class DefinitionSpec(Shape):
    group: str = ""
    scope: str = ""
    names: Names | None = None
    versions: tuple[Version, ...] = ()
    conversion: Conversion | None = None


class Definition(Shape):
    spec: DefinitionSpec | None = None
    status: Free | None = None

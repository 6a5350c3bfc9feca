{{/*
What has no values of its own is not written twice: it is taken from files/, which are copies
of the manifests beside this chart, and put into the namespace of the release.
*/}}

{{/* One object, as YAML, in the namespace of the release. Takes "root" and "object". */}}
{{- define "evenkeel.placed" -}}
{{- $here := .root.Release.Namespace -}}
{{- if eq (default "" .object.metadata.namespace) "evenkeel" -}}
{{- $_ := set .object.metadata "namespace" $here -}}
{{- end -}}
{{- range .object.subjects -}}
{{- if eq .namespace "evenkeel" -}}{{- $_ := set . "namespace" $here -}}{{- end -}}
{{- end -}}
{{- toYaml .object -}}
{{- end -}}

{{/* All objects of a file. Takes "root" and "file". */}}
{{- define "evenkeel.file" -}}
{{- $root := .root -}}
{{- range splitList "\n---\n" ($root.Files.Get .file) }}
---
{{ include "evenkeel.placed" (dict "root" $root "object" (fromYaml .)) }}
{{- end -}}
{{- end -}}

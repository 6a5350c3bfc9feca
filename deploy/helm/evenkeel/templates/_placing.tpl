{{/*
Objects without values of their own are not written twice: they come from files/, which are copies
of the manifests next to this chart, and are put into the namespace of the release.
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
{{- with .root.Values.commonLabels -}}
{{- $_ := set $.object.metadata "labels" (merge (default dict $.object.metadata.labels) (deepCopy .)) -}}
{{- end -}}
{{- if eq .object.kind "ServiceAccount" -}}
{{- $program := trimPrefix "evenkeel-" .object.metadata.name -}}
{{- with (get .root.Values $program).serviceAccountAnnotations -}}
{{- $_ := set $.object.metadata "annotations" . -}}
{{- end -}}
{{- end -}}
{{- toYaml .object -}}
{{- end -}}

{{/* All objects of a file. Takes "root" and "file". */}}
{{- define "evenkeel.file" -}}
{{- include "evenkeel.objects" (dict "root" .root "text" (.root.Files.Get .file)) -}}
{{- end -}}

{{/* All objects of a text. Takes "root" and "text". */}}
{{- define "evenkeel.objects" -}}
{{- $root := .root -}}
{{- range splitList "\n---\n" .text }}
---
{{ include "evenkeel.placed" (dict "root" $root "object" (fromYaml .)) }}
{{- end -}}
{{- end -}}

{{/*
The configurations: what is shipped, then what follows from the chart's values, then what the
user says. Nothing is checked here: the programs refuse unknown keys with the nearest known one.
*/}}
{{- define "evenkeel.rebalancerConfig" -}}
{{- $config := fromYaml (.Files.Get "files/rebalancer.yaml") -}}
{{- $_ := set $config "mode" .Values.mode -}}
{{- $_ := set $config "barePods" (ternary "replace" "skip" .Values.barePods.enabled) -}}
{{- if eq .Values.scheduler.mode "second" -}}
{{- $_ := set $config "schedulerNames" (list "evenkeel-scheduler") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.rebalancer.config)) -}}
{{- end -}}

{{- define "evenkeel.extenderConfig" -}}
{{- $config := fromYaml (.Files.Get "files/extender.yaml") -}}
{{- if eq .Values.scheduler.mode "controlPlane" -}}
{{- $_ := set $config "leaseNamespace" .Release.Namespace -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.extender.config)) -}}
{{- end -}}

{{- define "evenkeel.schedulerConfig" -}}
{{- $lease := "resourceNamespace: evenkeel" -}}
{{ .Files.Get "files/scheduler-config.yaml" | replace $lease (printf "resourceNamespace: %s" .Release.Namespace) }}
{{- end -}}

{{/* Values that would say one thing in two places. */}}
{{- define "evenkeel.checked" -}}
{{- if hasKey .Values.rebalancer.config "mode" -}}
{{- fail "rebalancer.config.mode: set the value `mode` instead" -}}
{{- end -}}
{{- if hasKey .Values.rebalancer.config "barePods" -}}
{{- fail "rebalancer.config.barePods: set `barePods.enabled` instead, it takes a role as well" -}}
{{- end -}}
{{- if and .Values.namespaceOptIn.enabled (ne .Values.scheduler.mode "second") -}}
{{- fail "namespaceOptIn.enabled: there is no second scheduler to send pods to (scheduler.mode)" -}}
{{- end -}}
{{- end -}}

{{/*
The configurations: what is shipped, then what follows from the chart's values, then what the
user says for both programs and for one. Nothing is checked here: the programs refuse unknown keys with the nearest known one.
*/}}
{{- define "evenkeel.rebalancerConfig" -}}
{{- $config := fromYaml (.Files.Get "files/rebalancer.yaml") -}}
{{- $_ := set $config "mode" .Values.mode -}}
{{- $_ := set $config "barePods" (ternary "replace" "skip" .Values.barePods.enabled) -}}
{{- if eq .Values.scheduler.mode "second" -}}
{{- $_ := set $config "schedulerNames" (list "evenkeel-scheduler") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy (default dict .Values.load)) (deepCopy (default dict .Values.rebalancer.config))) -}}
{{- end -}}

{{- define "evenkeel.extenderConfig" -}}
{{- $config := fromYaml (.Files.Get "files/extender.yaml") -}}
{{- if eq .Values.scheduler.mode "controlPlane" -}}
{{- $_ := set $config "leaseNamespace" .Release.Namespace -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy (default dict .Values.load)) (deepCopy (default dict .Values.extender.config))) -}}
{{- end -}}

{{- define "evenkeel.schedulerConfig" -}}
{{- $lease := "resourceNamespace: evenkeel" -}}
{{ .Files.Get "files/scheduler-config.yaml" | replace $lease (printf "resourceNamespace: %s" .Release.Namespace) }}
{{- end -}}

{{/* A scheduler that is newer than its API server; tags that are no versions are let through. */}}
{{- define "evenkeel.checkedScheduler" -}}
{{- $version := "^v?([0-9]+)\\.([0-9]+)([.+-].*)?$" -}}
{{- $cluster := include "evenkeel.clusterVersion" . -}}
{{- $tag := default "" .Values.scheduler.image.tag -}}
{{- if and (eq .Values.scheduler.mode "second") (regexMatch $version $tag) -}}
{{- $sameMajor := eq (regexReplaceAll $version $tag "${1}") (regexReplaceAll $version $cluster "${1}") -}}
{{- $minor := regexReplaceAll $version $tag "${2}" | atoi -}}
{{- if and $sameMajor (gt $minor (regexReplaceAll $version $cluster "${2}" | atoi)) -}}
{{- fail (printf "scheduler.image.tag: %s is newer than the API server (%s), and kube-scheduler must not be: leave it empty for the version of the cluster" $tag $cluster) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What decides load, in both configurations. */}}
{{- define "evenkeel.loadKeys" -}}
cpuThreshold memoryThreshold usageSource prometheus metricExpiry observations clearObservations clockSkew smoothing estimates
{{- end -}}

{{/* Keys inside of these that may differ from program to program. */}}
{{- define "evenkeel.ownKeys" -}}
bearerTokenFile caFile insecureSkipVerify timeout
{{- end -}}

{{/* A value without what may differ, to be compared. */}}
{{- define "evenkeel.shared" -}}
{{- $value := . -}}
{{- if kindIs "map" $value -}}
{{- range splitList " " (include "evenkeel.ownKeys" "") -}}{{- $value = omit $value . -}}{{- end -}}
{{- end -}}
{{- toJson $value -}}
{{- end -}}

{{/* Two ideas of load: one program would move away what the other attracts. */}}
{{- define "evenkeel.checkedLoad" -}}
{{- $keys := splitList " " (include "evenkeel.loadKeys" .) -}}
{{- range $key, $_ := .Values.load -}}
{{- if not (has $key $keys) -}}
{{- fail (printf "load.%s: not one of the keys that decide load in both programs: %s" $key (join ", " $keys)) -}}
{{- end -}}
{{- end -}}
{{- if ne .Values.scheduler.mode "none" -}}
{{- $rebalancer := fromYaml (include "evenkeel.rebalancerConfig" .) -}}
{{- $extender := fromYaml (include "evenkeel.extenderConfig" .) -}}
{{- range $keys -}}
{{- if ne (include "evenkeel.shared" (get $rebalancer .)) (include "evenkeel.shared" (get $extender .)) -}}
{{- fail (printf "%s: differs between rebalancer.config and extender.config, and both programs must agree: set load.%s instead" . .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Values that would say one thing in two places. */}}
{{- define "evenkeel.checked" -}}
{{- include "evenkeel.checkedScheduler" . -}}
{{- include "evenkeel.checkedLoad" . -}}
{{- $config := default dict .Values.rebalancer.config -}}
{{- if hasKey $config "mode" -}}
{{- fail "rebalancer.config.mode: set the value `mode` instead" -}}
{{- end -}}
{{- if hasKey $config "barePods" -}}
{{- fail "rebalancer.config.barePods: set `barePods.enabled` instead, it takes a role as well" -}}
{{- end -}}
{{- if and .Values.namespaceOptIn.enabled (ne .Values.scheduler.mode "second") -}}
{{- fail "namespaceOptIn.enabled: there is no second scheduler to send pods to (scheduler.mode)" -}}
{{- end -}}
{{- end -}}

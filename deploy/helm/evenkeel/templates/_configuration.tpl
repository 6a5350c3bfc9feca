{{/*
The configurations: the shipped file, then what follows from the chart's values, then what the user
sets for both programs and for one. Keys are not checked here: the programs refuse unknown ones and name the nearest.
*/}}
{{- define "evenkeel.rebalancerConfig" -}}
{{- $config := fromYaml (.Files.Get "files/rebalancer.yaml") -}}
{{- $_ := set $config "mode" .Values.mode -}}
{{- $_ := set $config "guide" .Values.guide -}}
{{- $_ := set $config "barePods" (ternary "replace" "skip" .Values.barePods.enabled) -}}
{{- if eq .Values.scheduler.mode "second" -}}
{{- $_ := set $config "schedulerNames" (include "evenkeel.profileNames" . | splitList " ") -}}
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
{{- $shipped := .Files.Get "files/scheduler-config.yaml" | replace $lease (printf "resourceNamespace: %q" .Release.Namespace) -}}
{{- with .Values.scheduler.config -}}
{{- toYaml (mergeOverwrite (fromYaml $shipped) (deepCopy .)) -}}
{{- else -}}
{{ $shipped }}
{{- end -}}
{{- end -}}

{{/* The schedulers that the second kube-scheduler is, separated by spaces; without a name it is the default one. */}}
{{- define "evenkeel.profileNames" -}}
{{- $names := list -}}
{{- range (fromYaml (include "evenkeel.schedulerConfig" .)).profiles -}}
{{- $names = append $names (default "default-scheduler" .schedulerName) -}}
{{- end -}}
{{- default (list "default-scheduler") $names | uniq | join " " -}}
{{- end -}}

{{/* Refuse a second scheduler that would take the pods of the first, or get none. */}}
{{- define "evenkeel.checkedProfiles" -}}
{{- if eq .Values.scheduler.mode "second" -}}
{{- $names := include "evenkeel.profileNames" . | splitList " " -}}
{{- if has "default-scheduler" $names -}}
{{- fail "scheduler.config.profiles: a profile that is named default-scheduler, or has no schedulerName, competes with the scheduler of the cluster for its pods: set schedulerName: evenkeel-scheduler" -}}
{{- end -}}
{{- if and .Values.namespaceOptIn.enabled (not (has "evenkeel-scheduler" $names)) -}}
{{- fail "scheduler.config.profiles: none is named evenkeel-scheduler, to which namespaceOptIn sends pods, so they would stay Pending" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuse a namespace whose second one, for the control plane, would have a name that is too long. */}}
{{- define "evenkeel.checkedNamespace" -}}
{{- $host := include "evenkeel.hostNamespace" . -}}
{{- if and (eq .Values.scheduler.mode "controlPlane") (gt (len $host) 63) -}}
{{- fail (printf "scheduler.mode: controlPlane needs a second namespace, and %s is longer than the 63 characters that Kubernetes allows: install into a namespace with at most 49" $host) -}}
{{- end -}}
{{- end -}}

{{/* Keys that the rebalancer reads only at startup (`FIXED` in rebalancer/config_reload.py). */}}
{{- define "evenkeel.fixedKeys" -}}
clientConnection console leaderElection reading usageSource usageInterval prometheus metricExpiry clockSkew smoothing load pressure estimates
{{- end -}}

{{- define "evenkeel.rebalancerFixed" -}}
{{- $config := fromYaml (include "evenkeel.rebalancerConfig" .) -}}
{{- $fixed := dict -}}
{{- range splitList " " (include "evenkeel.fixedKeys" .) -}}
{{- if hasKey $config . }}{{ $_ := set $fixed . (get $config .) }}{{ end -}}
{{- end -}}
{{- toJson $fixed -}}
{{- end -}}

{{/* Refuse a scheduler that is newer than its API server; tags that are not versions pass. */}}
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

{{/* The keys that decide load, in both configurations. */}}
{{- define "evenkeel.loadKeys" -}}
cpuThreshold memoryThreshold pools usageSource prometheus metricExpiry observations clearObservations clockSkew smoothing load pressure estimates
{{- end -}}

{{/* Keys inside of these that may differ between the programs. */}}
{{- define "evenkeel.ownKeys" -}}
bearerTokenFile caFile insecureSkipVerify timeout
{{- end -}}

{{/* A value without the keys that may differ, for the comparison. */}}
{{- define "evenkeel.shared" -}}
{{- $value := . -}}
{{- if kindIs "map" $value -}}
{{- range splitList " " (include "evenkeel.ownKeys" "") -}}{{- $value = omit $value . -}}{{- end -}}
{{- end -}}
{{- toJson $value -}}
{{- end -}}

{{/* Refuse different load settings: one program would move away what the other attracts. */}}
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

{{/* Refuse values that set the same thing in two places. */}}
{{- define "evenkeel.checked" -}}
{{- include "evenkeel.checkedScheduler" . -}}
{{- include "evenkeel.checkedProfiles" . -}}
{{- include "evenkeel.checkedNamespace" . -}}
{{- include "evenkeel.checkedLoad" . -}}
{{- $config := default dict .Values.rebalancer.config -}}
{{- if hasKey $config "mode" -}}
{{- fail "rebalancer.config.mode: set the value `mode` instead" -}}
{{- end -}}
{{- if hasKey $config "barePods" -}}
{{- fail "rebalancer.config.barePods: set `barePods.enabled` instead, it takes a role as well" -}}
{{- end -}}
{{- if and .Values.namespaceOptIn.enabled (not (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version)) -}}
{{- fail (printf "namespaceOptIn.enabled: needs MutatingAdmissionPolicies of Kubernetes 1.36, and this cluster has %s: set schedulerName in your templates, or use the Kyverno policy in deploy/components/namespace-opt-in-kyverno" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if hasKey $config "guide" -}}
{{- fail "rebalancer.config.guide: set the value `guide` instead, it takes a policy as well" -}}
{{- end -}}
{{- if and (eq .Values.guide "admission") (not (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version)) -}}
{{- fail (printf "guide: admission needs MutatingAdmissionPolicies of Kubernetes 1.36, and this cluster has %s: use the extender" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (eq .Values.guide "admission") (ne .Values.scheduler.mode "none") -}}
{{- fail "guide: with admission no scheduler calls an extender: set scheduler.mode to none" -}}
{{- end -}}
{{- if and .Values.namespaceOptIn.enabled (ne .Values.scheduler.mode "second") -}}
{{- fail "namespaceOptIn.enabled: there is no second scheduler to send pods to (scheduler.mode)" -}}
{{- end -}}
{{- end -}}

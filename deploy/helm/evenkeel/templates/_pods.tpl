{{/* The class of a pod: the one that is named, or ours. Takes "root", "name" and "ours". */}}
{{- define "evenkeel.priority" -}}
{{- with .name | default (ternary .ours "" .root.Values.priorityClass.create) -}}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Where a pod may run. Takes the values of its program. */}}
{{- define "evenkeel.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The environment of a container. Takes the values of its program. */}}
{{- define "evenkeel.environment" -}}
{{- with .extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A folder with configuration, and what the user mounts. Takes "name", "path" and "values". */}}
{{- define "evenkeel.mounts" -}}
volumeMounts:
  # The folder, not the file: a file mounted by itself is never updated.
  - name: {{ .name }}
    mountPath: {{ .path }}
    readOnly: true
  {{- with .values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The volumes of the user in a pod with several programs, each once: they may share one. Takes "root",
"programs" and "taken", the names of our own. */}}
{{- define "evenkeel.extraVolumes" -}}
{{- $found := dict -}}
{{- $volumes := list -}}
{{- range $program := .programs -}}
{{- range (get $.root.Values $program).extraVolumes -}}
{{- if has .name $.taken -}}
{{- fail (printf "%s.extraVolumes: the pod has a volume named %s already: choose another name" $program .name) -}}
{{- end -}}
{{- if not (hasKey $found .name) -}}
{{- $_ := set $found .name . -}}
{{- $volumes = append $volumes . -}}
{{- else if ne (toJson .) (toJson (get $found .name)) -}}
{{- fail (printf "%s.extraVolumes: two different volumes of one pod are named %s: choose another name" $program .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $volumes }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* What all our pods have in common. */}}
{{- define "evenkeel.pod" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "evenkeel.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "evenkeel.ours" -}}
image: {{ include "evenkeel.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{/* Preferred, not required: a cluster with one node runs all replicas too. Takes a component. */}}
{{- define "evenkeel.spread" -}}
{{- $component := . -}}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "evenkeel.labels" $component | nindent 8 }}
  {{- end }}
{{- end -}}

{{/* Probes of a port. Takes "port", and "host" or "scheme" where they matter. */}}
{{- define "evenkeel.probes" -}}
{{- $get := pick . "port" "host" "scheme" -}}
livenessProbe:
  httpGet:
    {{- toYaml (merge (dict "path" "/livez") $get) | nindent 4 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    {{- toYaml (merge (dict "path" "/readyz") $get) | nindent 4 }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{/* Who may reach these ports; an empty `from` in a policy would allow everyone. */}}
{{- define "evenkeel.ingress" -}}
{{- with .root.Values.networkPolicy.from -}}
ingress:
  - from:
      {{- toYaml . | nindent 6 }}
    ports:
      {{- range $.ports }}
      - port: {{ . }}
        protocol: TCP
      {{- end }}
{{- else -}}
ingress: []
{{- end -}}
{{- end }}

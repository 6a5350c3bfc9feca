{{/* The class of a pod: the one that is named, or ours. Takes "root" and "name". */}}
{{- define "evenkeel.priority" -}}
{{- with .name | default (ternary "evenkeel" "" .root.Values.priorityClass.create) -}}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* What all our pods have in common. */}}
{{- define "evenkeel.pod" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
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

{{/* A wish, not a condition: a cluster of one node gets all replicas too. Takes a component. */}}
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

{{/* What may reach these ports; an empty `from` in a policy would be everything. */}}
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

{{- define "evenkeel.labels" -}}
app.kubernetes.io/name: evenkeel
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{- define "evenkeel.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{/* The version of the cluster: v1.33.2, whatever follows it (-gke.1234, -eks-abc, +k3s1). */}}
{{- define "evenkeel.clusterVersion" -}}
v{{ regexFind "[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version }}
{{- end -}}

{{- define "evenkeel.schedulerImage" -}}
{{ .Values.scheduler.image.repository }}:{{ .Values.scheduler.image.tag | default (include "evenkeel.clusterVersion" .) }}
{{- end -}}

{{/* A pod in the host's network may not live beside restricted ones. */}}
{{- define "evenkeel.hostNamespace" -}}
{{ .Release.Namespace }}-control-plane
{{- end -}}

{{- define "evenkeel.extenderNamespace" -}}
{{- if eq .Values.scheduler.mode "controlPlane" }}{{ include "evenkeel.hostNamespace" . }}{{ else }}{{ .Release.Namespace }}{{ end -}}
{{- end -}}

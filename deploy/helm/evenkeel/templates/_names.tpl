{{- define "evenkeel.labels" -}}
app.kubernetes.io/name: evenkeel
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{- define "evenkeel.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* A pod in the host's network may not live beside restricted ones. */}}
{{- define "evenkeel.hostNamespace" -}}
{{ .Release.Namespace }}-control-plane
{{- end -}}

{{- define "evenkeel.extenderNamespace" -}}
{{- if eq .Values.scheduler.mode "controlPlane" }}{{ include "evenkeel.hostNamespace" . }}{{ else }}{{ .Release.Namespace }}{{ end -}}
{{- end -}}

{{- define "evenkeel.labels" -}}
app.kubernetes.io/name: evenkeel
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{/* Labels of an object or of its pods: with those of the user, which selectors must not have, because
they cannot change. Takes a list of the root and a component. */}}
{{- define "evenkeel.objectLabels" -}}
{{- $ours := include "evenkeel.labels" (index . 1) | fromYaml -}}
{{- toYaml (merge $ours (deepCopy (default dict (index . 0).Values.commonLabels))) -}}
{{- end -}}

{{- define "evenkeel.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{/* The version of the cluster: v1.33.2, without any suffix (-gke.1234, -eks-abc, +k3s1). Who renders
without a cluster may name only 1.33, as Argo CD does; each minor version has an image of its first
release. */}}
{{- define "evenkeel.clusterVersion" -}}
{{- $found := regexFind "[0-9]+\\.[0-9]+(\\.[0-9]+)?" .Capabilities.KubeVersion.Version -}}
v{{ $found }}{{ if eq (len (splitList "." $found)) 2 }}.0{{ end }}
{{- end -}}

{{- define "evenkeel.schedulerImage" -}}
{{- $image := .Values.scheduler.image -}}
{{ $image.repository }}{{ with $image.digest }}@{{ . }}{{ else }}:{{ $image.tag | default (include "evenkeel.clusterVersion" $) }}{{ end }}
{{- end -}}

{{/* A pod in the host's network cannot share a namespace with restricted ones. */}}
{{- define "evenkeel.hostNamespace" -}}
{{ .Release.Namespace }}-control-plane
{{- end -}}

{{- define "evenkeel.extenderNamespace" -}}
{{- if eq .Values.scheduler.mode "controlPlane" }}{{ include "evenkeel.hostNamespace" . }}{{ else }}{{ .Release.Namespace }}{{ end -}}
{{- end -}}

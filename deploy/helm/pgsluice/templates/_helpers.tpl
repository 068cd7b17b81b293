{{- define "pgsluice.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's name, once where it already has the chart's in it: a release "pgsluice" makes "pgsluice". */}}
{{- define "pgsluice.fullname" -}}
{{- $name := include "pgsluice.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pgsluice.selector" -}}
app.kubernetes.io/name: {{ include "pgsluice.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pgsluice.labels" -}}
{{ include "pgsluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "pgsluice.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "pgsluice.fullname" .) "" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "pgsluice.settings" -}}
{{- .Values.settings | default (.Files.Get "files/pgsluice.toml") -}}
{{- end -}}

{{/* What the gateway and `helm test` have in common. */}}
{{- define "pgsluice.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{- define "pgsluice.account" -}}
automountServiceAccountToken: {{ .Values.automountServiceAccountToken }}
{{- with include "pgsluice.serviceAccountName" . }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "pgsluice.volumes" -}}
- name: configuration
  configMap:
    name: {{ include "pgsluice.fullname" . }}
- name: secrets
  secret:
    secretName: {{ .Values.existingSecret }}
    defaultMode: 0440
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pgsluice.mounts" -}}
- name: configuration
  mountPath: /etc/pgsluice
  readOnly: true
- name: secrets
  mountPath: /run/secrets/pgsluice
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

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

{{/* A ConfigMap, and Helm's record of the release, are read by many who may not read a Secret. */}}
{{- define "pgsluice.settings" -}}
{{- /* Without comments, and without masks and types of columns, whose names may be those of secrets. */ -}}
{{- $settings := regexReplaceAll `(?m)^[ \t]*#.*$` (.Values.settings | default "") "" -}}
{{- $settings = regexReplaceAll `["']?[ \t]*=[ \t]*["'](?:hash|null|native|text|truncate\([ \t0-9]*\))["']` $settings "" -}}
{{- range regexFindAll `(?m)(?:password|passphrase|(?:^|[\s.{,"'])secret(?:[.]key)?|session[.]token|\binfo|hash_key|\bkey\.pem)["']?[ \t]*=|-----BEGIN [A-Z ]*PRIVATE KEY|\.key\]\s*pem\b|://[^/@\s"':]*:[^/@\s"]+@` $settings 1 -}}
{{- fail "the settings have a password, which would stand in a ConfigMap: take it from a Secret, by existingSecret (the connection string) or extraEnv (README.md)" -}}
{{- end -}}
{{- .Values.settings | default (.Files.Get "files/pgsluice.toml") -}}
{{- end -}}

{{/* Nobody uses such a CONNECTION; a statement that was written for a subscriber may have one. */}}
{{- define "pgsluice.definitions" -}}
{{- $space := `(?:\s|--.*|/\*(?:[^*]|\*+[^*/])*\*+/)*` -}}
{{- $pattern := printf `(?i)\bconnection%s(?:'(?:[^']|'%s')|(?:e|u&)'|\$)` $space $space -}}
{{- range regexFindAll $pattern (.Values.definitions | default "") 1 -}}
{{- fail "the definitions have a CONNECTION, which would stand in a ConfigMap, with a password perhaps: write CONNECTION ''" -}}
{{- end -}}
{{- .Values.definitions | default (.Files.Get "files/replication.sql") -}}
{{- end -}}

{{/* What the gateway and `helm test` have in common. */}}
{{- define "pgsluice.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{- define "pgsluice.account" -}}
automountServiceAccountToken: {{ .Values.automountServiceAccountToken }}
{{- with include "pgsluice.serviceAccountName" . }}
serviceAccountName: {{ . | quote }}
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
    secretName: {{ .Values.existingSecret | quote }}
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

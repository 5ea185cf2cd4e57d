{{- define "stentor.labels" -}}
app.kubernetes.io/name: stentor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "stentor.selector" -}}
app.kubernetes.io/name: stentor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stentor.name" -}}
{{ ternary .Release.Name (printf "%s-stentor" .Release.Name) (contains "stentor" .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}

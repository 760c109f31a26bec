{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "ulfd.config" -}}
{{ .Values.config | default (.Files.Get "server.textproto") | trim }}
{{- if .Values.tlsSecret }}
tls { certificate_file: "/etc/ulfd-tls/tls.crt" key_file: "/etc/ulfd-tls/tls.key" }
{{- end }}
{{- if .Values.tokensSecret }}
{{- if not .Values.tlsSecret }}{{ fail "tokensSecret wants tlsSecret: without TLS, tokens are taken from the pod itself only" }}{{ end }}
authentication { token_file: "/etc/ulfd-tokens/tokens" }
{{- end }}
{{- end -}}

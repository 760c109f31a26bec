{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "ulfd.config" -}}
{{ .Values.config | default (.Files.Get "server.textproto") }}
{{- end -}}

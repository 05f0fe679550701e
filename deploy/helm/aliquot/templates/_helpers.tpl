{{- /* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "aliquot.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimAll "-." }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimAll "-." }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimAll "-." }}
{{- end }}
{{- end }}

{{- define "aliquot.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimAll "-." | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "aliquot.labels" -}}
{{ include "aliquot.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "-." | quote }}
{{- end }}

{{- define "aliquot.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "aliquot.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed with serviceAccount.create: false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "aliquot.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "aliquot.wholeClass" -}}
{{- default (printf "whole.%s" .Values.driverName) .Values.extendedResource.className }}
{{- end }}

{{- define "aliquot.hasWholeClass" -}}
{{- if and .Values.extendedResource.enabled (semverCompare ">=1.35.0-0" .Capabilities.KubeVersion.Version) }}true{{ end }}
{{- end }}

{{- define "aliquot.refusesCounts" -}}
{{- if or (eq .Values.admission.refuseCounts "always") (and (eq .Values.admission.refuseCounts "auto") (semverCompare "<1.35.0-0" .Capabilities.KubeVersion.Version)) }}true{{ end }}
{{- end }}

{{- /* Where the host's root is mounted in the daemon's container, and what of it. */}}
{{- define "aliquot.hostRoot" -}}/host{{- end }}
{{- define "aliquot.driverMount" -}}
{{- eq .Values.driverRoot "/" | ternary "" .Values.driverRoot }}
{{- end }}

{{- /* aliquotd's settings: what the chart decides, and config. Library and hook are the image's (ALIQUOT_LIBRARY, ALIQUOT_HOOK). */}}
{{- define "aliquot.config" -}}
{{- $v := .Values }}
{{- $own := dict
    "driverName" $v.driverName
    "kubeletPluginsDir" (printf "%s/plugins" $v.kubeletDir)
    "kubeletRegistryDir" (printf "%s/plugins_registry" $v.kubeletDir)
    "podResourcesSocket" (printf "%s/pod-resources/kubelet.sock" $v.kubeletDir)
    "cdiDir" $v.cdiDir
    "stateDir" $v.stateDir
    "runDir" $v.runDir
    "hostLibDir" $v.hostLibDir
    "hostRoot" (include "aliquot.hostRoot" .)
    "driverRoot" $v.driverRoot
    "metricsAddress" (printf ":%d" (int $v.metrics.port))
    "devicesInclude" $v.devices.include
    "devicesExclude" $v.devices.exclude }}
{{- range $key, $value := $v.config }}
{{- if hasKey $own $key }}
{{- fail (printf "config.%s: the chart sets it from a value of its own; see values.yaml" $key) }}
{{- end }}
{{- end }}
{{- /* The host's /dev is the container's too. */}}
{{- if and (eq $v.driverRoot "/") (not (hasKey $v.config "devRoot")) }}{{ $_ := set $own "devRoot" "/" }}{{ end }}
{{- range $key := list "devicesInclude" "devicesExclude" }}
{{- if not (get $own $key) }}{{ $_ := unset $own $key }}{{ end }}
{{- end }}
{{- toYaml (merge $own $v.config) }}
{{- end }}

{{- /* CEL: the classes of our devices, as a list of strings. */}}
{{- define "aliquot.celClasses" -}}
{{- $classes := list .Values.driverName }}
{{- if include "aliquot.hasWholeClass" . }}{{ $classes = append $classes (include "aliquot.wholeClass" .) }}{{ end }}
{{- $quoted := list }}
{{- range concat $classes .Values.admission.moreClasses }}{{ $quoted = append $quoted (squote .) }}{{ end }}
{{- printf "[%s]" (join ", " $quoted) }}
{{- end }}

{{- /* CEL: the requests of a claim or of a template's claim. dyn() for objects of two kinds in one policy. */}}
{{- define "aliquot.celRequests" -}}
(request.resource.resource == 'resourceclaimtemplates' ? dyn(object).spec.spec : dyn(object).spec).?devices.?requests.orValue([])
{{- end }}

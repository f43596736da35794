{{- /* Settings as environment variables, made by python -m tests.deploy.render. */ -}}
{{- define "sterna.environment.operator" -}}
- name: STERNA_OPERATOR_NAMESPACE
  value: {{ .Values.operator.namespace | quote }}
- name: STERNA_OPERATOR_POLICY
  value: {{ .Values.operator.policy | quote }}
- name: STERNA_OPERATOR_POLICY_FOR
  value: {{ .Values.operator.policyFor | quote }}
- name: STERNA_OPERATOR_PLACEMENT
  value: {{ .Values.operator.placement | quote }}
- name: STERNA_OPERATOR_MIGRATION
  value: {{ .Values.operator.migration | quote }}
- name: STERNA_OPERATOR_CPU_SHARE
  value: {{ .Values.operator.cpuShare | quote }}
- name: STERNA_OPERATOR_RESERVATION
  value: {{ .Values.operator.reservation | quote }}
- name: STERNA_OPERATOR_EVICT_UNSAVED
  value: {{ .Values.operator.evictUnsaved | quote }}
- name: STERNA_OPERATOR_RATE_LIMIT_SECONDS
  value: {{ .Values.operator.rateLimitSeconds | quote }}
- name: STERNA_OPERATOR_DEFAULT_IMAGE
  value: {{ .Values.operator.defaultImage | quote }}
- name: STERNA_OPERATOR_GPU_RESOURCE
  value: {{ .Values.operator.gpuResource | quote }}
- name: STERNA_OPERATOR_KUBESHARE
  value: {{ .Values.operator.kubeshare | quote }}
- name: STERNA_OPERATOR_CLUSTER_DOMAIN
  value: {{ .Values.operator.clusterDomain | quote }}
- name: STERNA_OPERATOR_REMOTE_API
  value: {{ .Values.operator.remoteApi | quote }}
- name: STERNA_OPERATOR_AUTHENTICATE
  value: {{ .Values.operator.authenticate | quote }}
- name: STERNA_OPERATOR_LEADER_ELECTION
  value: {{ .Values.operator.leaderElection | quote }}
- name: STERNA_OPERATOR_LEASE_NAME
  value: {{ .Values.operator.lease.name | quote }}
- name: STERNA_OPERATOR_LEASE_DURATION_SECONDS
  value: {{ .Values.operator.lease.durationSeconds | quote }}
- name: STERNA_OPERATOR_LEASE_RENEW_SECONDS
  value: {{ .Values.operator.lease.renewSeconds | quote }}
- name: STERNA_OPERATOR_LEASE_RETRY_SECONDS
  value: {{ .Values.operator.lease.retrySeconds | quote }}
- name: STERNA_OPERATOR_LOG_LEVEL
  value: {{ .Values.operator.logLevel | quote }}
- name: STERNA_OPERATOR_LOG_FORMAT
  value: {{ .Values.operator.logFormat | quote }}
- name: STERNA_OPERATOR_STALL_SECONDS
  value: {{ .Values.operator.stallSeconds | quote }}
{{- end }}
{{- define "sterna.environment.monitor" -}}
- name: STERNA_MONITOR_GROWTH
  value: {{ .Values.monitor.growth | quote }}
- name: STERNA_MONITOR_ALPHA
  value: {{ .Values.monitor.alpha | quote }}
- name: STERNA_MONITOR_INTERVAL_SECONDS
  value: {{ .Values.monitor.intervalSeconds | quote }}
- name: STERNA_MONITOR_OVERLOAD_THRESHOLD
  value: {{ .Values.monitor.overloadThreshold | quote }}
- name: STERNA_MONITOR_ASK_FOR
  value: {{ .Values.monitor.askFor | quote }}
- name: STERNA_MONITOR_LOG_LEVEL
  value: {{ .Values.monitor.logLevel | quote }}
- name: STERNA_MONITOR_LOG_FORMAT
  value: {{ .Values.monitor.logFormat | quote }}
- name: STERNA_MONITOR_KUBELET_ROOT
  value: {{ .Values.monitor.kubeletRoot | quote }}
- name: STERNA_MONITOR_LOGS_ROOT
  value: {{ .Values.monitor.logsRoot | quote }}
{{- end }}

{{- /* The release's name, which all objects have: `torana` for a release of that name, else `<release>-torana`. */ -}}
{{- define "torana.name" -}}
{{- if contains "torana" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-torana" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- /* Labels that select the pods; they never change. */ -}}
{{- define "torana.selector" -}}
app.kubernetes.io/name: torana
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "torana.labels" -}}
{{ include "torana.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "torana.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "torana.args" -}}
{{- $name := include "torana.name" . -}}
- serve
- --data-dir=/var/lib/torana
- --secure-port=6443
- --external-hostname={{ .Values.externalHostname | default (printf "%s.%s.svc" $name .Release.Namespace) }}
- --shutdown-delay-duration={{ .Values.shutdownDelay }}
{{- if eq .Values.store "etcd" }}
- --etcd-servers={{ join "," .Values.etcd.servers }}
- --etcd-prefix={{ .Values.etcd.prefix }}
- --etcd-cafile=/etc/torana/etcd/ca.crt
- --etcd-certfile=/etc/torana/etcd/tls.crt
- --etcd-keyfile=/etc/torana/etcd/tls.key
{{- end }}
{{- if .Values.keysSecretName }}
# Each gateway would make its own otherwise, and reject what another one has signed.
- --tls-cert-file=/etc/torana/keys/serving.crt
- --tls-private-key-file=/etc/torana/keys/serving.key
- --client-ca-file=/etc/torana/keys/client-ca.crt
- --service-account-key-file=/etc/torana/keys/service-account.pub
- --service-account-signing-key-file=/etc/torana/keys/service-account.key
- --service-account-issuer=https://{{ .Values.externalHostname | default (printf "%s.%s.svc" $name .Release.Namespace) }}
- --requestheader-client-ca-file=/etc/torana/keys/front-proxy-ca.crt
- --requestheader-allowed-names=front-proxy-client
- --requestheader-username-headers=X-Remote-User
- --requestheader-group-headers=X-Remote-Group
- --requestheader-extra-headers-prefix=X-Remote-Extra-
- --proxy-client-cert-file=/etc/torana/keys/front-proxy-client.crt
- --proxy-client-key-file=/etc/torana/keys/front-proxy-client.key
{{- end }}
{{- if eq .Values.mode "gateway" }}
- --authentication-token-webhook-config-file=/etc/torana/cluster/authentication.kubeconfig
- --authentication-token-webhook-version=v1
# RBAC first: the gateway's own rules cover health checks and its administrator.
- --authorization-mode=RBAC,Webhook
- --authorization-webhook-config-file=/etc/torana/cluster/authorization.kubeconfig
- --authorization-webhook-version=v1
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* The pod's template, the same for both kinds of store. */ -}}
{{- define "torana.pod" -}}
metadata:
  labels:
    {{- include "torana.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "torana.name" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 90
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- if eq .Values.store "etcd" }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "torana.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  containers:
    - name: torana
      image: {{ include "torana.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: {{- include "torana.args" . | nindent 8 }}
      {{- with .Values.env }}
      env: {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: https, containerPort: 6443, protocol: TCP}
      startupProbe:
        httpGet: {path: /readyz, port: https, scheme: HTTPS}
        periodSeconds: 1
        failureThreshold: 120
      livenessProbe:
        httpGet: {path: /livez, port: https, scheme: HTTPS}
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: /readyz, port: https, scheme: HTTPS}
        periodSeconds: 5
        timeoutSeconds: 5
      resources: {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: data, mountPath: /var/lib/torana}
        {{- if eq .Values.store "etcd" }}
        - {name: etcd, mountPath: /etc/torana/etcd, readOnly: true}
        {{- end }}
        {{- if .Values.keysSecretName }}
        - {name: keys, mountPath: /etc/torana/keys, readOnly: true}
        {{- end }}
        {{- if eq .Values.mode "gateway" }}
        - {name: cluster, mountPath: /etc/torana/cluster, readOnly: true}
        {{- end }}
  {{- if or (eq .Values.store "etcd") .Values.keysSecretName (eq .Values.mode "gateway") }}
  volumes:
    {{- if eq .Values.store "etcd" }}
    - name: data
      emptyDir: {sizeLimit: 1Gi}
    - name: etcd
      secret: {secretName: {{ .Values.etcd.secretName }}, defaultMode: 0440}
    {{- end }}
    {{- if .Values.keysSecretName }}
    - name: keys
      secret: {secretName: {{ .Values.keysSecretName }}, defaultMode: 0440}
    {{- end }}
    {{- if eq .Values.mode "gateway" }}
    - name: cluster
      projected:
        defaultMode: 0440
        sources:
          - configMap: {name: {{ include "torana.name" . }}-cluster}
          - configMap: {name: kube-root-ca.crt}
          - serviceAccountToken: {path: token, expirationSeconds: 3607}
    {{- end }}
  {{- end }}
{{- end -}}

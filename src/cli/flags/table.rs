//! The flag table. A row is `name ValueType "default" support "help"`, where support is `supported`,
//! `ignored(why)` or `rejected(why)`.

use super::Support::Supported;
use super::{Flag, Group, Support, ValueType};

macro_rules! flags {
    ($($group:ident { $($name:literal $value_type:ident $default:literal $support:ident $(($reason:expr))? $help:literal;)* })*) => {
        /// All flags, in the order of docs/flags.md within each group.
        pub(crate) const FLAGS: &[Flag] = &[$($(Flag {
            group: Group::$group,
            name: $name,
            value_type: ValueType::$value_type,
            default: $default,
            support: flags!(@ $support $($reason)?),
            help: $help,
        },)*)*];
    };
    (@ supported) => { Supported };
    (@ ignored $reason:expr) => { Support::Ignored($reason) };
    (@ rejected $reason:expr) => { Support::Rejected($reason) };
}

// Reasons that several flags share.
const CACHE: &str = "every kind is always served from memory";
const LEADER: &str = "coordinated leader election is not in this release";
const PEERS: &str = "gateways do not proxy to each other in this release";
const VERSIONS: &str = "only v1.36 is supported";
const METRICS: &str = "metrics cannot be configured";
const BUFFERS: &str = "logs are written unbuffered to standard error";

flags! {
    Torana {
        "aggregator-keep-discovery" Bool "true" supported "List a backend that does not answer with its last known resources, marked Stale, also after a restart; false: without resources, as kube-apiserver";
        "aggregator-max-discovery-bytes" Int "4194304" supported "Maximum size in bytes of a backend's discovery document, and of the index of its OpenAPI documents; a larger one is ignored and the last good one stays in use";
        "aggregator-max-openapi-bytes" Int "33554432" supported "Maximum size in bytes of a backend's OpenAPI document; a larger one is ignored and the last good one stays in use";
        "backend-answer-isolation" Bool "true" supported "Remove from responses of backends, pods, services and nodes the headers that set cookies, credentials or transport security for this server's origin, and sandbox responses that a browser may render (docs/targets.md); false: pass them unchanged";
        "backend-max-connections" Int "4096" supported "Maximum number of connections to one address of a backend; further requests wait";
        "backend-max-requests" Int "0" supported "Maximum number of requests in flight to one backend, without watches and system:masters; further ones get 429. 0: half of --max-requests-inflight";
        "backend-max-waiting" Int "8192" supported "Maximum number of requests waiting for a connection to one address of a backend, each for at most 5 s; further ones get 503";
        "backend-max-watches" Int "10000" supported "Maximum number of watches and other long-running requests to one backend, without system:masters; further ones get 429. 0: no limit";
        "cluster-signing-cert-file" Text "" supported "CA certificate (PEM) with which --controllers signs certificate signing requests; empty: the generated CAs";
        "cluster-signing-duration" Duration "8760h0m0s" supported "Longest lifetime of the certificates that --controllers signs; a request can ask for less";
        "cluster-signing-key-file" Text "" supported "Key (PEM) of --cluster-signing-cert-file";
        "compute-memory" Int "50331648" supported "Memory in bytes for requests being decoded, validated and encoded, without small ones; further requests wait";
        "compute-threads" Int "0" supported "Threads for computations that would block the event loop; 0: one per core, at least two";
        "controllers" List "" supported "Control loops of kube-controller-manager to run in this process (docs/controllers.md): * for all that are on by default, name to add one, -name to remove one; empty: none. They give way to a kube-controller-manager";
        "generated-signing-key" Text "RS256" supported "Algorithm of the key that is generated to sign service account tokens: ES256 or RS256; an existing key is kept";
        "legacy-service-account-token-clean-up-period" Duration "8760h0m0s" supported "How long a generated service account token in a Secret must be unused until --controllers marks it as invalid, and then until it is deleted";
        "max-connections" Int "0" supported "Maximum number of client connections; a further one evicts the longest idle one, unauthenticated ones first. 0: three quarters of the open-file limit";
        "max-connections-per-address" Int "0" supported "Maximum number of unauthenticated connections per remote address (IPv6: per /64), without loopback. 0: a quarter of --max-connections";
        "max-watches" Int "100000" supported "Maximum number of watches on this gateway's own store, without system:masters; further ones get 429. 0: no limit";
        "max-watches-per-user" Int "10000" supported "Maximum number of those watches per user; further ones get 429. 0: no limit";
        "reserved-connections" Int "0" supported "Number of --max-connections reserved for authenticated callers, at most half; loopback has another sixteenth. 0: a quarter";
        "data-dir" Text "./torana-data" supported "Directory of the embedded store, the generated PKI (pki/) and admin.kubeconfig; unless given, torana/ in --cert-dir, or /var/lib/torana with --etcd-servers";
        "backend-socket-dirs" List "/run/torana" supported "Directories whose Unix sockets APIServices may name as backends (docs/targets.md); empty: none";
        "etcd-user-file" Text "" supported "File whose first line is name:password, for etcd with password authentication; tokens are renewed";
        "request-body-memory" Int "268435456" supported "Memory in bytes for request bodies, without small ones; further requests get 429. One caller may use a quarter";
        "root-ca-file" Text "" supported "CA certificates (PEM) that --controllers publishes in the ConfigMaps kube-root-ca.crt; empty: the generated CA";
        "share-trust" Bool "true" supported "With --etcd-servers: publish the public keys and CA certificates that verify what this gateway signs with generated keys, and accept those of the other gateways on the same etcd; false: only its own";
        "watch-cache-max-bytes" Int "0" supported "Memory in bytes for all watch caches; history and cached encodings are evicted before objects; 0: half of the memory of the machine or control group";
        "watch-max-pinned-bytes" Int "67108864" supported "Memory in bytes for old objects held by slow watchers, per resource, and for frames encoded for slow watchers, in total (a quarter of it per user); a watch over the limit ends, and its client can resume it";
        "watch-stall-timeout" Duration "5m0s" supported "Time after which a watch with pending events ends if its client reads none";
        "watch-cache-max-encoding-bytes" Int "67108864" supported "Part of --watch-cache-max-bytes for cached encodings of objects and events (protobuf, CBOR, other versions, watch frames); at least 4 MiB";
    }
    Generic {
        "advertise-address" Text "" supported "IP address under which others reach this server; empty: --bind-address, or that of the default interface";
        "cors-allowed-origins" List "" ignored("no cross-origin headers are sent") "Patterns of allowed origins";
        "emulated-version" List "" ignored(VERSIONS) "Version to behave as";
        "emulation-forward-compatible" Bool "false" ignored(VERSIONS) "Serve APIs newer than the emulated version";
        "external-hostname" Text "" supported "Host name for generated URLs; also included in the generated serving certificate";
        "feature-gates" List "" supported "Feature=true|false pairs; features always follow v1.36's defaults, so any other setting only gives a warning";
        "goaway-chance" Float "0" ignored("connections are only ended when they are idle, broken or unauthenticated") "Probability that a request ends its HTTP/2 connection, 0 to 0.02";
        "livez-grace-period" Duration "0s" supported "Time after start in which /livez tolerates unfinished start-up steps";
        "max-mutating-requests-inflight" Int "200" supported "With priority and fairness, the two limits together are the seats that priority levels share. Without, maximum number of mutating requests in flight; 0: no limit";
        "max-requests-inflight" Int "400" supported "As above; without priority and fairness, maximum number of other requests in flight; 0: no limit";
        "min-compatibility-version" List "" ignored(VERSIONS) "Oldest version to stay compatible with";
        "min-request-timeout" Int "1800" supported "Minimum duration in seconds of a watch without a timeout of its own";
        "request-timeout" Duration "1m0s" supported "Time limit for requests that are not long-running";
        "runtime-config-emulation-forward-compatible" Bool "false" ignored(VERSIONS) "Serve explicitly enabled newer APIs";
        "shutdown-delay-duration" Duration "0s" supported "Time between failing /readyz and refusing requests at shutdown";
        "shutdown-send-retry-after" Bool "false" ignored("at shutdown the port closes and requests in flight finish") "Answer 429 while draining";
        "shutdown-watch-termination-grace-period" Duration "0s" ignored("watches end immediately after the current event") "Time in which watches are ended at shutdown";
        "storage-initialization-timeout" Duration "1m0s" supported "Time limit for the store to become ready at start-up";
        "strict-transport-security-directives" List "" ignored("no Strict-Transport-Security header is sent") "HSTS directives";
    }
    Etcd {
        "default-watch-cache-size" Int "100" ignored(CACHE) "Deprecated: events kept per kind";
        "delete-collection-workers" Int "1" ignored("16 objects of a collection are deleted at a time") "Workers of a collection delete";
        "enable-garbage-collector" Bool "true" ignored("it only matters to an external controller") "Generic garbage collection";
        "encryption-provider-config" Text "" supported "Encryption at rest: an EncryptionConfiguration (identity, aescbc, aesgcm, secretbox, KMS v2)";
        "encryption-provider-config-automatic-reload" Bool "false" supported "Reload the file when it changes";
        "etcd-cafile" Text "" supported "CA of etcd (PEM); empty: the system's roots";
        "etcd-certfile" Text "" supported "Client certificate for etcd (PEM); needs --etcd-keyfile";
        "etcd-compaction-interval" Duration "5m0s" supported "Time between compactions; 0: never";
        "etcd-count-metric-poll-period" Duration "1m0s" supported "Maximum age of object counts and sizes in metrics; 0: no such metrics";
        "etcd-db-metric-poll-interval" Duration "30s" supported "Interval at which the database size is measured; 0: no such metric";
        "etcd-healthcheck-timeout" Duration "2s" supported "Timeout of an etcd health probe; the probe interval is half of it";
        "etcd-keyfile" Text "" supported "Key of --etcd-certfile (PEM)";
        "etcd-prefix" Text "/registry" supported "Prefix of keys in etcd";
        "etcd-readycheck-timeout" Duration "2s" supported "Timeout of an etcd readiness probe; the probe interval is half of it";
        "etcd-servers" List "" supported "URLs of the members of an etcd v3 cluster; empty: the embedded store";
        "etcd-servers-overrides" List "" supported "group/resource#url;url: resources stored on other clusters";
        "lease-reuse-duration-seconds" Int "60" supported "Maximum time for which an etcd lease is shared";
        "storage-backend" Text "" supported "etcd3, with --etcd-servers; empty: etcd where --etcd-servers is given, else the embedded store";
        "storage-media-type" Text "application/vnd.kubernetes.protobuf" supported "Encoding of built-in kinds in etcd; the embedded store keeps JSON";
        "watch-cache" Bool "true" ignored(CACHE) "Serve from the watch cache";
        "watch-cache-sizes" List "" ignored(CACHE) "Cache sizes by resource";
    }
    Serving {
        "bind-address" Text "0.0.0.0" supported "IP address to listen on; 0.0.0.0 and :: are all interfaces, IPv4 and IPv6";
        "cert-dir" Text "" supported "Directory with the serving certificate apiserver.crt and its key apiserver.key, which are generated where both are absent; empty: <data-dir>/pki";
        "disable-http2-serving" Bool "false" supported "Serve HTTP/1.1 only";
        "http2-max-streams-per-connection" Int "0" supported "Maximum number of streams per HTTP/2 connection; 0: 100";
        "permit-address-sharing" Bool "false" ignored("SO_REUSEADDR is always set") "Set SO_REUSEADDR";
        "permit-port-sharing" Bool "false" supported "Set SO_REUSEPORT, so that several processes may share the port";
        "secure-port" Int "6443" supported "TLS port; 0 picks a free one, which is printed and written to admin.kubeconfig";
        "tls-cert-file" Text "" supported "Serving certificate chain (PEM); needs --tls-private-key-file; empty: generated";
        "tls-cipher-suites" List "" supported "TLS 1.2 suites by IANA name; empty: all forward-secret AEAD suites";
        "tls-curve-preferences" List "" ignored("X25519MLKEM768, X25519, P-256 and P-384 are offered, in this order") "Key exchange groups";
        "tls-min-version" Text "" supported "VersionTLS12 (default) or VersionTLS13; older versions are not supported";
        "tls-private-key-file" Text "" supported "Key of --tls-cert-file (PEM)";
        "tls-sni-cert-key" Array "" supported "cert,key[:name,…]: a pair to present for these names, or for those in the certificate; repeatable";
    }
    Auditing {
        "audit-log-batch-buffer-size" Int "10000" supported "Batch mode: maximum number of buffered events; further ones are dropped and counted";
        "audit-log-batch-max-size" Int "1" supported "Batch mode: maximum number of events per write";
        "audit-log-batch-max-wait" Duration "0s" supported "Batch mode: maximum wait for a batch to fill";
        "audit-log-batch-throttle-burst" Int "0" supported "Batch mode: burst of writes";
        "audit-log-batch-throttle-enable" Bool "false" supported "Batch mode: limit the rate of writes";
        "audit-log-batch-throttle-qps" Float "0" supported "Batch mode: writes per second";
        "audit-log-compress" Bool "false" supported "Compress rotated audit logs (gzip)";
        "audit-log-format" Text "json" supported "json: an event per line; legacy: upstream's older one-line text";
        "audit-log-maxage" Int "366" supported "Days to keep rotated audit logs; 0: forever";
        "audit-log-maxbackup" Int "100" supported "Rotated audit logs to keep; 0: all";
        "audit-log-maxsize" Int "100" supported "Megabytes after which the audit log is rotated; 0: never";
        "audit-log-mode" Text "blocking" supported "blocking: requests wait for the write; blocking-strict: they also fail if it fails; batch: asynchronous";
        "audit-log-path" Text "" supported "Audit log file, created with mode 0600; -: standard output";
        "audit-log-truncate-enabled" Bool "false" supported "Drop the objects of events that are too large, and then the events";
        "audit-log-truncate-max-batch-size" Int "10485760" supported "Maximum size in bytes of one write";
        "audit-log-truncate-max-event-size" Int "102400" supported "Maximum size in bytes of one event";
        "audit-log-version" Text "audit.k8s.io/v1" supported "Version of the events; only audit.k8s.io/v1 is supported";
        "audit-policy-file" Text "" supported "Audit policy (audit.k8s.io/v1 Policy); without one nothing is recorded";
        "audit-webhook-batch-buffer-size" Int "10000" supported "Batch mode: maximum number of buffered events; further ones are dropped and counted";
        "audit-webhook-batch-initial-backoff" Duration "10s" supported "Deprecated: --audit-webhook-initial-backoff";
        "audit-webhook-batch-max-size" Int "400" supported "Batch mode: maximum number of events per request";
        "audit-webhook-batch-max-wait" Duration "30s" supported "Batch mode: maximum wait for a batch to fill";
        "audit-webhook-batch-throttle-burst" Int "15" supported "Batch mode: burst of requests";
        "audit-webhook-batch-throttle-enable" Bool "true" supported "Batch mode: limit the rate of requests";
        "audit-webhook-batch-throttle-qps" Float "10" supported "Batch mode: requests per second";
        "audit-webhook-config-file" Text "" supported "Kubeconfig of the server that audit events are posted to";
        "audit-webhook-initial-backoff" Duration "10s" supported "Delay before the first retry of a failed request; each further delay is 1.5 times as long";
        "audit-webhook-mode" Text "batch" supported "batch: asynchronous; blocking: requests wait; blocking-strict: they also fail if storing fails";
        "audit-webhook-truncate-enabled" Bool "false" supported "Drop the objects of events that are too large, and then the events";
        "audit-webhook-truncate-max-batch-size" Int "10485760" supported "Maximum size in bytes of one request";
        "audit-webhook-truncate-max-event-size" Int "102400" supported "Maximum size in bytes of one event";
        "audit-webhook-version" Text "audit.k8s.io/v1" supported "Version of the events; only audit.k8s.io/v1 is supported";
    }
    Features {
        "contention-profiling" Bool "false" ignored("there is no block profile") "Profile lock contention";
        "debug-socket-path" Text "" ignored("there is no debug socket") "Unix socket for profiling";
        "enable-priority-and-fairness" Bool "true" supported "Requests take part in API priority and fairness. false: only the two limits of requests in flight apply";
        "profiling" Bool "true" ignored("there is no /debug/pprof") "Profiling endpoints";
    }
    Authentication {
        "anonymous-auth" Bool "true" supported "Treat requests without credentials as system:anonymous instead of answering 401";
        "api-audiences" List "" supported "Audiences of tokens for this server; empty: the issuers";
        "authentication-config" Text "" supported "AuthenticationConfiguration file (identity providers, anonymous paths), reloaded when changed";
        "authentication-token-webhook-cache-ttl" Duration "2m0s" supported "Time for which the webhook's answers are cached";
        "authentication-token-webhook-config-file" Text "" supported "Kubeconfig of a webhook that reviews tokens";
        "authentication-token-webhook-version" Text "v1beta1" supported "Version of the TokenReview sent to the webhook: v1 or v1beta1";
        "client-ca-file" Text "" supported "CA bundle of client certificates, reloaded when changed; empty: generated";
        "enable-bootstrap-token-auth" Bool "false" supported "Accept the tokens of bootstrap.kubernetes.io/token Secrets in kube-system";
        "oidc-ca-file" Text "" supported "CA bundle of the provider; empty: the system's";
        "oidc-client-id" Text "" supported "Audience of the provider's tokens; needs --oidc-issuer-url";
        "oidc-groups-claim" Text "" supported "Claim with the user's groups";
        "oidc-groups-prefix" Text "" supported "Prefix of the groups";
        "oidc-issuer-url" Text "" supported "https URL of an OpenID Connect provider";
        "oidc-required-claim" List "" supported "claim=value pairs a token must have";
        "oidc-signing-algs" List "RS256" supported "Algorithms the provider may sign with: RS, ES, PS with 256, 384, 512";
        "oidc-username-claim" Text "sub" supported "Claim with the user's name";
        "oidc-username-prefix" Text "" supported "Prefix of the user name; empty: the issuer and #, unless the claim is email; -: no prefix";
        "requestheader-allowed-names" List "" supported "Common names a front proxy's certificate may have; empty: any (generated CA: front-proxy-client)";
        "requestheader-client-ca-file" Text "" supported "CA bundle of front proxies, reloaded when changed; empty: generated";
        "requestheader-extra-headers-prefix" List "" supported "Prefixes of headers with extra user attributes; empty: X-Remote-Extra-";
        "requestheader-group-headers" List "" supported "Headers with groups; empty: X-Remote-Group";
        "requestheader-uid-headers" List "" supported "Headers with the uid; empty: X-Remote-Uid";
        "requestheader-username-headers" List "" supported "Headers with the user name; empty: X-Remote-User";
        "service-account-extend-token-expiration" Bool "true" supported "Extend projected tokens to a year";
        "service-account-issuer" Array "" supported "Issuers of service account tokens; the first is used for new tokens, all are accepted; empty: https://kubernetes.default.svc.cluster.local";
        "service-account-jwks-uri" Text "" supported "URI of the key set in the discovery document";
        "service-account-key-file" Array "" supported "Keys that verify service account tokens (PEM); empty: the signing key's";
        "service-account-lookup" Bool "true" supported "Reject tokens of deleted service accounts";
        "service-account-max-token-expiration" Duration "0s" supported "Maximum lifetime of a requested token; 0: no limit";
        "token-auth-file" Text "" supported "CSV of static tokens: token,user,uid[,\"group1,group2\"]; read once";
    }
    Authorization {
        "authorization-config" Text "" supported "AuthorizationConfiguration file, reloaded when changed; replaces --authorization-mode and --authorization-webhook-*";
        "authorization-mode" List "" supported "AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node, in order; empty: Node,RBAC";
        "authorization-policy-file" Text "" supported "ABAC policies, one per line; needs mode ABAC";
        "authorization-webhook-cache-authorized-ttl" Duration "5m0s" supported "Time for which the webhook's positive answers are cached";
        "authorization-webhook-cache-unauthorized-ttl" Duration "30s" supported "Time for which the webhook's negative answers are cached";
        "authorization-webhook-config-file" Text "" supported "Kubeconfig of the authorization webhook; needs mode Webhook";
        "authorization-webhook-version" Text "v1beta1" supported "Version of the SubjectAccessReview sent to the webhook: v1 or v1beta1";
    }
    Enablement {
        "runtime-config" List "" supported "api/all, api/ga, api/beta, api/alpha, group/version or group/version/resource=true|false pairs";
    }
    Egress {
        "egress-selector-config-file" Text "" rejected("connections would bypass the proxy it names") "Egress selector configuration";
    }
    Admission {
        "admission-control" List "" supported "Deprecated: run exactly these plugins, and NodeRestriction with the Node authorizer";
        "admission-control-config-file" Text "" supported "AdmissionConfiguration with the plugins' configurations; decoded strictly";
        "default-not-ready-toleration-seconds" Int "300" supported "Seconds that pods tolerate a node that is not ready, unless they specify it";
        "default-unreachable-toleration-seconds" Int "300" supported "Seconds that pods tolerate an unreachable node, unless they specify it";
        "disable-admission-plugins" List "" supported "Plugins to disable; NodeRestriction is enabled with the Node authorizer unless named here";
        "enable-admission-plugins" List "" supported "Plugins to enable";
    }
    Metrics {
        "allow-metric-labels" List "" ignored(METRICS) "Allowed label values";
        "allow-metric-labels-manifest" Text "" ignored(METRICS) "File of allowed label values";
        "disabled-metrics" List "" ignored(METRICS) "Metrics to leave out";
        "show-hidden-metrics-for-version" Text "" ignored(METRICS) "Show metrics hidden since a version";
    }
    Logs {
        "log-flush-frequency" Duration "5s" ignored(BUFFERS) "Time between flushes";
        "log-json-info-buffer-size" Text "0" ignored(BUFFERS) "Buffer of JSON logs";
        "log-json-split-stream" Bool "false" ignored(BUFFERS) "JSON errors to standard error, the rest to standard output";
        "log-text-info-buffer-size" Text "0" ignored(BUFFERS) "Buffer of text logs";
        "log-text-split-stream" Bool "false" ignored(BUFFERS) "Text errors to standard error, the rest to standard output";
        "logging-format" Text "text" rejected("only the text format is supported") "Log format";
        "v" Int "0" supported "Log verbosity: 0 to 3 info, 4 and 5 debug, 6 and more trace";
        "vmodule" List "" supported "module=verbosity pairs; modules are this program's, such as serving or aggregator::proxy";
    }
    Traces {
        "tracing-config-file" Text "" ignored("no traces are exported") "Tracing configuration";
    }
    Misc {
        "aggregator-reject-forwarding-redirect" Bool "true" supported "Answer a backend's redirect with 502 instead of passing it on";
        "allow-privileged" Bool "false" ignored("privileged containers are accepted") "Allow privileged containers";
        "apiserver-count" Int "1" ignored("only with the removed master-count reconciler") "Deprecated";
        "coordinated-leadership-lease-duration" Duration "15s" ignored(LEADER) "Coordinated leader election option";
        "coordinated-leadership-renew-deadline" Duration "10s" ignored(LEADER) "Coordinated leader election option";
        "coordinated-leadership-retry-period" Duration "2s" ignored(LEADER) "Coordinated leader election option";
        "enable-aggregator-routing" Bool "false" supported "Reach backends by endpoint address instead of cluster IP";
        "enable-logs-handler" Bool "false" ignored("there is no /logs; deprecated upstream") "Deprecated: serve /logs";
        "endpoint-reconciler-type" Text "lease" ignored("this server is the only endpoint of the kubernetes Service") "How endpoints of the kubernetes Service are kept";
        "event-ttl" Duration "1h0m0s" supported "Time to live of events";
        "kubelet-certificate-authority" Text "" supported "CA of kubelets' serving certificates (PEM); empty: they are not verified";
        "kubelet-client-certificate" Text "" supported "Client certificate for kubelets; needs --kubelet-client-key";
        "kubelet-client-key" Text "" supported "Key of --kubelet-client-certificate";
        "kubelet-port" Int "10250" supported "Port of kubelets whose node specifies none; deprecated upstream";
        "kubelet-preferred-address-types" List "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP" supported "Types of node addresses in order of preference";
        "kubelet-read-only-port" Int "10255" ignored("that port is never used") "Deprecated";
        "kubelet-timeout" Duration "5s" supported "Timeout for connecting to a kubelet";
        "kubernetes-service-node-port" Int "0" ignored("the kubernetes Service is a ClusterIP") "Node port of the kubernetes Service";
        "max-connection-bytes-per-sec" Int "0" ignored("connections are not throttled") "Throttle of exec and the like";
        "peer-advertise-ip" Text "" ignored(PEERS) "Peer proxy option";
        "peer-advertise-port" Text "" ignored(PEERS) "Peer proxy option";
        "peer-ca-file" Text "" ignored(PEERS) "Peer proxy option";
        "proxy-client-cert-file" Text "" supported "Client certificate for backends; needs --proxy-client-key-file; empty: generated";
        "proxy-client-key-file" Text "" supported "Key of --proxy-client-cert-file";
        "service-account-signing-endpoint" Text "" rejected("external token signers are not in this release") "Socket of a token signer";
        "service-account-signing-key-file" Text "" supported "Key that signs service account tokens (PEM); empty: generated";
        "service-cluster-ip-range" List "10.0.0.0/24" supported "CIDR of service addresses; add one of the other family for dual stack";
        "service-node-port-range" Text "30000-32767" supported "Range of node ports";
    }
}

//! Fields of the Go structs in pod specs: handlers, security, scheduling and DNS, in Go's order. Each
//! constant's doc names the Go struct.

use super::super::Field;
use super::super::Printing::{Any, Int, List, OmitEmpty, OmitEmptyList, Ptr, Str, Struct};

/// `metav1.LabelSelectorRequirement`.
const REQUIREMENT: &[Field] = &[
    ("key", "key", Str),
    ("operator", "operator", Str),
    ("values", "values", OmitEmpty),
];

/// `metav1.LabelSelector`: an API type, not an internal one, so it prints under its wire names.
pub(in crate::controlplane::validation) const SELECTOR: &[Field] = &[
    ("matchLabels", "matchLabels", OmitEmpty),
    ("matchExpressions", "matchExpressions", OmitEmptyList(REQUIREMENT)),
];

/// `ExecAction`.
pub(super) const EXEC: &[Field] = &[("Command", "command", Any)];

/// `HTTPHeader`.
pub(super) const HEADER: &[Field] = &[("Name", "name", Str), ("Value", "value", Str)];

/// `HTTPGetAction`.
pub(super) const HTTP_GET: &[Field] = &[
    ("Path", "path", Str),
    ("Port", "port", Any),
    ("Host", "host", Str),
    ("Scheme", "scheme", Str),
    ("HTTPHeaders", "httpHeaders", List(HEADER)),
];

/// `TCPSocketAction`.
pub(super) const TCP: &[Field] = &[("Port", "port", Any), ("Host", "host", Str)];

/// `GRPCAction`.
pub(super) const GRPC: &[Field] = &[("Port", "port", Int), ("Service", "service", Any)];

/// `SleepAction`.
pub(super) const SLEEP: &[Field] = &[("Seconds", "seconds", Int)];

/// `LifecycleHandler`.
pub(super) const HANDLER: &[Field] = &[
    ("Exec", "exec", Ptr(EXEC)),
    ("HTTPGet", "httpGet", Ptr(HTTP_GET)),
    ("TCPSocket", "tcpSocket", Ptr(TCP)),
    ("Sleep", "sleep", Ptr(SLEEP)),
];

/// `Lifecycle`.
pub(super) const LIFECYCLE: &[Field] = &[
    ("PostStart", "postStart", Ptr(HANDLER)),
    ("PreStop", "preStop", Ptr(HANDLER)),
    ("StopSignal", "stopSignal", Any),
];

/// `Capabilities`.
pub(super) const CAPABILITIES: &[Field] = &[("Add", "add", Any), ("Drop", "drop", Any)];

/// `SELinuxOptions`.
pub(super) const SE_LINUX: &[Field] = &[
    ("User", "user", Str),
    ("Role", "role", Str),
    ("Type", "type", Str),
    ("Level", "level", Str),
];

/// `WindowsSecurityContextOptions`.
pub(super) const WINDOWS: &[Field] = &[
    ("GMSACredentialSpecName", "gmsaCredentialSpecName", Any),
    ("GMSACredentialSpec", "gmsaCredentialSpec", Any),
    ("RunAsUserName", "runAsUserName", Any),
    ("HostProcess", "hostProcess", Any),
];

/// `SeccompProfile`.
pub(super) const SECCOMP: &[Field] = &[("Type", "type", Str), ("LocalhostProfile", "localhostProfile", Any)];

/// `AppArmorProfile`.
pub(super) const APP_ARMOR: &[Field] = &[("Type", "type", Str), ("LocalhostProfile", "localhostProfile", Any)];

/// `Sysctl`.
pub(super) const SYSCTL: &[Field] = &[("Name", "name", Str), ("Value", "value", Str)];

/// `FileKeySelector`.
pub(super) const FILE_KEY: &[Field] = &[
    ("VolumeName", "volumeName", Str),
    ("Path", "path", Str),
    ("Key", "key", Str),
    ("Optional", "optional", Any),
];

/// `ConfigMapEnvSource` and `SecretEnvSource`.
pub(super) const ENV_OBJECT: &[Field] = &[("Name", "name", Str), ("Optional", "optional", Any)];

/// `ContainerResizePolicy`.
pub(super) const RESIZE: &[Field] = &[
    ("ResourceName", "resourceName", Str),
    ("RestartPolicy", "restartPolicy", Str),
];

/// `ContainerRestartRuleOnExitCodes`.
pub(super) const EXIT_CODES: &[Field] = &[("Operator", "operator", Str), ("Values", "values", Any)];

/// `ContainerRestartRule`.
pub(super) const RESTART_RULE: &[Field] = &[("Action", "action", Str), ("ExitCodes", "exitCodes", Ptr(EXIT_CODES))];

/// `NodeSelectorRequirement`.
pub(super) const NODE_REQUIREMENT: &[Field] = &[
    ("Key", "key", Str),
    ("Operator", "operator", Str),
    ("Values", "values", Any),
];

/// `NodeSelectorTerm`.
pub(in crate::controlplane::validation) const NODE_TERM: &[Field] = &[
    ("MatchExpressions", "matchExpressions", List(NODE_REQUIREMENT)),
    ("MatchFields", "matchFields", List(NODE_REQUIREMENT)),
];

/// `NodeSelector`.
pub(super) const NODE_SELECTOR: &[Field] = &[("NodeSelectorTerms", "nodeSelectorTerms", List(NODE_TERM))];

/// `PreferredSchedulingTerm`.
pub(super) const PREFERRED_NODE: &[Field] = &[
    ("Weight", "weight", Int),
    ("Preference", "preference", Struct(NODE_TERM)),
];

/// `NodeAffinity`.
pub(super) const NODE_AFFINITY: &[Field] = &[
    (
        "RequiredDuringSchedulingIgnoredDuringExecution",
        "requiredDuringSchedulingIgnoredDuringExecution",
        Ptr(NODE_SELECTOR),
    ),
    (
        "PreferredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
        List(PREFERRED_NODE),
    ),
];

/// `PodAffinityTerm`.
pub(super) const POD_TERM: &[Field] = &[
    ("LabelSelector", "labelSelector", Ptr(SELECTOR)),
    ("Namespaces", "namespaces", Any),
    ("TopologyKey", "topologyKey", Str),
    ("NamespaceSelector", "namespaceSelector", Ptr(SELECTOR)),
    ("MatchLabelKeys", "matchLabelKeys", Any),
    ("MismatchLabelKeys", "mismatchLabelKeys", Any),
];

/// `WeightedPodAffinityTerm`.
pub(super) const PREFERRED_POD: &[Field] = &[
    ("Weight", "weight", Int),
    ("PodAffinityTerm", "podAffinityTerm", Struct(POD_TERM)),
];

/// `PodAffinity` and `PodAntiAffinity`.
pub(super) const POD_AFFINITY: &[Field] = &[
    (
        "RequiredDuringSchedulingIgnoredDuringExecution",
        "requiredDuringSchedulingIgnoredDuringExecution",
        List(POD_TERM),
    ),
    (
        "PreferredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
        List(PREFERRED_POD),
    ),
];

/// `Affinity`.
pub(super) const AFFINITY: &[Field] = &[
    ("NodeAffinity", "nodeAffinity", Ptr(NODE_AFFINITY)),
    ("PodAffinity", "podAffinity", Ptr(POD_AFFINITY)),
    ("PodAntiAffinity", "podAntiAffinity", Ptr(POD_AFFINITY)),
];

/// `HostAlias`.
pub(super) const HOST_ALIAS: &[Field] = &[("IP", "ip", Str), ("Hostnames", "hostnames", Any)];

/// `PodDNSConfigOption`.
pub(super) const DNS_OPTION: &[Field] = &[("Name", "name", Str), ("Value", "value", Any)];

/// `PodDNSConfig`.
pub(super) const DNS: &[Field] = &[
    ("Nameservers", "nameservers", Any),
    ("Searches", "searches", Any),
    ("Options", "options", List(DNS_OPTION)),
];

/// `TopologySpreadConstraint`.
pub(super) const SPREAD: &[Field] = &[
    ("MaxSkew", "maxSkew", Int),
    ("TopologyKey", "topologyKey", Str),
    ("WhenUnsatisfiable", "whenUnsatisfiable", Str),
    ("LabelSelector", "labelSelector", Ptr(SELECTOR)),
    ("MinDomains", "minDomains", Any),
    ("NodeAffinityPolicy", "nodeAffinityPolicy", Any),
    ("NodeTaintsPolicy", "nodeTaintsPolicy", Any),
    ("MatchLabelKeys", "matchLabelKeys", Any),
];

/// `PodResourceClaim`.
pub(super) const POD_CLAIM: &[Field] = &[
    ("Name", "name", Str),
    ("ResourceClaimName", "resourceClaimName", Any),
    ("ResourceClaimTemplateName", "resourceClaimTemplateName", Any),
];

/// `ResourceClaim`.
pub(super) const CLAIM_PART: &[Field] = &[("Name", "name", Str), ("Request", "request", Str)];

/// `EnvFromSource`.
pub(super) const ENV_FROM: &[Field] = &[
    ("Prefix", "prefix", Str),
    ("ConfigMapRef", "configMapRef", Ptr(ENV_OBJECT)),
    ("SecretRef", "secretRef", Ptr(ENV_OBJECT)),
];

/// `Probe`.
pub(super) const PROBE: &[Field] = &[
    ("Exec", "exec", Ptr(EXEC)),
    ("HTTPGet", "httpGet", Ptr(HTTP_GET)),
    ("TCPSocket", "tcpSocket", Ptr(TCP)),
    ("GRPC", "grpc", Ptr(GRPC)),
    ("InitialDelaySeconds", "initialDelaySeconds", Int),
    ("TimeoutSeconds", "timeoutSeconds", Int),
    ("PeriodSeconds", "periodSeconds", Int),
    ("SuccessThreshold", "successThreshold", Int),
    ("FailureThreshold", "failureThreshold", Int),
    ("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", Any),
];

//! The structs of what pods do and where they run, in Go's order.

use super::super::Field;
use super::super::Kind::{Any, Int, List, Ptr, Said, Str, Struct};

/// A selector: an API type, which keeps the names it has on the wire.
pub(in crate::controlplane::validation) const SELECTOR: &[Field] = &[
    ("matchLabels", "matchLabels", Said),
    ("matchExpressions", "matchExpressions", Said),
];

/// A command.
pub(super) const EXEC: &[Field] = &[("Command", "command", Any)];

/// A header.
pub(super) const HEADER: &[Field] = &[("Name", "name", Str), ("Value", "value", Str)];

/// A request.
pub(super) const HTTP_GET: &[Field] = &[
    ("Path", "path", Str),
    ("Port", "port", Any),
    ("Host", "host", Str),
    ("Scheme", "scheme", Str),
    ("HTTPHeaders", "httpHeaders", List(HEADER)),
];

/// A connection.
pub(super) const TCP: &[Field] = &[("Port", "port", Any), ("Host", "host", Str)];

/// A call.
pub(super) const GRPC: &[Field] = &[("Port", "port", Int), ("Service", "service", Any)];

/// A pause.
pub(super) const SLEEP: &[Field] = &[("Seconds", "seconds", Int)];

/// What is done at a turn of life.
pub(super) const HANDLER: &[Field] = &[
    ("Exec", "exec", Ptr(EXEC)),
    ("HTTPGet", "httpGet", Ptr(HTTP_GET)),
    ("TCPSocket", "tcpSocket", Ptr(TCP)),
    ("Sleep", "sleep", Ptr(SLEEP)),
];

/// The turns of life.
pub(super) const LIFECYCLE: &[Field] = &[
    ("PostStart", "postStart", Ptr(HANDLER)),
    ("PreStop", "preStop", Ptr(HANDLER)),
    ("StopSignal", "stopSignal", Any),
];

/// Capabilities.
pub(super) const CAPABILITIES: &[Field] = &[("Add", "add", Any), ("Drop", "drop", Any)];

/// Labels of SELinux.
pub(super) const SE_LINUX: &[Field] = &[
    ("User", "user", Str),
    ("Role", "role", Str),
    ("Type", "type", Str),
    ("Level", "level", Str),
];

/// Options of Windows.
pub(super) const WINDOWS: &[Field] = &[
    ("GMSACredentialSpecName", "gmsaCredentialSpecName", Any),
    ("GMSACredentialSpec", "gmsaCredentialSpec", Any),
    ("RunAsUserName", "runAsUserName", Any),
    ("HostProcess", "hostProcess", Any),
];

/// A profile of seccomp.
pub(super) const SECCOMP: &[Field] = &[("Type", "type", Str), ("LocalhostProfile", "localhostProfile", Any)];

/// A profile of AppArmor.
pub(super) const APP_ARMOR: &[Field] = &[("Type", "type", Str), ("LocalhostProfile", "localhostProfile", Any)];

/// A setting of the kernel.
pub(super) const SYSCTL: &[Field] = &[("Name", "name", Str), ("Value", "value", Str)];

/// A key of a file.
pub(super) const FILE_KEY: &[Field] = &[
    ("VolumeName", "volumeName", Str),
    ("Path", "path", Str),
    ("Key", "key", Str),
    ("Optional", "optional", Any),
];

/// An object whose keys are variables.
pub(super) const ENV_OBJECT: &[Field] = &[("Name", "name", Str), ("Optional", "optional", Any)];

/// What a resize does.
pub(super) const RESIZE: &[Field] = &[
    ("ResourceName", "resourceName", Str),
    ("RestartPolicy", "restartPolicy", Str),
];

/// Exit codes.
pub(super) const EXIT_CODES: &[Field] = &[("Operator", "operator", Str), ("Values", "values", Any)];

/// When a container starts again.
pub(super) const RESTART_RULE: &[Field] = &[("Action", "action", Str), ("ExitCodes", "exitCodes", Ptr(EXIT_CODES))];

/// What a node must have.
pub(super) const NODE_REQUIREMENT: &[Field] = &[
    ("Key", "key", Str),
    ("Operator", "operator", Str),
    ("Values", "values", Any),
];

/// A kind of node.
pub(super) const NODE_TERM: &[Field] = &[
    ("MatchExpressions", "matchExpressions", List(NODE_REQUIREMENT)),
    ("MatchFields", "matchFields", List(NODE_REQUIREMENT)),
];

/// Kinds of nodes.
pub(super) const NODE_SELECTOR: &[Field] = &[("NodeSelectorTerms", "nodeSelectorTerms", List(NODE_TERM))];

/// A kind of node one would like.
pub(super) const PREFERRED_NODE: &[Field] = &[
    ("Weight", "weight", Int),
    ("Preference", "preference", Struct(NODE_TERM)),
];

/// Nodes.
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

/// Pods to be near to.
pub(super) const POD_TERM: &[Field] = &[
    ("LabelSelector", "labelSelector", Ptr(SELECTOR)),
    ("Namespaces", "namespaces", Any),
    ("TopologyKey", "topologyKey", Str),
    ("NamespaceSelector", "namespaceSelector", Ptr(SELECTOR)),
    ("MatchLabelKeys", "matchLabelKeys", Any),
    ("MismatchLabelKeys", "mismatchLabelKeys", Any),
];

/// Pods one would like to be near to.
pub(super) const PREFERRED_POD: &[Field] = &[
    ("Weight", "weight", Int),
    ("PodAffinityTerm", "podAffinityTerm", Struct(POD_TERM)),
];

/// Nearness to pods.
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

/// Where a pod wants to run.
pub(super) const AFFINITY: &[Field] = &[
    ("NodeAffinity", "nodeAffinity", Ptr(NODE_AFFINITY)),
    ("PodAffinity", "podAffinity", Ptr(POD_AFFINITY)),
    ("PodAntiAffinity", "podAntiAffinity", Ptr(POD_AFFINITY)),
];

/// Names of an address.
pub(super) const HOST_ALIAS: &[Field] = &[("IP", "ip", Str), ("Hostnames", "hostnames", Any)];

/// An option of the resolver.
pub(super) const DNS_OPTION: &[Field] = &[("Name", "name", Str), ("Value", "value", Any)];

/// The resolver.
pub(super) const DNS: &[Field] = &[
    ("Nameservers", "nameservers", Any),
    ("Searches", "searches", Any),
    ("Options", "options", List(DNS_OPTION)),
];

/// How pods are spread.
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

/// A claim of devices.
pub(super) const POD_CLAIM: &[Field] = &[
    ("Name", "name", Str),
    ("ResourceClaimName", "resourceClaimName", Any),
    ("ResourceClaimTemplateName", "resourceClaimTemplateName", Any),
];

/// A container's part of a claim.
pub(super) const CLAIM_PART: &[Field] = &[("Name", "name", Str), ("Request", "request", Str)];

/// An object whose keys become variables.
pub(super) const ENV_FROM: &[Field] = &[
    ("Prefix", "prefix", Str),
    ("ConfigMapRef", "configMapRef", Ptr(ENV_OBJECT)),
    ("SecretRef", "secretRef", Ptr(ENV_OBJECT)),
];

/// A look at a container.
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

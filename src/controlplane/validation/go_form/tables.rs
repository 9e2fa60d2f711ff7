//! Fields of the Go structs in upstream's `pkg/apis/core/types.go` and the workload, policy and batch groups,
//! in Go's order. Each constant's doc names the Go struct. Pods' parts are in `pods`, volume sources in
//! `sources`.

mod meta;
mod pods;
mod sources;

use super::Field;
use super::Printing::{Any, Bool, Int, List, Ptr, Str, Struct, Template};
pub(super) use meta::META;
use pods::{
    AFFINITY, APP_ARMOR, CAPABILITIES, CLAIM_PART, DNS, ENV_FROM, FILE_KEY, HOST_ALIAS, LIFECYCLE, NODE_SELECTOR,
    POD_CLAIM, PROBE, RESIZE, RESTART_RULE, SE_LINUX, SECCOMP, SPREAD, SYSCTL, WINDOWS,
};
pub(in crate::controlplane::validation) use pods::{NODE_TERM, SELECTOR};
pub(in crate::controlplane::validation) use sources::PERSISTENT;

/// `KeyToPath`.
const KEY_ITEM: &[Field] = &[("Key", "key", Str), ("Path", "path", Str), ("Mode", "mode", Any)];

/// `DownwardAPIVolumeFile`.
const DOWNWARD_FILE: &[Field] = &[
    ("Path", "path", Str),
    ("FieldRef", "fieldRef", Ptr(FIELD_REF)),
    ("ResourceFieldRef", "resourceFieldRef", Ptr(RESOURCE_REF)),
    ("Mode", "mode", Any),
];

/// `ObjectFieldSelector`.
const FIELD_REF: &[Field] = &[("APIVersion", "apiVersion", Str), ("FieldPath", "fieldPath", Str)];

/// `ResourceFieldSelector`.
const RESOURCE_REF: &[Field] = &[
    ("ContainerName", "containerName", Str),
    ("Resource", "resource", Str),
    ("Divisor", "divisor", Any),
];

/// `ServiceAccountTokenProjection`.
const TOKEN: &[Field] = &[
    ("Audience", "audience", Str),
    ("ExpirationSeconds", "expirationSeconds", Int),
    ("Path", "path", Str),
];

/// `ConfigMapProjection` and `SecretProjection`.
const NAMED_ITEMS: &[Field] = &[
    ("Name", "name", Str),
    ("Items", "items", List(KEY_ITEM)),
    ("Optional", "optional", Any),
];

/// `DownwardAPIProjection`.
const DOWNWARD_ITEMS: &[Field] = &[("Items", "items", List(DOWNWARD_FILE))];

/// `ClusterTrustBundleProjection`.
const TRUST_BUNDLE: &[Field] = &[
    ("Name", "name", Any),
    ("SignerName", "signerName", Any),
    ("LabelSelector", "labelSelector", Ptr(SELECTOR)),
    ("Optional", "optional", Any),
    ("Path", "path", Str),
];

/// `VolumeProjection`. The line numbers in upstream's recorded diffs count the fields of a trust bundle in
/// every source, so it is printed as a struct even if absent.
const PROJECTION: &[Field] = &[
    ("Secret", "secret", Ptr(NAMED_ITEMS)),
    ("DownwardAPI", "downwardAPI", Ptr(DOWNWARD_ITEMS)),
    ("ConfigMap", "configMap", Ptr(NAMED_ITEMS)),
    ("ServiceAccountToken", "serviceAccountToken", Ptr(TOKEN)),
    ("ClusterTrustBundle", "clusterTrustBundle", Struct(TRUST_BUNDLE)),
    ("PodCertificate", "podCertificate", Any),
];

/// `ProjectedVolumeSource`.
const PROJECTED: &[Field] = &[
    ("Sources", "sources", List(PROJECTION)),
    ("DefaultMode", "defaultMode", Any),
];

/// `EmptyDirVolumeSource`.
const EMPTY_DIR: &[Field] = &[("Medium", "medium", Str), ("SizeLimit", "sizeLimit", Any)];

/// `SecretVolumeSource`.
const SECRET_VOLUME: &[Field] = &[
    ("SecretName", "secretName", Str),
    ("Items", "items", List(KEY_ITEM)),
    ("DefaultMode", "defaultMode", Any),
    ("Optional", "optional", Any),
];

/// `ConfigMapVolumeSource`.
const CONFIG_MAP_VOLUME: &[Field] = &[
    ("Name", "name", Str),
    ("Items", "items", List(KEY_ITEM)),
    ("DefaultMode", "defaultMode", Any),
    ("Optional", "optional", Any),
];

/// `PersistentVolumeClaimVolumeSource`.
const CLAIM_VOLUME: &[Field] = &[("ClaimName", "claimName", Str), ("ReadOnly", "readOnly", Bool)];

/// `DownwardAPIVolumeSource`.
const DOWNWARD_VOLUME: &[Field] = &[
    ("Items", "items", List(DOWNWARD_FILE)),
    ("DefaultMode", "defaultMode", Any),
];

/// `EphemeralVolumeSource`, with the `PersistentVolumeClaimTemplate` in it.
const EPHEMERAL_VOLUME: &[Field] = &[(
    "VolumeClaimTemplate",
    "volumeClaimTemplate",
    Template(&[("Spec", "spec", Struct(CLAIM_SPEC))]),
)];

/// `Volume`, with the embedded `VolumeSource`.
const VOLUME: &[Field] = &[
    ("Name", "name", Str),
    ("HostPath", "hostPath", Ptr(sources::HOST_PATH)),
    ("EmptyDir", "emptyDir", Ptr(EMPTY_DIR)),
    ("GCEPersistentDisk", "gcePersistentDisk", Ptr(sources::GOOGLE_DISK)),
    (
        "AWSElasticBlockStore",
        "awsElasticBlockStore",
        Ptr(sources::AMAZON_DISK),
    ),
    ("GitRepo", "gitRepo", Ptr(sources::GIT)),
    ("Secret", "secret", Ptr(SECRET_VOLUME)),
    ("NFS", "nfs", Ptr(sources::NFS)),
    ("ISCSI", "iscsi", Ptr(sources::ISCSI)),
    ("Glusterfs", "glusterfs", Ptr(sources::GLUSTER)),
    ("PersistentVolumeClaim", "persistentVolumeClaim", Ptr(CLAIM_VOLUME)),
    ("RBD", "rbd", Ptr(sources::RBD)),
    ("Quobyte", "quobyte", Ptr(sources::QUOBYTE)),
    ("FlexVolume", "flexVolume", Ptr(sources::FLEX)),
    ("Cinder", "cinder", Ptr(sources::CINDER)),
    ("CephFS", "cephfs", Ptr(sources::CEPH)),
    ("Flocker", "flocker", Ptr(sources::FLOCKER)),
    ("DownwardAPI", "downwardAPI", Ptr(DOWNWARD_VOLUME)),
    ("FC", "fc", Ptr(sources::FIBRE)),
    ("AzureFile", "azureFile", Ptr(sources::AZURE_FILE)),
    ("ConfigMap", "configMap", Ptr(CONFIG_MAP_VOLUME)),
    ("VsphereVolume", "vsphereVolume", Ptr(sources::VSPHERE)),
    ("AzureDisk", "azureDisk", Ptr(sources::AZURE_DISK)),
    ("PhotonPersistentDisk", "photonPersistentDisk", Ptr(sources::PHOTON)),
    ("Projected", "projected", Ptr(PROJECTED)),
    ("PortworxVolume", "portworxVolume", Ptr(sources::PORTWORX)),
    ("ScaleIO", "scaleIO", Ptr(sources::SCALE_IO)),
    ("StorageOS", "storageos", Ptr(sources::STORAGE_OS)),
    ("CSI", "csi", Ptr(sources::CSI)),
    ("Ephemeral", "ephemeral", Ptr(EPHEMERAL_VOLUME)),
    ("Image", "image", Ptr(sources::IMAGE)),
];

/// `ContainerPort`.
const PORT: &[Field] = &[
    ("Name", "name", Str),
    ("HostPort", "hostPort", Int),
    ("ContainerPort", "containerPort", Int),
    ("Protocol", "protocol", Str),
    ("HostIP", "hostIP", Str),
];

/// `ConfigMapKeySelector` and `SecretKeySelector`.
const KEY_REF: &[Field] = &[
    ("Name", "name", Str),
    ("Key", "key", Str),
    ("Optional", "optional", Any),
];

/// `EnvVarSource`.
const ENV_SOURCE: &[Field] = &[
    ("FieldRef", "fieldRef", Ptr(FIELD_REF)),
    ("ResourceFieldRef", "resourceFieldRef", Ptr(RESOURCE_REF)),
    ("ConfigMapKeyRef", "configMapKeyRef", Ptr(KEY_REF)),
    ("SecretKeyRef", "secretKeyRef", Ptr(KEY_REF)),
    ("FileKeyRef", "fileKeyRef", Ptr(FILE_KEY)),
];

/// `EnvVar`.
const ENV: &[Field] = &[
    ("Name", "name", Str),
    ("Value", "value", Str),
    ("ValueFrom", "valueFrom", Ptr(ENV_SOURCE)),
];

/// `ResourceRequirements`.
const RESOURCES: &[Field] = &[
    ("Limits", "limits", Any),
    ("Requests", "requests", Any),
    ("Claims", "claims", List(CLAIM_PART)),
];

/// `VolumeMount`.
const MOUNT: &[Field] = &[
    ("Name", "name", Str),
    ("ReadOnly", "readOnly", Bool),
    ("RecursiveReadOnly", "recursiveReadOnly", Any),
    ("MountPath", "mountPath", Str),
    ("SubPath", "subPath", Str),
    ("MountPropagation", "mountPropagation", Any),
    ("SubPathExpr", "subPathExpr", Str),
];

/// `VolumeDevice`.
const DEVICE: &[Field] = &[("Name", "name", Str), ("DevicePath", "devicePath", Str)];

/// `SecurityContext`.
pub(in crate::controlplane::validation) const CONTEXT: &[Field] = &[
    ("Capabilities", "capabilities", Ptr(CAPABILITIES)),
    ("Privileged", "privileged", Any),
    ("SELinuxOptions", "seLinuxOptions", Ptr(SE_LINUX)),
    ("WindowsOptions", "windowsOptions", Ptr(WINDOWS)),
    ("RunAsUser", "runAsUser", Any),
    ("RunAsGroup", "runAsGroup", Any),
    ("RunAsNonRoot", "runAsNonRoot", Any),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", Any),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", Any),
    ("ProcMount", "procMount", Any),
    ("SeccompProfile", "seccompProfile", Ptr(SECCOMP)),
    ("AppArmorProfile", "appArmorProfile", Ptr(APP_ARMOR)),
];

/// `Container`.
const CONTAINER: &[Field] = &[
    ("Name", "name", Str),
    ("Image", "image", Str),
    ("Command", "command", Any),
    ("Args", "args", Any),
    ("WorkingDir", "workingDir", Str),
    ("Ports", "ports", List(PORT)),
    ("EnvFrom", "envFrom", List(ENV_FROM)),
    ("Env", "env", List(ENV)),
    ("Resources", "resources", Struct(RESOURCES)),
    ("ResizePolicy", "resizePolicy", List(RESIZE)),
    ("RestartPolicy", "restartPolicy", Any),
    ("RestartPolicyRules", "restartPolicyRules", List(RESTART_RULE)),
    ("VolumeMounts", "volumeMounts", List(MOUNT)),
    ("VolumeDevices", "volumeDevices", List(DEVICE)),
    ("LivenessProbe", "livenessProbe", Ptr(PROBE)),
    ("ReadinessProbe", "readinessProbe", Ptr(PROBE)),
    ("StartupProbe", "startupProbe", Ptr(PROBE)),
    ("Lifecycle", "lifecycle", Ptr(LIFECYCLE)),
    ("TerminationMessagePath", "terminationMessagePath", Str),
    ("TerminationMessagePolicy", "terminationMessagePolicy", Str),
    ("ImagePullPolicy", "imagePullPolicy", Str),
    ("SecurityContext", "securityContext", Ptr(CONTEXT)),
    ("Stdin", "stdin", Bool),
    ("StdinOnce", "stdinOnce", Bool),
    ("TTY", "tty", Bool),
];

/// `EphemeralContainer`: the fields of a container, then the target.
pub(in crate::controlplane::validation) const EPHEMERAL_CONTAINER: [Field; CONTAINER.len() + 1] = {
    let mut all = [("TargetContainerName", "targetContainerName", Str); CONTAINER.len() + 1];
    let mut i = 0;
    // A loop, since iterators do not work in constants. Go embeds the common fields, so they print flat and
    // first.
    while i < CONTAINER.len() {
        all[i] = CONTAINER[i];
        i += 1;
    }
    all
};

/// `PodSecurityContext`.
const POD_CONTEXT: &[Field] = &[
    ("HostNetwork", "hostNetwork", Bool),
    ("HostPID", "hostPID", Bool),
    ("HostIPC", "hostIPC", Bool),
    ("ShareProcessNamespace", "shareProcessNamespace", Any),
    ("HostUsers", "hostUsers", Any),
    ("SELinuxOptions", "seLinuxOptions", Ptr(SE_LINUX)),
    ("WindowsOptions", "windowsOptions", Ptr(WINDOWS)),
    ("RunAsUser", "runAsUser", Any),
    ("RunAsGroup", "runAsGroup", Any),
    ("RunAsNonRoot", "runAsNonRoot", Any),
    ("SupplementalGroups", "supplementalGroups", Any),
    ("SupplementalGroupsPolicy", "supplementalGroupsPolicy", Any),
    ("FSGroup", "fsGroup", Any),
    ("FSGroupChangePolicy", "fsGroupChangePolicy", Any),
    ("Sysctls", "sysctls", List(SYSCTL)),
    ("SeccompProfile", "seccompProfile", Ptr(SECCOMP)),
    ("AppArmorProfile", "appArmorProfile", Ptr(APP_ARMOR)),
    ("SELinuxChangePolicy", "seLinuxChangePolicy", Any),
];

/// `Toleration`.
pub(in crate::controlplane::validation) const TOLERATION: &[Field] = &[
    ("Key", "key", Str),
    ("Operator", "operator", Str),
    ("Value", "value", Str),
    ("Effect", "effect", Str),
    ("TolerationSeconds", "tolerationSeconds", Any),
];

/// Structs with only a name, such as `LocalObjectReference`, `PodOS` and `PodSchedulingGate`.
const NAMED: &[Field] = &[("Name", "name", Str)];

/// `PodReadinessGate`.
const GATE: &[Field] = &[("ConditionType", "conditionType", Str)];

/// `PodSpec`, as rearranged by `pod_spec`.
pub(in crate::controlplane::validation) const POD_SPEC: &[Field] = &[
    ("Volumes", "volumes", List(VOLUME)),
    ("InitContainers", "initContainers", List(CONTAINER)),
    ("Containers", "containers", List(CONTAINER)),
    ("EphemeralContainers", "ephemeralContainers", List(&EPHEMERAL_CONTAINER)),
    ("RestartPolicy", "restartPolicy", Str),
    ("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", Any),
    ("ActiveDeadlineSeconds", "activeDeadlineSeconds", Any),
    ("DNSPolicy", "dnsPolicy", Str),
    ("NodeSelector", "nodeSelector", Any),
    ("ServiceAccountName", "serviceAccountName", Str),
    ("AutomountServiceAccountToken", "automountServiceAccountToken", Any),
    ("NodeName", "nodeName", Str),
    ("SecurityContext", "securityContext", Ptr(POD_CONTEXT)),
    ("ImagePullSecrets", "imagePullSecrets", List(NAMED)),
    ("Hostname", "hostname", Str),
    ("Subdomain", "subdomain", Str),
    ("SetHostnameAsFQDN", "setHostnameAsFQDN", Any),
    ("Affinity", "affinity", Ptr(AFFINITY)),
    ("SchedulerName", "schedulerName", Str),
    ("Tolerations", "tolerations", List(TOLERATION)),
    ("HostAliases", "hostAliases", List(HOST_ALIAS)),
    ("PriorityClassName", "priorityClassName", Str),
    ("Priority", "priority", Any),
    ("PreemptionPolicy", "preemptionPolicy", Any),
    ("DNSConfig", "dnsConfig", Ptr(DNS)),
    ("ReadinessGates", "readinessGates", List(GATE)),
    ("RuntimeClassName", "runtimeClassName", Any),
    ("Overhead", "overhead", Any),
    ("EnableServiceLinks", "enableServiceLinks", Any),
    ("TopologySpreadConstraints", "topologySpreadConstraints", List(SPREAD)),
    ("OS", "os", Ptr(NAMED)),
    ("SchedulingGates", "schedulingGates", List(NAMED)),
    ("ResourceClaims", "resourceClaims", List(POD_CLAIM)),
    ("Resources", "resources", Ptr(RESOURCES)),
    ("HostnameOverride", "hostnameOverride", Any),
    ("SchedulingGroup", "schedulingGroup", Any),
];

/// `VolumeResourceRequirements`.
const VOLUME_RESOURCES: &[Field] = &[("Limits", "limits", Any), ("Requests", "requests", Any)];

/// `TypedLocalObjectReference`.
const DATA_SOURCE: &[Field] = &[
    ("APIGroup", "apiGroup", Any),
    ("Kind", "kind", Str),
    ("Name", "name", Str),
];

/// `TypedObjectReference`.
const SOURCE_REF: &[Field] = &[
    ("APIGroup", "apiGroup", Any),
    ("Kind", "kind", Str),
    ("Name", "name", Str),
    ("Namespace", "namespace", Any),
];

/// `PersistentVolumeClaimSpec`.
pub(in crate::controlplane::validation) const CLAIM_SPEC: &[Field] = &[
    ("AccessModes", "accessModes", Any),
    ("Selector", "selector", Ptr(SELECTOR)),
    ("Resources", "resources", Struct(VOLUME_RESOURCES)),
    ("VolumeName", "volumeName", Str),
    ("StorageClassName", "storageClassName", Any),
    ("VolumeMode", "volumeMode", Any),
    ("DataSource", "dataSource", Ptr(DATA_SOURCE)),
    ("DataSourceRef", "dataSourceRef", Ptr(SOURCE_REF)),
    ("VolumeAttributesClassName", "volumeAttributesClassName", Any),
];

/// `ScopedResourceSelectorRequirement`.
const SCOPE: &[Field] = &[
    ("ScopeName", "scopeName", Str),
    ("Operator", "operator", Str),
    ("Values", "values", Any),
];

/// `ScopeSelector`.
pub(in crate::controlplane::validation) const SCOPE_SELECTOR: &[Field] =
    &[("MatchExpressions", "matchExpressions", List(SCOPE))];

/// `PodFailurePolicyOnExitCodesRequirement`.
const POLICY_CODES: &[Field] = &[
    ("ContainerName", "containerName", Any),
    ("Operator", "operator", Str),
    ("Values", "values", Any),
];

/// `PodFailurePolicyOnPodConditionsPattern`.
const POLICY_CONDITION: &[Field] = &[("Type", "type", Str), ("Status", "status", Str)];

/// `PodFailurePolicyRule`.
const FAILURE_RULE: &[Field] = &[
    ("Action", "action", Str),
    ("OnExitCodes", "onExitCodes", Ptr(POLICY_CODES)),
    ("OnPodConditions", "onPodConditions", List(POLICY_CONDITION)),
];

/// `PodFailurePolicy`.
pub(in crate::controlplane::validation) const FAILURE_POLICY: &[Field] = &[("Rules", "rules", List(FAILURE_RULE))];

/// `SuccessPolicyRule`.
const SUCCESS_RULE: &[Field] = &[
    ("SucceededIndexes", "succeededIndexes", Any),
    ("SucceededCount", "succeededCount", Any),
];

/// `SuccessPolicy`.
pub(in crate::controlplane::validation) const SUCCESS_POLICY: &[Field] = &[("Rules", "rules", List(SUCCESS_RULE))];

/// `VolumeNodeAffinity`.
pub(in crate::controlplane::validation) const VOLUME_NODES: &[Field] = &[("Required", "required", Ptr(NODE_SELECTOR))];

/// `PersistentVolumeSpec` after the embedded source.
pub(super) const PERSISTENT_REST: &[Field] = &[
    ("AccessModes", "accessModes", Any),
    ("ClaimRef", "claimRef", Ptr(sources::OBJECT_REF)),
    ("PersistentVolumeReclaimPolicy", "persistentVolumeReclaimPolicy", Str),
    ("StorageClassName", "storageClassName", Str),
    ("MountOptions", "mountOptions", Any),
    ("VolumeMode", "volumeMode", Any),
    ("NodeAffinity", "nodeAffinity", Ptr(VOLUME_NODES)),
    ("VolumeAttributesClassName", "volumeAttributesClassName", Any),
];

/// `RollingUpdateDeployment` and `RollingUpdateDaemonSet`.
// `Int` prints an `IntOrString` as it is and an absent one as 0, the zero value of Go's struct.
const ROLLING: &[Field] = &[("MaxUnavailable", "maxUnavailable", Int), ("MaxSurge", "maxSurge", Int)];

/// `DeploymentStrategy` and `DaemonSetUpdateStrategy`.
pub(in crate::controlplane::validation) const STRATEGY: &[Field] =
    &[("Type", "type", Str), ("RollingUpdate", "rollingUpdate", Ptr(ROLLING))];

/// `RollingUpdateStatefulSetStrategy`.
pub(in crate::controlplane::validation) const SET_ROLLING: &[Field] = &[
    ("Partition", "partition", Int),
    ("MaxUnavailable", "maxUnavailable", Any),
];

/// `StatefulSetUpdateStrategy`.
pub(in crate::controlplane::validation) const SET_STRATEGY: &[Field] = &[
    ("Type", "type", Str),
    ("RollingUpdate", "rollingUpdate", Ptr(SET_ROLLING)),
];

/// `PodDisruptionBudgetSpec`.
pub(in crate::controlplane::validation) const BUDGET: &[Field] = &[
    ("MinAvailable", "minAvailable", Any),
    ("Selector", "selector", Ptr(SELECTOR)),
    ("MaxUnavailable", "maxUnavailable", Any),
    ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", Any),
];

//! Roles of cluster components, nodes and signers (upstream's `bootstrappolicy/policy.go` and
//! `namespace_policy.go`).

use super::policy::{Binding, EVENTS, Role, bind, cluster, role};

const TOKEN_REVIEWS: &str = "authentication.k8s.io tokenreviews create";
const ACCESS_REVIEWS: &str = "authorization.k8s.io subjectaccessreviews create";
const LEADER_LOCK: &[&str] = &[
    "coordination.k8s.io leases R,create,update",
    "coordination.k8s.io leasecandidates R,create,update",
];

pub(super) const CLUSTER_ROLES: &[Role] = &[
    cluster("system:auth-delegator", &[TOKEN_REVIEWS, ACCESS_REVIEWS]),
    cluster(
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &["certificates.k8s.io certificatesigningrequests/nodeclient create"],
    ),
    cluster(
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &["certificates.k8s.io certificatesigningrequests/selfnodeclient create"],
    ),
    cluster(
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        &["certificates.k8s.io signers{kubernetes.io/kube-apiserver-client} approve"],
    ),
    cluster(
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        &["certificates.k8s.io signers{kubernetes.io/kube-apiserver-client-kubelet} approve"],
    ),
    cluster(
        "system:certificates.k8s.io:kubelet-serving-approver",
        &["certificates.k8s.io signers{kubernetes.io/kubelet-serving} approve"],
    ),
    cluster(
        "system:certificates.k8s.io:legacy-unknown-approver",
        &["certificates.k8s.io signers{kubernetes.io/legacy-unknown} approve"],
    ),
    cluster(
        "system:heapster",
        &["core events,pods,nodes,namespaces R", "extensions deployments R"],
    ),
    cluster("system:kube-aggregator", &["core services,endpoints R"]),
    cluster(
        "system:kube-controller-manager",
        &[
            EVENTS,
            "coordination.k8s.io leases create",
            "coordination.k8s.io leases{kube-controller-manager} get,update",
            "core secrets,serviceaccounts create",
            "core secrets delete",
            "core configmaps,namespaces,secrets,serviceaccounts get",
            "core secrets,serviceaccounts update",
            TOKEN_REVIEWS,
            ACCESS_REVIEWS,
            "* * list,watch",
            "core serviceaccounts/token create",
        ],
    ),
    cluster("system:kube-dns", &["core endpoints,services list,watch"]),
    cluster("system:kube-scheduler", SCHEDULER),
    cluster(
        "system:kubelet-api-admin",
        &[
            "core nodes R",
            "core nodes proxy",
            "core nodes/proxy,nodes/metrics,nodes/stats,nodes/log *",
            "core nodes/configz,nodes/healthz,nodes/pods *",
        ],
    ),
    cluster("system:node", NODE),
    cluster(
        "system:node-bootstrapper",
        &["certificates.k8s.io certificatesigningrequests create,R"],
    ),
    cluster(
        "system:node-problem-detector",
        &["core nodes get", "core nodes/status patch", EVENTS],
    ),
    cluster(
        "system:node-proxier",
        &[
            "core services,endpoints list,watch",
            "core nodes R",
            EVENTS,
            "networking.k8s.io servicecidrs list,watch",
            "discovery.k8s.io endpointslices list,watch",
        ],
    ),
    cluster(
        "system:persistent-volume-provisioner",
        &[
            "core persistentvolumes R,create,delete",
            "core persistentvolumeclaims R,update",
            "storage.k8s.io storageclasses R",
            "core events watch",
            EVENTS,
        ],
    ),
    cluster(
        "system:volume-scheduler",
        &[
            "core persistentvolumes R,patch,update",
            "storage.k8s.io storageclasses R",
            "core persistentvolumeclaims R,patch,update",
        ],
    ),
];

const SCHEDULER: &[&str] = &[
    EVENTS,
    "coordination.k8s.io leases create",
    "coordination.k8s.io leases{kube-scheduler} R,update",
    "coordination.k8s.io leasecandidates R,W",
    "core nodes R",
    "core pods R,delete",
    "core pods/binding,bindings create",
    "core pods/status patch,update",
    "core services,replicationcontrollers R",
    "apps,extensions replicasets R",
    "apps statefulsets R",
    "policy poddisruptionbudgets R",
    "core persistentvolumeclaims,persistentvolumes R",
    TOKEN_REVIEWS,
    ACCESS_REVIEWS,
    "storage.k8s.io csinodes R",
    "storage.k8s.io volumeattachments R",
    "core namespaces R",
    "storage.k8s.io csidrivers R",
    "storage.k8s.io csistoragecapacities R",
    "resource.k8s.io deviceclasses R",
    "resource.k8s.io resourceclaims R,patch,update",
    "resource.k8s.io resourceclaims/status R,patch,update",
    "core pods/finalizers update",
    "resource.k8s.io resourceslices R",
    "resource.k8s.io resourceclaims create,delete",
    "resource.k8s.io resourceclaims/binding patch,update",
];

const NODE: &[&str] = &[
    TOKEN_REVIEWS,
    "authorization.k8s.io subjectaccessreviews,localsubjectaccessreviews create",
    "core services R",
    "core nodes create,R",
    "core nodes/status patch,update",
    "core nodes patch,update",
    EVENTS,
    "core pods R",
    "core pods create,delete",
    "core pods/status patch,update",
    "core pods/eviction create",
    "core secrets,configmaps R",
    "core persistentvolumeclaims,persistentvolumes get",
    "core endpoints get",
    "certificates.k8s.io certificatesigningrequests create,R",
    "coordination.k8s.io leases get,create,update,patch,delete",
    "storage.k8s.io volumeattachments get",
    "core serviceaccounts/token create",
    "core persistentvolumeclaims/status get,patch,update",
    "storage.k8s.io csidrivers R",
    "storage.k8s.io csinodes create,delete,get,patch,update",
    "node.k8s.io runtimeclasses R",
    "resource.k8s.io resourceclaims get",
    "resource.k8s.io resourceslices deletecollection",
    "core serviceaccounts get",
];

/// ClusterRoleBindings. `system:node` has no subjects: the Node authorizer decides per node.
pub(super) const CLUSTER_BINDINGS: &[Binding] = &[
    bind(
        "system:kube-controller-manager",
        &["User/system:kube-controller-manager"],
    ),
    bind("system:kube-dns", &["kube-system:kube-dns"]),
    bind("system:kube-scheduler", &["User/system:kube-scheduler"]),
    // Without subjects: the Node authorizer grants these rules to nodes.
    bind("system:node", &[]),
    bind("system:node-proxier", &["User/system:kube-proxy"]),
    bind("system:volume-scheduler", &["User/system:kube-scheduler"]),
];

/// Roles in kube-system and kube-public.
pub(super) const ROLES: &[Role] = &[
    role(
        "kube-public",
        "system:controller:bootstrap-signer",
        &["core configmaps R", "core configmaps{cluster-info} update", EVENTS],
    ),
    role(
        "kube-system",
        "extension-apiserver-authentication-reader",
        &["core configmaps{extension-apiserver-authentication} R"],
    ),
    role("kube-system", "system:controller:bootstrap-signer", &["core secrets R"]),
    role(
        "kube-system",
        "system:controller:cloud-provider",
        &["core configmaps create,R"],
    ),
    role(
        "kube-system",
        "system:controller:token-cleaner",
        &["core secrets R,delete", EVENTS],
    ),
    role(
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        LEADER_LOCK,
    ),
    role("kube-system", "system::leader-locking-kube-scheduler", LEADER_LOCK),
];

const fn in_namespace(namespace: &'static str, name: &'static str, subjects: &'static [&'static str]) -> Binding {
    Binding {
        namespace,
        ..bind(name, subjects)
    }
}

/// RoleBindings in kube-system and kube-public.
pub(super) const BINDINGS: &[Binding] = &[
    in_namespace(
        "kube-public",
        "system:controller:bootstrap-signer",
        &["kube-system:bootstrap-signer"],
    ),
    Binding {
        role: "extension-apiserver-authentication-reader",
        ..in_namespace(
            "kube-system",
            "system::extension-apiserver-authentication-reader",
            &["User/system:kube-controller-manager", "User/system:kube-scheduler"],
        )
    },
    in_namespace(
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        &[
            "User/system:kube-controller-manager",
            "kube-system:kube-controller-manager",
            "kube-system:leader-election-controller",
        ],
    ),
    in_namespace(
        "kube-system",
        "system::leader-locking-kube-scheduler",
        &["User/system:kube-scheduler", "kube-system:kube-scheduler"],
    ),
    in_namespace(
        "kube-system",
        "system:controller:bootstrap-signer",
        &["kube-system:bootstrap-signer"],
    ),
    in_namespace(
        "kube-system",
        "system:controller:cloud-provider",
        &["kube-system:cloud-provider"],
    ),
    in_namespace(
        "kube-system",
        "system:controller:token-cleaner",
        &["kube-system:token-cleaner"],
    ),
];

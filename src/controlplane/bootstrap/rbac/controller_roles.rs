//! Roles of the built-in controllers (upstream's `bootstrappolicy/controller_policy.go`). Entry `NAME`
//! becomes ClusterRole `system:controller:NAME`, bound by a ClusterRoleBinding of that name to service
//! account `kube-system/NAME`. The notation of rules is explained in [`policy`](super::policy).

use super::policy::EVENTS;

/// A controller's name and rules.
pub(super) type Controller = (&'static str, &'static [&'static str]);

/// The controllers, sorted by name.
pub(super) const CONTROLLERS: &[Controller] = &[
    (
        "attachdetach-controller",
        &[
            "core persistentvolumes,persistentvolumeclaims list,watch",
            "core nodes R",
            "core nodes/status patch,update",
            "core pods list,watch",
            EVENTS,
            "storage.k8s.io volumeattachments R,create,delete",
            "storage.k8s.io csidrivers R",
            "storage.k8s.io csinodes R",
        ],
    ),
    (
        "certificate-controller",
        &[
            "certificates.k8s.io certificatesigningrequests R,delete",
            "certificates.k8s.io certificatesigningrequests/status,certificatesigningrequests/approval update",
            "certificates.k8s.io signers{kubernetes.io/kube-apiserver-client-kubelet} approve",
            "certificates.k8s.io signers{kubernetes.io/legacy-unknown,kubernetes.io/kubelet-serving,kubernetes.io/kube-apiserver-client-kubelet,kubernetes.io/kube-apiserver-client} sign",
            "authorization.k8s.io subjectaccessreviews create",
            EVENTS,
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        // `escalate`: the controller writes rules that it does not hold itself.
        &["rbac.authorization.k8s.io clusterroles escalate,R,update,patch"],
    ),
    (
        "cronjob-controller",
        &[
            "batch cronjobs R,update",
            "batch jobs R,create,update,delete,patch",
            "batch cronjobs/status update",
            "batch cronjobs/finalizers update",
            "core pods list,watch,delete",
            EVENTS,
        ],
    ),
    (
        "daemon-set-controller",
        &[
            "apps,extensions daemonsets R",
            "apps,extensions daemonsets/status update",
            "apps,extensions daemonsets/finalizers update",
            "core nodes list,watch",
            "core pods list,watch,create,delete,patch",
            "core pods/binding create",
            "apps controllerrevisions R,create,delete,update,patch",
            EVENTS,
        ],
    ),
    (
        "deployment-controller",
        &[
            "apps,extensions deployments R,update",
            "apps,extensions deployments/status update",
            "apps,extensions deployments/finalizers update",
            "apps,extensions replicasets R,create,update,patch,delete",
            "core pods R,update",
            EVENTS,
        ],
    ),
    (
        "device-taint-eviction-controller",
        &[
            "core pods R,delete",
            "core pods/status patch,update",
            "resource.k8s.io resourceclaims R",
            "resource.k8s.io resourceslices R",
            "resource.k8s.io deviceclasses R",
            EVENTS,
        ],
    ),
    (
        "disruption-controller",
        &[
            "apps,extensions deployments R",
            "apps,extensions replicasets R",
            "core replicationcontrollers R",
            "policy poddisruptionbudgets R",
            "apps statefulsets R",
            "policy poddisruptionbudgets/status update",
            "core pods/status patch,update",
            "* */scale get",
            EVENTS,
        ],
    ),
    (
        "endpoint-controller",
        &[
            "core services,pods R",
            "core endpoints R,create,update,delete",
            "core endpoints/restricted create",
            EVENTS,
        ],
    ),
    (
        "endpointslice-controller",
        &[
            "core services,pods,nodes R",
            "core services/finalizers update",
            "discovery.k8s.io endpointslices R,create,update,delete",
            "discovery.k8s.io endpointslices/restricted create",
            EVENTS,
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            "core services,endpoints R",
            "core services/finalizers update",
            "core endpoints/finalizers update",
            "discovery.k8s.io endpointslices R,create,update,delete",
            "discovery.k8s.io endpointslices/restricted create",
            EVENTS,
        ],
    ),
    (
        "ephemeral-volume-controller",
        &[
            "core pods R",
            "core pods/finalizers update",
            "core persistentvolumeclaims R,create",
            EVENTS,
        ],
    ),
    (
        "expand-controller",
        &[
            "core persistentvolumes R,update,patch",
            "core persistentvolumeclaims/status update,patch",
            "core persistentvolumeclaims R",
            EVENTS,
        ],
    ),
    ("generic-garbage-collector", &["* * R,patch,update,delete", EVENTS]),
    (
        "horizontal-pod-autoscaler",
        &[
            "autoscaling horizontalpodautoscalers R",
            "autoscaling horizontalpodautoscalers/status update",
            "* */scale get,update",
            "core pods list,watch",
            "metrics.k8s.io pods list,watch",
            "custom.metrics.k8s.io * R",
            "external.metrics.k8s.io * R",
            EVENTS,
        ],
    ),
    (
        "job-controller",
        &[
            "batch jobs R,update,patch",
            "batch jobs/status update",
            "batch jobs/finalizers update",
            "core pods list,watch,create,delete,patch",
            EVENTS,
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[
            "core configmaps{kube-apiserver-legacy-service-account-token-tracking} get",
            "core secrets delete,patch",
        ],
    ),
    (
        "namespace-controller",
        &[
            "core namespaces R,delete",
            "core namespaces/finalize,namespaces/status update",
            "* * R,delete,deletecollection",
        ],
    ),
    (
        "node-controller",
        &[
            "core nodes R,update,delete,patch",
            "core nodes/status patch,update",
            "core pods/status patch,update",
            "core pods R,delete",
            EVENTS,
        ],
    ),
    (
        "persistent-volume-binder",
        &[
            "core persistentvolumes R,update,create,delete",
            "core persistentvolumes/status update",
            "core persistentvolumeclaims R,update",
            "core persistentvolumeclaims/status update",
            "core pods R,create,delete",
            "storage.k8s.io storageclasses R",
            "core nodes list,watch",
            EVENTS,
            "core events watch",
        ],
    ),
    (
        "pod-garbage-collector",
        &["core pods list,watch,delete", "core nodes R", "core pods/status patch"],
    ),
    ("pv-protection-controller", &["core persistentvolumes R,update", EVENTS]),
    (
        "pvc-protection-controller",
        &[
            "core persistentvolumeclaims R,update",
            "core persistentvolumeclaims/status update",
            "core pods R",
            EVENTS,
        ],
    ),
    (
        "replicaset-controller",
        &[
            "apps,extensions replicasets R,update",
            "apps,extensions replicasets/status update",
            "apps,extensions replicasets/finalizers update",
            "core pods list,watch,create,delete,patch",
            EVENTS,
        ],
    ),
    (
        "replication-controller",
        &[
            "core replicationcontrollers R,update",
            "core replicationcontrollers/status update",
            "core replicationcontrollers/finalizers update",
            "core pods list,watch,create,delete,patch",
            EVENTS,
        ],
    ),
    (
        "resource-claim-controller",
        &[
            "core pods R",
            "core pods/finalizers update",
            "resource.k8s.io resourceclaims R,create,delete",
            "resource.k8s.io resourceclaims,resourceclaims/status update,patch",
            "core pods/status update,patch",
            EVENTS,
            "resource.k8s.io resourceclaims/binding update,patch",
        ],
    ),
    (
        "resourcequota-controller",
        &["* * list,watch", "core resourcequotas/status update", EVENTS],
    ),
    ("root-ca-cert-publisher", &["core configmaps create,update", EVENTS]),
    (
        "route-controller",
        &["core nodes list,watch", "core nodes/status patch", EVENTS],
    ),
    (
        "selinux-warning-controller",
        &[
            EVENTS,
            "core persistentvolumes R",
            "core persistentvolumeclaims R",
            "core pods R",
            "storage.k8s.io csidrivers R",
        ],
    ),
    ("service-account-controller", &["core serviceaccounts create", EVENTS]),
    (
        "service-cidrs-controller",
        &[
            "networking.k8s.io servicecidrs R,patch,update",
            "networking.k8s.io servicecidrs/finalizers patch,update",
            "networking.k8s.io servicecidrs/status patch,update",
            "networking.k8s.io ipaddresses R",
            EVENTS,
        ],
    ),
    (
        "service-controller",
        &[
            "core services R",
            "core services/status patch,update",
            "core nodes list,watch",
            EVENTS,
        ],
    ),
    (
        "statefulset-controller",
        &[
            "core pods list,watch",
            "apps statefulsets R",
            "apps statefulsets/status update",
            "apps statefulsets/finalizers update",
            "core pods get,create,delete,update,patch",
            "apps controllerrevisions R,create,delete,update,patch",
            "core persistentvolumeclaims R,create",
            "core persistentvolumeclaims delete,update",
            "core pods/finalizers update",
            EVENTS,
        ],
    ),
    ("ttl-after-finished-controller", &["batch jobs R,delete", EVENTS]),
    ("ttl-controller", &["core nodes update,patch,list,watch", EVENTS]),
    (
        "validatingadmissionpolicy-status-controller",
        &[
            "admissionregistration.k8s.io validatingadmissionpolicies R",
            "admissionregistration.k8s.io validatingadmissionpolicies/status get,update,patch",
            EVENTS,
        ],
    ),
    (
        "volumeattributesclass-protection-controller",
        &[
            "core persistentvolumeclaims R",
            "core persistentvolumes R",
            "storage.k8s.io volumeattributesclasses R,update",
            EVENTS,
        ],
    ),
];

//! User-facing roles, and those granted to everyone (upstream's `bootstrappolicy/policy.go`).

use super::policy::{Binding, Role, bind, cluster};

const fn aggregate_to(to: &'static str, role: Role) -> Role {
    Role {
        aggregate_to: to,
        ..role
    }
}

const fn aggregates(of: &'static str, aggregate_to: &'static str, name: &'static str) -> Role {
    Role {
        aggregates: of,
        aggregate_to,
        ..cluster(name, &[])
    }
}

/// ClusterRoles.
pub(super) const ROLES: &[Role] = &[
    cluster("cluster-admin", &["* * *", "url * *"]),
    aggregates("admin", "", "admin"),
    aggregates("edit", "admin", "edit"),
    aggregates("view", "edit", "view"),
    aggregate_to(
        "admin",
        cluster(
            "system:aggregate-to-admin",
            &[
                "authorization.k8s.io localsubjectaccessreviews create",
                "rbac.authorization.k8s.io roles,rolebindings R,W",
            ],
        ),
    ),
    aggregate_to("edit", cluster("system:aggregate-to-edit", EDIT)),
    aggregate_to("view", cluster("system:aggregate-to-view", VIEW)),
    cluster(
        "system:basic-user",
        &[
            "authorization.k8s.io selfsubjectaccessreviews,selfsubjectrulesreviews create",
            "authentication.k8s.io selfsubjectreviews create",
        ],
    ),
    cluster(
        "system:discovery",
        &["url /livez,/readyz,/healthz,/version,/version/,/openapi,/openapi/*,/api,/api/*,/apis,/apis/* get"],
    ),
    cluster(
        "system:public-info-viewer",
        &["url /livez,/readyz,/healthz,/version,/version/ get"],
    ),
    cluster(
        "system:monitoring",
        &[
            "url /metrics,/metrics/slis,/livez,/readyz,/healthz,/livez/*,/readyz/*,/healthz/*,/statusz,/flagz get",
            "core nodes/metrics get",
        ],
    ),
    cluster(
        "system:service-account-issuer-discovery",
        &[
            "url /.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/ get",
        ],
    ),
];

const EDIT: &[&str] = &[
    "core pods/attach,pods/proxy,pods/exec,pods/portforward,secrets,services/proxy R",
    // Grants nothing new: an editor can run pods as any service account of the namespace.
    "core serviceaccounts impersonate",
    "core pods,pods/attach,pods/proxy,pods/exec,pods/portforward W",
    "core pods/eviction create",
    "core replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/proxy,persistentvolumeclaims,configmaps,secrets W",
    "core serviceaccounts/token create",
    "core,events.k8s.io events W",
    "apps statefulsets,statefulsets/scale,daemonsets,deployments,deployments/scale,deployments/rollback,replicasets,replicasets/scale W",
    "autoscaling horizontalpodautoscalers W",
    "batch jobs,cronjobs W",
    "extensions daemonsets,deployments,deployments/scale,deployments/rollback,ingresses,replicasets,replicasets/scale,replicationcontrollers/scale,networkpolicies W",
    "policy poddisruptionbudgets W",
    "networking.k8s.io networkpolicies,ingresses W",
    "coordination.k8s.io leases R,W",
    "resource.k8s.io resourceclaims,resourceclaimtemplates W",
];

// Without secrets: their readers could act as every service account of the namespace.
const VIEW: &[&str] = &[
    "core pods,replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,configmaps R",
    "core limitranges,resourcequotas,bindings,pods/status,resourcequotas/status,namespaces/status,replicationcontrollers/status,pods/log R",
    "core namespaces R",
    "core,events.k8s.io events R",
    "discovery.k8s.io endpointslices R",
    "apps controllerrevisions,statefulsets,statefulsets/status,statefulsets/scale,daemonsets,daemonsets/status,deployments,deployments/status,deployments/scale,replicasets,replicasets/status,replicasets/scale R",
    "autoscaling horizontalpodautoscalers,horizontalpodautoscalers/status R",
    "batch jobs,cronjobs,cronjobs/status,jobs/status R",
    "extensions daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,ingresses,ingresses/status,replicasets,replicasets/scale,replicasets/status,replicationcontrollers/scale,networkpolicies R",
    "policy poddisruptionbudgets,poddisruptionbudgets/status R",
    "networking.k8s.io networkpolicies,ingresses,ingresses/status R",
    "resource.k8s.io resourceclaims,resourceclaims/status,resourceclaimtemplates R",
];

/// ClusterRoleBindings.
pub(super) const BINDINGS: &[Binding] = &[
    bind("cluster-admin", &["Group/system:masters"]),
    bind("system:basic-user", &["Group/system:authenticated"]),
    bind("system:discovery", &["Group/system:authenticated"]),
    bind("system:monitoring", &["Group/system:monitoring"]),
    bind(
        "system:public-info-viewer",
        &["Group/system:authenticated", "Group/system:unauthenticated"],
    ),
    bind(
        "system:service-account-issuer-discovery",
        &["Group/system:serviceaccounts"],
    ),
];

//! Strategies of the kinds of networking.k8s.io and policy.

use super::described::{Described, PLAIN, WORKLOAD};
use crate::apimachinery::object::ObjectView;
use crate::controlplane::defaults::network as defaults;
use crate::controlplane::validation::{ingress, network as check, policy, service};
use crate::json;
use crate::registry::strategy::NameRule;

/// Ingresses.
pub const INGRESS: Described = Described {
    validate: ingress::create,
    validate_update: Some(ingress::update),
    validate_status: ingress::status,
    warn: |new, old| {
        let key = "kubernetes.io/ingress.class";
        let odd = old.is_none() && new.annotation(key).is_some() && new.at(&["spec", "ingressClassName"]).is_null();
        let text = format!("annotation {key:?} is deprecated, please use 'spec.ingressClassName' instead");
        odd.then_some(text).into_iter().collect()
    },
    warn_status: service::warnings::balancer,
    status: Some(|| json!({"loadBalancer": {}})),
    ..WORKLOAD
};

/// IngressClasses.
pub const INGRESS_CLASS: Described = Described {
    default: defaults::ingress_class,
    validate: ingress::class,
    validate_update: Some(ingress::class_update),
    generation: &["spec"],
    ..PLAIN
};

/// NetworkPolicies.
pub const NETWORK_POLICY: Described = Described {
    default: defaults::network_policy,
    validate: |v| check::network_policy(v, None),
    validate_update: Some(|new, old| check::network_policy(new, Some(old))),
    warn: |new, _| check::network_policy_warnings(new),
    generation: &["spec"],
    ..PLAIN
};

/// IPAddresses, which are named by the address itself (an IPv6 address is no DNS subdomain).
pub const IP_ADDRESS: Described = Described {
    validate: check::ip_address,
    validate_update: Some(check::ip_address_update),
    names: NameRule::PathSegment,
    ..PLAIN
};

/// ServiceCIDRs.
pub const SERVICE_CIDR: Described = Described {
    validate: check::service_cidr,
    validate_update: Some(check::service_cidr_update),
    generation: &[],
    status_keeps: &["labels", "annotations", "finalizers", "ownerReferences"],
    status_resets: &["spec", "metadata"],
    ..WORKLOAD
};

/// PodDisruptionBudgets.
pub const POD_DISRUPTION_BUDGET: Described = Described {
    validate: policy::budget,
    validate_status: policy::budget_status,
    // Upstream checks the metadata only generically: any path segment is a valid name.
    names: NameRule::PathSegment,
    status: Some(|| json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})),
    ..WORKLOAD
};

//! Strategies of the kinds of networking.k8s.io and policy.

use super::common::reset_meta;
use super::declarative::{BASE, DeclarativeStrategy, WITH_SPEC_AND_STATUS};
use crate::apimachinery::object::ObjectView;
use crate::controlplane::defaults::network as defaults;
use crate::controlplane::validation::{ingress, network as check, policy, service};
use crate::json;
use crate::registry::strategy::{NameRule, Rules};

pub(crate) const INGRESS: DeclarativeStrategy = DeclarativeStrategy {
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
    ..WITH_SPEC_AND_STATUS
};

pub(crate) const INGRESS_CLASS: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::ingress_class,
    validate: ingress::class,
    validate_update: Some(ingress::class_update),
    generation: &["spec"],
    ..BASE
};

pub(crate) const NETWORK_POLICY: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::network_policy,
    validate: |v| check::network_policy(v, None),
    validate_update: Some(|new, old| check::network_policy(new, Some(old))),
    warn: |new, _| check::network_policy_warnings(new),
    generation: &["spec"],
    rules: Rules {
        generation_counts_empties: &["spec"],
        ..Rules::DEFAULT
    },
    ..BASE
};

/// IPAddresses, which are named by the address itself.
pub(crate) const IP_ADDRESS: DeclarativeStrategy = DeclarativeStrategy {
    validate: check::ip_address,
    validate_update: Some(check::ip_address_update),
    rules: Rules::named(NameRule::CanonicalIp),
    ..BASE
};

pub(crate) const SERVICE_CIDR: DeclarativeStrategy = DeclarativeStrategy {
    validate: check::service_cidr,
    validate_update: Some(check::service_cidr_update),
    // Upstream keeps no generation for this kind.
    generation: &[],
    prepare_status_update: reset_meta,
    status_reset_fields: &["spec", "metadata"],
    ..WITH_SPEC_AND_STATUS
};

pub(crate) const POD_DISRUPTION_BUDGET: DeclarativeStrategy = DeclarativeStrategy {
    validate: policy::budget,
    validate_update: Some(policy::budget_update),
    validate_status: policy::budget_status,
    // Upstream checks the metadata only generically: any path segment is a valid name.
    rules: Rules::named(NameRule::PathSegment),
    status: Some(|| json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})),
    ..WITH_SPEC_AND_STATUS
};

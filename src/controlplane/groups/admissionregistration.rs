//! The resources of admissionregistration.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::strategies::admission::{Admission, Kind};
use crate::controlplane::table::{Group, Row};
use crate::registry::resource::Resource;

const V1: Group = Group {
    group: "admissionregistration.k8s.io",
    version: "v1",
};

fn row(plural: &'static str, kind: &'static str, what: Kind) -> Row {
    V1.kind(plural, kind)
        .category("api-extensions")
        .strategy(Admission(what))
        .conditional_update()
}

/// The resources of the group.
pub fn rows() -> Vec<Resource> {
    vec![
        row(
            "mutatingadmissionpolicies",
            "MutatingAdmissionPolicy",
            Kind::Policy(true),
        )
        .hashed_as("v1beta1")
        .columns(columns::mutating_policies())
        .done(),
        row(
            "mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
            Kind::Binding(true),
        )
        .hashed_as("v1beta1")
        .columns(columns::policy_bindings())
        .done(),
        row(
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            Kind::Webhooks(true),
        )
        .columns(columns::webhooks())
        .done(),
        row(
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            Kind::Policy(false),
        )
        .columns(columns::validating_policies())
        .status()
        .done(),
        row(
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            Kind::Binding(false),
        )
        .columns(columns::policy_bindings())
        .done(),
        row(
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            Kind::Webhooks(false),
        )
        .columns(columns::webhooks())
        .done(),
    ]
}

//! The resources of admissionregistration.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::resource_builder::{GroupVersionBuilder, ResourceBuilder};
use crate::controlplane::strategies::admission::{Admission, RegistrationKind};
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "admissionregistration.k8s.io",
    version: "v1",
};

fn row(plural: &'static str, kind: &'static str, what: RegistrationKind) -> ResourceBuilder {
    V1.kind(plural, kind)
        .category("api-extensions")
        .strategy(Admission(what))
        .conditional_update()
}

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        row(
            "mutatingadmissionpolicies",
            "MutatingAdmissionPolicy",
            RegistrationKind::Policy(true),
        )
        .hashed_as("v1beta1")
        .columns(columns::mutating_policies())
        .build(),
        row(
            "mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
            RegistrationKind::Binding(true),
        )
        .hashed_as("v1beta1")
        .columns(columns::policy_bindings())
        .build(),
        row(
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            RegistrationKind::Webhooks(true),
        )
        .columns(columns::webhooks())
        .build(),
        row(
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            RegistrationKind::Policy(false),
        )
        .columns(columns::validating_policies())
        .status()
        .build(),
        row(
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            RegistrationKind::Binding(false),
        )
        .columns(columns::policy_bindings())
        .build(),
        row(
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            RegistrationKind::Webhooks(false),
        )
        .columns(columns::webhooks())
        .build(),
    ]
}

//! Strategy of the admissionregistration.k8s.io kinds: webhook configurations, policies and bindings.

use super::common::{bump_generation, first_generation, keep_all_but_status, reset_meta};
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::value::Value;
use crate::controlplane::{defaults, validation};
use crate::registry::strategy::{Rules, Strategy};

/// Selects one of the group's six kinds; the flag is true for the mutating variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegistrationKind {
    /// `ValidatingWebhookConfiguration`, or `MutatingWebhookConfiguration` if true.
    Webhooks(bool),
    /// `ValidatingAdmissionPolicy`, or `MutatingAdmissionPolicy` if true. Only the validating one has a
    /// status.
    Policy(bool),
    /// `ValidatingAdmissionPolicyBinding`, or `MutatingAdmissionPolicyBinding` if true.
    Binding(bool),
}

/// Strategy of the kinds in [`RegistrationKind`].
pub(crate) struct Admission(pub RegistrationKind);

impl Admission {
    fn validate(&self, v: &Value, old: Option<&Value>) -> ErrorList {
        match self.0 {
            RegistrationKind::Webhooks(mutating) => validation::admission::webhooks(v, old, mutating),
            RegistrationKind::Policy(mutating) => validation::admission::policy(v, old, mutating),
            RegistrationKind::Binding(mutating) => validation::admission::binding(v, mutating),
        }
    }

    fn has_status(&self) -> bool {
        self.0 == RegistrationKind::Policy(false)
    }
}

impl Strategy for Admission {
    fn rules(&self) -> Rules {
        Rules {
            // Webhooks and policies hold CEL expressions, which validation compiles; bindings hold none.
            costly_validation: !matches!(self.0, RegistrationKind::Binding(_)),
            generation_counts_empties: match self.0 {
                RegistrationKind::Webhooks(_) => &["webhooks"],
                _ => &[],
            },
            // Upstream's handler of the status passes on that an apply may create.
            created_by_status: self.has_status(),
            ..Rules::DEFAULT
        }
    }

    fn default(&self, v: &mut Value) {
        match self.0 {
            RegistrationKind::Webhooks(mutating) => defaults::admission::webhooks(v, mutating),
            RegistrationKind::Policy(_) => defaults::admission::policy(v),
            RegistrationKind::Binding(_) => defaults::admission::binding(v),
        }
    }

    fn prepare_create(&self, v: &mut Value) {
        first_generation(v);
        if self.has_status() {
            v.set(&["status"], Value::object());
        }
    }

    fn validate_create(&self, v: &Value) -> ErrorList {
        self.validate(v, None)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        self.validate(new, Some(old))
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.has_status() {
            restore(new, old, &["status"]);
        }
        // Webhook configurations have `webhooks` in place of a spec.
        bump_generation(new, old, &["spec", "webhooks"]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        reset_meta(new, old);
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> ErrorList {
        validation::admission::policy_status(new)
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        if !new.name().ends_with(".static.k8s.io") {
            return Vec::new();
        }
        vec!["metadata.name: names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be managed via the API".to_owned()]
    }

    fn subresource_warnings(&self, _subresource: &str, new: &Value, old: &Value) -> Vec<String> {
        self.warnings(new, Some(old))
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["metadata", "spec"],
            _ if self.has_status() => &["status"],
            _ => &[],
        }
    }
}

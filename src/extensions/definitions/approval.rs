//! Approval of definitions in the groups of the Kubernetes community (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apihelpers`).

use crate::apimachinery::field::quote;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::schema::is_absolute_url;

/// The annotation with the approval.
pub(super) const ANNOTATION: &str = "api-approved.kubernetes.io";
const PULL: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The value of a definition's approval annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    Approved,
    /// The author states that there is no approval.
    Bypassed,
    Missing,
    Invalid,
}

/// True for groups whose definitions need an approval.
pub(crate) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        // Either the group itself or a subdomain: `notk8s.io` must not match.
        .any(|g| group == *g || group.strip_suffix(g).is_some_and(|rest| rest.ends_with('.')))
}

impl Approval {
    pub(super) fn of(definition: &Value) -> Self {
        // An empty annotation counts as missing.
        match definition.annotation(ANNOTATION).unwrap_or("") {
            "" => Self::Missing,
            // Upstream only checks the prefix; whatever follows is the author's reason.
            text if text.starts_with("unapproved") => Self::Bypassed,
            text if is_absolute_url(text) => Self::Approved,
            _ => Self::Invalid,
        }
    }

    /// The message of the condition and of an error.
    pub(super) fn message(self, definition: &Value) -> String {
        let text = definition.annotation(ANNOTATION).unwrap_or("");
        match self {
            Self::Approved => format!("approved in {text}"),
            Self::Bypassed => format!("not approved: {}", quote(text)),
            Self::Missing => format!("protected groups must have approval annotation \"{ANNOTATION}\", {PULL}"),
            Self::Invalid => format!(
                "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", {PULL}"
            ),
        }
    }
}

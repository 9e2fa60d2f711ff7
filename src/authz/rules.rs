//! [`Rules`]: the rules granted to a user in a namespace, for SelfSubjectRulesReviews. Authorizers list theirs, the
//! union joins them; a list may be incomplete, and says why.

use super::rbac::PolicyRule;
use crate::apimachinery::field::aggregate_texts;

/// The rules granted to a user in a namespace, in evaluation order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Rules for resources and for non-resource paths.
    pub rules: Vec<PolicyRule>,
    /// True if the list may lack rules.
    pub incomplete: bool,
    /// Why it is incomplete, and the bindings that could not be resolved.
    pub errors: Vec<String>,
}

impl Rules {
    /// Rules that allow everything.
    pub fn all() -> Self {
        let any = || vec!["*".into()];
        let resources = PolicyRule {
            verbs: any(),
            api_groups: any(),
            resources: any(),
            ..PolicyRule::default()
        };
        let paths = PolicyRule {
            verbs: any(),
            non_resource_urls: any(),
            ..PolicyRule::default()
        };
        Self {
            rules: vec![resources, paths],
            ..Self::default()
        }
    }

    /// Rules of an authorizer that cannot list them; `why` is the reason.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self {
            incomplete: true,
            errors: vec![why.into()],
            ..Self::default()
        }
    }

    /// Appends the rules of another authorizer.
    pub fn extend(&mut self, more: Self) {
        self.rules.extend(more.rules);
        self.incomplete |= more.incomplete;
        self.errors.extend(more.errors);
    }

    /// The errors as one message; empty if there are none.
    pub fn error(&self) -> String {
        if self.errors.is_empty() {
            return String::new();
        }
        aggregate_texts(self.errors.iter().cloned())
    }
}

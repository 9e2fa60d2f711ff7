//! What somebody may do, listed: for SelfSubjectRulesReviews.

use super::rbac::PolicyRule;

/// What somebody may do in a namespace, in the order it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Rules about resources and about paths.
    pub rules: Vec<PolicyRule>,
    /// There may be more.
    pub incomplete: bool,
    /// Why, and what could not be resolved.
    pub errors: Vec<String>,
}

impl Rules {
    /// Everything.
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

    /// Not to be listed, for this reason.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self {
            incomplete: true,
            errors: vec![why.into()],
            ..Self::default()
        }
    }

    /// Adds another authorizer's.
    pub fn extend(&mut self, more: Self) {
        self.rules.extend(more.rules);
        self.incomplete |= more.incomplete;
        self.errors.extend(more.errors);
    }

    /// The errors as one text; empty where there are none.
    pub fn error(&self) -> String {
        if self.errors.is_empty() {
            String::new()
        } else {
            super::rbac::aggregate(&self.errors)
        }
    }
}

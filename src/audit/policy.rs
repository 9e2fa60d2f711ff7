//! Rules → level and stages: `audit.k8s.io/v1` Policy, as upstream's `k8s.io/apiserver/pkg/audit/policy` applies it.
//! The first rule that matches decides; a request that none matches is not recorded.

mod parse;
#[cfg(test)]
mod tests;

pub use parse::PolicyError;

use crate::request::{AuditLevel, RequestInfo, UserInfo};
use std::path::Path;

/// When in a request's life an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It arrived.
    RequestReceived,
    /// The head of a long answer was sent.
    ResponseStarted,
    /// The answer was sent.
    ResponseComplete,
    /// It came to a panic.
    Panic,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Self; 4] = [
        Self::RequestReceived,
        Self::ResponseStarted,
        Self::ResponseComplete,
        Self::Panic,
    ];

    /// As policies and events write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// With one more.
    #[must_use]
    pub const fn with(self, stage: Stage) -> Self {
        Self(self.0 | 1 << stage as u8)
    }

    /// Those of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it is one of them.
    pub const fn has(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }
}

/// A policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// In order.
    pub rules: Vec<Rule>,
}

/// What is done with the requests that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How much is recorded.
    pub level: AuditLevel,
    /// Stages without an event.
    pub omit_stages: Stages,
    /// Objects are recorded without `metadata.managedFields`.
    pub omit_managed_fields: bool,
}

/// One rule. Empty lists match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What it decides; what the policy says for all rules is worked in.
    pub verdict: Verdict,
    /// Names of users.
    pub users: Vec<String>,
    /// Groups, of which the user is in one.
    pub user_groups: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Resources; a rule with some is for resources only.
    pub resources: Vec<GroupResources>,
    /// Namespaces; `""` is cluster scope. A rule with some is for resources only.
    pub namespaces: Vec<String>,
    /// Paths that are no resources.
    pub non_resource_urls: Vec<String>,
}

/// Resources of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupResources {
    /// The group, or `*`.
    pub group: String,
    /// `pods`, `pods/log`, `pods/*`, `*/scale`, `*`; empty: all.
    pub resources: Vec<String>,
    /// Names of objects.
    pub resource_names: Vec<String>,
}

impl Policy {
    /// Reads a policy file, strictly: what is not known is refused.
    ///
    /// # Errors
    /// [`PolicyError`] names the file and the line.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        parse::file(path)
    }

    /// Reads the text of one.
    ///
    /// # Errors
    /// One line that begins with the place in the text.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        parse::text(text)
    }

    /// What is done with a request. `user`: `None` where nobody was recognised.
    pub fn decide(&self, user: Option<&UserInfo>, info: &RequestInfo) -> Verdict {
        let rule = self.rules.iter().find(|r| r.matches(user, info));
        rule.map_or_else(Verdict::default, |r| r.verdict)
    }
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|t| t == text)
}

impl Rule {
    /// Whether it is about this request.
    pub fn matches(&self, user: Option<&UserInfo>, info: &RequestInfo) -> bool {
        if !self.users.is_empty() && !user.is_some_and(|u| has(&self.users, &u.name)) {
            return false;
        }
        let in_group = |u: &UserInfo| u.groups.iter().any(|g| has(&self.user_groups, g));
        if !self.user_groups.is_empty() && !user.is_some_and(in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, &info.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource
                && (self.namespaces.is_empty() || has(&self.namespaces, &info.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|r| r.matches(info)));
        }
        if !self.non_resource_urls.is_empty() {
            return !info.is_resource && self.non_resource_urls.iter().any(|u| path_matches(&info.path, u));
        }
        true
    }
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != "*" && self.group != info.api_group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !has(&self.resource_names, &info.name) {
            return false;
        }
        let (resource, subresource) = (info.resource.as_str(), info.subresource.as_str());
        self.resources.iter().any(|wanted| match wanted.split_once('/') {
            None => wanted == "*" || (subresource.is_empty() && wanted == resource),
            // `pods/*` is about pods themselves, too, as upstream has it.
            Some((of, "*")) if of == resource => true,
            Some((of, sub)) => sub == subresource && !sub.is_empty() && (of == "*" || of == resource),
        })
    }
}

fn path_matches(path: &str, wanted: &str) -> bool {
    wanted == "*" || wanted == path || (wanted.ends_with('*') && path.starts_with(wanted.trim_end_matches('*')))
}

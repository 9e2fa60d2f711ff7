//! The audit policy (`audit.k8s.io/v1` Policy): ordered rules that assign a level and omitted stages to a
//! request, matched as in upstream's `pkg/audit/policy/checker.go`. Entry point: [`Policy::decide`]. The
//! first matching rule applies; a request that matches none is not recorded.

mod parse;
#[cfg(test)]
mod tests;

pub(crate) use parse::{InvalidPolicy, PolicyError};

use crate::request::{AuditLevel, RequestInfo, UserInfo};
use std::path::Path;

/// The stage of a request at which an event is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The request was received, before any handler ran.
    RequestReceived,
    /// The response headers of a long-running request were sent.
    ResponseStarted,
    /// The response body was completed.
    ResponseComplete,
    /// A handler panicked.
    Panic,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 4] = [
        Self::RequestReceived,
        Self::ResponseStarted,
        Self::ResponseComplete,
        Self::Panic,
    ];

    /// The name used in policies and events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// A set of stages, as a bit mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// Adds a stage.
    #[must_use]
    pub const fn with(self, stage: Stage) -> Self {
        Self(self.0 | 1 << stage as u8)
    }

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if the set contains `stage`.
    pub const fn has(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }
}

/// A parsed policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The rules, in the order they are evaluated.
    pub rules: Vec<Rule>,
}

/// The parts of a request that the policy records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How much of the request is recorded.
    pub level: AuditLevel,
    /// Stages for which no event is generated.
    pub omit_stages: Stages,
    /// Whether objects are recorded without `metadata.managedFields`.
    pub omit_managed_fields: bool,
}

/// A policy rule. An empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The rule's decision, with the policy-wide defaults already merged in.
    pub verdict: Verdict,
    /// User names; the user must be one of them.
    pub users: Vec<String>,
    /// Group names; the user must be in one of them.
    pub user_groups: Vec<String>,
    /// API verbs, such as `get`.
    pub verbs: Vec<String>,
    /// Resources. If not empty, the rule matches resource requests only.
    pub resources: Vec<GroupResources>,
    /// Namespaces; `""` matches cluster scope. If not empty, the rule matches resource requests only.
    pub namespaces: Vec<String>,
    /// Non-resource paths, exact or with a trailing `*`.
    pub non_resource_urls: Vec<String>,
}

/// Resources of one API group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupResources {
    /// The API group, or `*` for all.
    pub group: String,
    /// `pods`, `pods/log`, `pods/*`, `*/scale` or `*`; empty matches all resources of the group.
    pub resources: Vec<String>,
    /// Object names; empty matches all.
    pub resource_names: Vec<String>,
}

impl Policy {
    /// Reads a policy file. Unknown and duplicate fields are errors.
    ///
    /// # Errors
    /// A [`PolicyError`] with the file and line.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        parse::file(path)
    }

    /// Parses the contents of a policy file.
    ///
    /// # Errors
    /// [`InvalidPolicy`].
    pub fn parse(text: &[u8]) -> Result<Self, InvalidPolicy> {
        parse::text(text)
    }

    /// The decision for a request. `user` is `None` if authentication failed.
    pub fn decide(&self, user: Option<&UserInfo>, info: &RequestInfo) -> Verdict {
        let rule = self.rules.iter().find(|r| r.matches(user, info));
        rule.map_or_else(Verdict::default, |r| r.verdict)
    }
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|t| t == text)
}

impl Rule {
    /// True if the rule applies to this request.
    pub fn matches(&self, user: Option<&UserInfo>, info: &RequestInfo) -> bool {
        // A rule that names users never matches a request whose authentication failed.
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
        // Either list restricts the rule to resource requests, whatever `non_resource_urls` says.
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
        // The parser refuses names of objects without resources, so there are none to compare.
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !has(&self.resource_names, &info.name) {
            return false;
        }
        let (resource, subresource) = (info.resource.as_str(), info.subresource.as_str());
        self.resources.iter().any(|wanted| match wanted.split_once('/') {
            None => wanted == "*" || (subresource.is_empty() && wanted == resource),
            // As upstream, `pods/*` matches pods themselves too.
            Some((of, "*")) if of == resource => true,
            Some((of, sub)) => sub == subresource && !sub.is_empty() && (of == "*" || of == resource),
        })
    }
}

fn path_matches(path: &str, wanted: &str) -> bool {
    wanted == "*" || wanted == path || (wanted.ends_with('*') && path.starts_with(wanted.trim_end_matches('*')))
}

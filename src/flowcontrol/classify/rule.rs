//! The rules of a FlowSchema, parsed once per change of the object instead of once per request. They match as
//! in upstream's `pkg/util/flowcontrol/rule.go`; [`classify`](super::classify) orders the schemas.

use crate::apimachinery::value::Value;
use crate::request::{RequestInfo, UserInfo};

/// Matches if any of the rules matches.
pub(crate) struct Rules(Vec<Rule>);

struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<NonResourceRule>,
}

enum Subject {
    User(String),
    Group(String),
    /// Namespace and name; `None` matches any name.
    ServiceAccount(String, Option<String>),
}

struct ResourceRule {
    verbs: Matcher,
    groups: Matcher,
    resources: Matcher,
    namespaces: Matcher,
    cluster_scope: bool,
}

struct NonResourceRule {
    verbs: Matcher,
    paths: Vec<String>,
}

/// A list of values, or the wildcard `*`.
enum Matcher {
    Any,
    Of(Vec<String>),
}

impl Matcher {
    fn parse(list: &Value) -> Self {
        let words = strings(list);
        // The wildcard counts anywhere in the list, not only as its single entry.
        if words.iter().any(|w| w == "*") {
            Self::Any
        } else {
            Self::Of(words)
        }
    }

    fn has(&self, word: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(words) => words.iter().any(|w| w == word),
        }
    }

    /// Matches entries `pods` for a resource, and `pods/log` for a subresource.
    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        match self {
            Self::Any => true,
            // Split and compared instead of concatenating both names, which would allocate for every request.
            Self::Of(words) if subresource.is_empty() => words.iter().any(|w| w == resource),
            Self::Of(words) => words.iter().any(|w| w.split_once('/') == Some((resource, subresource))),
        }
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.items()
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

impl Rules {
    /// Parses the rules of an object, which may have megabytes.
    pub(crate) fn of(schema: &Value) -> Self {
        let rules = schema.at(&["spec", "rules"]);
        Self(rules.items().iter().map(Rule::parse).collect())
    }

    pub(super) fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.0.iter().any(|r| {
            // A rule needs both: its subjects apply to all its resource and path rules.
            r.subjects.iter().any(|s| s.is(user))
                && if info.is_resource {
                    r.resources.iter().any(|r| r.matches(info))
                } else {
                    r.paths.iter().any(|p| p.matches(info))
                }
        })
    }
}

impl Rule {
    fn parse(rule: &Value) -> Self {
        let resource = |r: &Value| ResourceRule {
            verbs: Matcher::parse(r.get("verbs")),
            groups: Matcher::parse(r.get("apiGroups")),
            resources: Matcher::parse(r.get("resources")),
            namespaces: Matcher::parse(r.get("namespaces")),
            cluster_scope: r.get("clusterScope").as_bool().unwrap_or(false),
        };
        let path = |r: &Value| NonResourceRule {
            verbs: Matcher::parse(r.get("verbs")),
            paths: strings(r.get("nonResourceURLs")),
        };
        Self {
            subjects: rule.get("subjects").items().iter().filter_map(Subject::parse).collect(),
            resources: rule.get("resourceRules").items().iter().map(resource).collect(),
            paths: rule.get("nonResourceRules").items().iter().map(path).collect(),
        }
    }
}

impl Subject {
    fn parse(subject: &Value) -> Option<Self> {
        let text = |path: &[&str]| subject.str_at(path).to_owned();
        match subject.str_at(&["kind"]) {
            "User" => Some(Self::User(text(&["user", "name"]))),
            "Group" => Some(Self::Group(text(&["group", "name"]))),
            "ServiceAccount" => {
                let name = text(&["serviceAccount", "name"]);
                let namespace = text(&["serviceAccount", "namespace"]);
                Some(Self::ServiceAccount(namespace, (name != "*").then_some(name)))
            }
            // An unknown kind matches nobody. Dropping it keeps the rest of the rule.
            _ => None,
        }
    }

    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.in_group(name),
            // By name, as upstream: tokens and certificates of a service account classify alike.
            Self::ServiceAccount(namespace, name) => user
                .name
                .strip_prefix("system:serviceaccount:")
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(ns, n)| ns == namespace && name.as_ref().is_none_or(|name| name == n)),
        }
    }
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        self.verbs.has(&info.verb)
            && self.groups.has(&info.api_group)
            && self.resources.has_resource(&info.resource, &info.subresource)
            // Requests without a namespace need `clusterScope`, even if the rule has all namespaces.
            && if info.namespace.is_empty() {
                self.cluster_scope
            } else {
                self.namespaces.has(&info.namespace)
            }
    }
}

impl NonResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        self.verbs.has(&info.verb) && self.paths.iter().any(|p| path_matches(p, &info.path))
    }
}

/// A rule matches its path and, with or without a trailing `*`, everything below it.
fn path_matches(rule: &str, path: &str) -> bool {
    if rule == "*" || rule == path {
        return true;
    }
    let stem = rule.strip_suffix('*').unwrap_or(rule);
    path.strip_prefix(stem)
        // Whole path segments only, as `matchPolicyRuleNonResourceURL`: `/healthz*` does not match `/healthzfoo`.
        .is_some_and(|rest| stem.ends_with('/') || rest.starts_with('/'))
}

//! [`PolicyRule`]: a rule of a role, with the matching of upstream's
//! `pkg/apis/rbac/v1/evaluation_helpers.go`. Decisions use a table of rules instead; this is the reference
//! for few rules, explanations and reviews.

use crate::apimachinery::field::Quoted;
use crate::apimachinery::value::{Str, Value};
use crate::authz::Attributes;
use std::fmt;

/// A rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// Verbs; `*` matches all.
    pub verbs: Vec<Str>,
    /// API groups; `*` matches all.
    pub api_groups: Vec<Str>,
    /// Resources: `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<Str>,
    /// Object names; empty matches all.
    pub resource_names: Vec<Str>,
    /// Non-resource paths: exact, with a trailing `*`, or `*`.
    pub non_resource_urls: Vec<Str>,
}

fn texts(v: &Value) -> Vec<Str> {
    v.items().iter().filter_map(Value::as_str).map(Str::from).collect()
}

impl PolicyRule {
    /// Parses a rule of `rbac.authorization.k8s.io/v1`.
    pub fn parse(v: &Value) -> Self {
        Self {
            verbs: texts(v.get("verbs")),
            api_groups: texts(v.get("apiGroups")),
            resources: texts(v.get("resources")),
            resource_names: texts(v.get("resourceNames")),
            non_resource_urls: texts(v.get("nonResourceURLs")),
        }
    }

    /// Encodes the rule; empty lists are omitted.
    pub fn to_value(&self) -> Value {
        let mut v = Value::Object(crate::apimachinery::value::Map::new());
        for (key, list) in [
            ("verbs", &self.verbs),
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                let list: Vec<Value> = list.iter().map(|s| Value::String(s.clone())).collect();
                v.set(&[key], list);
            }
        }
        v
    }

    fn lists(&self) -> [&Vec<Str>; 5] {
        [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ]
    }

    /// Number of strings in the rule, plus one for the rule itself.
    pub fn weight(&self) -> usize {
        1 + self.lists().into_iter().map(Vec::len).sum::<usize>()
    }

    /// Number of single grants that the rule stands for: one verb on one resource or path each.
    pub fn grants(&self) -> usize {
        // Saturating: a stored rule may list thousands of values each, whose product exceeds a `usize`.
        let product = |lists: &[usize]| lists.iter().fold(1, |all: usize, n| all.saturating_mul(*n));
        let [verbs, groups, resources, names, urls] = self.lists().map(Vec::len);
        product(&[verbs, groups, resources, names.max(1)]).saturating_add(product(&[verbs, urls]))
    }

    /// Approximate size of the rule's JSON, in bytes.
    pub fn bytes(&self) -> usize {
        // Quotes and a comma for each string; 64 for member names and brackets.
        let texts = self.lists().into_iter().flatten().map(|text| text.len() + 3);
        texts.sum::<usize>() + 64
    }

    /// True if the rule includes the verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == "*" || v == verb)
    }

    /// True if the rule includes the API group.
    pub fn has_group(&self, group: &str) -> bool {
        self.api_groups.iter().any(|g| g == "*" || g == group)
    }

    /// True if the rule includes the resource. As upstream, `pods/*` matches nothing; only `*/scale` is a
    /// wildcard.
    pub fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|r| {
            r == "*"
                || if subresource.is_empty() {
                    r == resource
                } else {
                    r.split_once('/')
                        .is_some_and(|(res, sub)| sub == subresource && (res == resource || res == "*"))
                }
        })
    }

    /// True if the rule includes the name, or is not restricted to names.
    pub fn has_name(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == name)
    }

    /// True if the rule includes the path.
    pub fn has_url(&self, path: &str) -> bool {
        self.non_resource_urls
            .iter()
            // All trailing stars are removed, as by upstream's `strings.TrimRight` in
            // `NonResourceURLMatches`.
            .any(|u| u == path || (u.ends_with('*') && path.starts_with(u.trim_end_matches('*'))))
    }

    /// True if the rule allows the request.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.has_verb(attributes.verb)
            && if attributes.is_resource {
                self.has_group(attributes.api_group)
                    && self.has_resource(attributes.resource, attributes.subresource)
                    && self.has_name(attributes.name)
            } else {
                self.has_url(attributes.path)
            }
    }
}

/// Formats like upstream's `CompactString`:
/// `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        f.write_str("{")?;
        let mut first = true;
        for (name, list) in parts.into_iter().filter(|(_, list)| !list.is_empty()) {
            if !first {
                f.write_str(", ")?;
            }
            first = false;
            write!(f, "{name}:[")?;
            for (i, text) in list.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { " " })?;
                write!(f, "{}", Quoted(text))?;
            }
            f.write_str("]")?;
        }
        f.write_str("}")
    }
}

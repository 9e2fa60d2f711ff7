//! A view of a pod or pod template for the checks, and helpers for their messages.

use crate::apimachinery::value::Value;
use std::collections::BTreeSet;

/// Metadata and spec of a pod or pod template.
#[derive(Clone, Copy)]
pub(crate) struct Pod<'a> {
    /// `metadata`, or null.
    pub metadata: &'a Value,
    /// `spec`
    pub spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// The view of a pod or template object.
    pub(crate) fn of(object: &'a Value) -> Self {
        Self {
            metadata: object.get("metadata"),
            spec: object.get("spec"),
        }
    }

    /// Init, regular and ephemeral containers, in this order.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| self.spec.get(list).items())
    }

    /// The pod-level security context, or null.
    pub(super) fn security(self) -> &'a Value {
        self.spec.get("securityContext")
    }

    // `at` takes the key as one member name, so its dots and slashes need no escaping.
    pub(super) fn annotation(self, key: &str) -> Option<&'a str> {
        self.metadata.at(&["annotations", key]).as_str()
    }

    pub(super) fn is_windows(self) -> bool {
        self.spec.str_at(&["os", "name"]) == "windows"
    }

    /// True if the pod runs in a user namespace of its own (`hostUsers: false`).
    pub(super) fn has_own_users(self) -> bool {
        self.spec.get("hostUsers").as_bool() == Some(false)
    }
}

/// Names in the order they were found.
pub(super) type Names<'a> = Vec<&'a str>;
/// Distinct values, sorted.
pub(super) type Values<'a> = BTreeSet<&'a str>;

/// The names of the containers for which `bad` returns true.
pub(super) fn naming<'a>(pod: Pod<'a>, bad: impl Fn(&'a Value) -> bool) -> Names<'a> {
    let found = pod.containers().filter(|c| bad(c));
    found.map(|c| c.str_at(&["name"])).collect()
}

pub(super) fn plural<'t>(one: &'t str, more: &'t str, count: usize) -> &'t str {
    if count == 1 { one } else { more }
}

/// Joins items as `"a", "b"`. Like upstream, without escaping.
pub(super) fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let mut out = String::new();
    for item in items {
        if !out.is_empty() {
            out.push_str(", ");
        }
        out.push('"');
        out.push_str(item.as_ref());
        out.push('"');
    }
    out
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// The owners of a field, such as `pod and containers "a", "b"`; `None` if neither does.
pub(super) fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".into()),
        (false, false) => Some(containers(names)),
        (true, false) => Some(format!("pod and {}", containers(names))),
    }
}

//! Discovery documents of groups and versions, and the order of versions.

use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use std::cmp::Ordering;

/// `/api`: an APIVersions object (which has no apiVersion). `server_address` is the external `host:port`.
pub(crate) fn api_versions(versions: &[&str], server_address: &str) -> Value {
    let mut cidr = Map::new();
    cidr.insert("clientCIDR", "0.0.0.0/0");
    cidr.insert("serverAddress", server_address);
    let mut m = Map::new();
    m.insert("kind", "APIVersions");
    m.insert("versions", versions.iter().map(|v| Value::from(*v)).collect::<Vec<_>>());
    m.insert("serverAddressByClientCIDRs", vec![Value::Object(cidr)]);
    Value::Object(m)
}

/// An entry of an APIGroupList: one group without kind and apiVersion. `versions` are in order of preference.
pub(crate) fn group_entry(group: &str, versions: &[&str]) -> Value {
    let one = |v: &&str| {
        let mut m = Map::new();
        m.insert("groupVersion", GroupVersion::new(group, v).to_string());
        m.insert("version", *v);
        Value::Object(m)
    };
    let mut m = Map::new();
    m.insert("name", group);
    m.insert("versions", versions.iter().map(one).collect::<Vec<_>>());
    // Callers pass the preferred version first.
    if let Some(first) = versions.first() {
        m.insert("preferredVersion", one(first));
    }
    Value::Object(m)
}

/// `/apis/<group>`: an APIGroup object.
pub(crate) fn api_group(group: &str, versions: &[&str]) -> Value {
    let mut entry = group_entry(group, versions);
    entry.set(&["kind"], "APIGroup");
    entry.set(&["apiVersion"], "v1");
    entry
}

/// `/apis`: an APIGroupList of [`group_entry`] values.
pub(crate) fn api_group_list(entries: Vec<Value>) -> Value {
    let mut m = Map::new();
    m.insert("kind", "APIGroupList");
    m.insert("apiVersion", "v1");
    m.insert("groups", entries);
    Value::Object(m)
}

/// Compares versions by Kubernetes' priority; the greatest is preferred. GA precedes beta and alpha, then the
/// number counts. Other names come last, in alphabetical order (`k8s.io/apimachinery/pkg/version`).
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Reversed: of two names that are not versions, the alphabetically first is the greatest.
        (None, None) => b.cmp(a),
    }
}

/// Splits a version into stability, major and minor number.
fn parts(v: &str) -> Option<(u8, u64, u64)> {
    let rest = v.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, tail) = rest.split_at(end);
    // Upstream's pattern does not match a number with a leading zero.
    if major.is_empty() || major.starts_with('0') {
        return None;
    }
    let major = major.parse().ok()?;
    let number = |t: &str| t.parse().ok().filter(|_| !t.starts_with('0') && !t.starts_with('+'));
    match tail {
        "" => Some((2, major, 0)),
        t => match (t.strip_prefix("beta"), t.strip_prefix("alpha")) {
            (Some(n), _) => Some((1, major, number(n)?)),
            (_, Some(n)) => Some((0, major, number(n)?)),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_kubernetes_priority() {
        let mut v = vec![
            "foo10",
            "v1",
            "v11alpha2",
            "v2",
            "v12alpha1",
            "v10beta3",
            "v3beta1",
            "foo1",
            "v10",
        ];
        v.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(
            v,
            [
                "v10",
                "v2",
                "v1",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "foo1",
                "foo10"
            ]
        );
    }
}

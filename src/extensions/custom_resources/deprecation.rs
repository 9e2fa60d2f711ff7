//! The warning on requests for deprecated versions (upstream: `crdHandler` in `customresource_handler.go`).

use super::{Definition, Version};
use crate::endpoints::discovery::compare_versions;
use std::cmp::Ordering;

/// The warning on every request for a deprecated version. It recommends the best version, but only one that
/// precedes the deprecated one in the order of versions.
pub(super) fn deprecation(definition: &Definition, version: &Version) -> String {
    if let Some(text) = &version.deprecation_warning {
        return text.to_string();
    }
    let (group, kind) = (&definition.group, definition.accepted.kind());
    let candidates = definition
        .versions
        .iter()
        // Upstream recommends only versions that `kubectl` would prefer over the deprecated one.
        .filter(|v| v.served && !v.deprecated && compare_versions(&v.name, &version.name) == Ordering::Greater);
    let best = candidates.max_by(|a, b| compare_versions(&a.name, &b.name));
    let advice = best.map_or_else(String::new, |v| format!("; use {group}/{} {kind}", v.name));
    format!("{group}/{} {kind} is deprecated{advice}", version.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn only_a_preferred_version_is_recommended() {
        let versions = |v: &[(&str, bool)]| {
            let one = |(name, deprecated): &(&str, bool)| json!({"name": (*name), "served": true, "deprecated": (*deprecated)});
            crate::apimachinery::value::Value::from(v.iter().map(one).collect::<Vec<_>>())
        };
        let warning = |all: &[(&str, bool)]| {
            let tree = json!({"spec": {"group": "x.io", "versions": (versions(all))},
                "status": {"acceptedNames": {"kind": "A"}}});
            let definition = Definition::from_value(&tree, 1);
            deprecation(&definition, &definition.versions[0])
        };
        assert_eq!(
            warning(&[("v1beta1", true), ("v1", false), ("v2", false), ("v3", true)]),
            "x.io/v1beta1 A is deprecated; use x.io/v2 A"
        );
        assert_eq!(warning(&[("v2", true), ("v1", false)]), "x.io/v2 A is deprecated");
    }
}

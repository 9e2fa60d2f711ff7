//! The APIServices that CustomResourceDefinitions require. Follows
//! `kubernetes/pkg/controlplane/controller/crdregistration`.

use super::managed;
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Group and version priority of custom resources, as in upstream.
const PRIORITIES: (i64, i64) = (1000, 100);

/// The relevant part of a CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct Definition {
    group: Str,
    /// Served versions, once the definition is established. Upstream registers a version as soon as it is defined.
    served: Vec<Str>,
}

impl Definition {
    /// Parses a stored definition.
    pub fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode())
    }

    /// Parses a definition's tree.
    pub fn from_value(object: &Value) -> Self {
        let conditions = object.at(&["status", "conditions"]).items();
        let established = conditions
            .iter()
            .any(|c| c.str_at(&["type"]) == "Established" && c.str_at(&["status"]) == "True");
        let versions = object.at(&["spec", "versions"]).items();
        let served = versions
            .iter()
            .filter(|v| established && v.get("served").as_bool() == Some(true));
        Self {
            group: object.str_at(&["spec", "group"]).into(),
            served: served.map(|v| v.str_at(&["name"]).into()).collect(),
        }
    }
}

/// The APIServices that these definitions require, by name.
pub(super) fn wanted<'a>(all: impl Iterator<Item = &'a Arc<Definition>>) -> BTreeMap<Str, Value> {
    let versions = all.flat_map(|d| d.served.iter().map(|v| (&d.group, v)));
    versions.map(|(g, v)| managed(g, v, PRIORITIES, "true")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_version_is_wanted_while_any_definition_serves_it() {
        let of = |group: &str, established: &str, served: bool| {
            Arc::new(Definition::from_value(&json!({
                "spec": {"group": (group), "versions": [{"name": "v1", "served": (served)}, {"name": "v0", "served": false}]},
                "status": {"conditions": [{"type": "Established", "status": (established)}]}})))
        };
        let all = [of("a", "True", true), of("a", "True", false), of("b", "False", true)];
        let found = wanted(all.iter());
        assert_eq!(found.keys().map(Str::as_str).collect::<Vec<_>>(), ["v1.a"]);
        assert_eq!(
            found["v1.a"].get("spec"),
            &json!({"group": "a", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
        );
        assert!(wanted(all[1..].iter()).is_empty());
    }
}

//! The APIServices that CustomResourceDefinitions require. Follows
//! `kubernetes/pkg/controlplane/controller/crdregistration`.

use super::managed;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;
use std::sync::LazyLock;

/// Group and version priority of custom resources, as in upstream.
const PRIORITIES: (i64, i64) = (1000, 100);

/// The parts that are read of a stored definition.
static PARTS: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["spec.group", "spec.versions.{name,served}"]));

/// The relevant part of a CustomResourceDefinition.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    group: Str,
    /// Served versions. They are registered before the definition is established.
    served: Vec<Str>,
}

impl Definition {
    /// Parses a stored definition.
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode_parts(&PARTS))
    }

    /// Parses a definition's tree.
    pub(crate) fn from_value(object: &Value) -> Self {
        let versions = object.at(&["spec", "versions"]).items();
        // Whether or not the definition is established, as upstream does.
        let served = versions.iter().filter(|v| v.get("served").as_bool() == Some(true));
        Self {
            group: object.str_at(&["spec", "group"]).into(),
            served: served.map(|v| v.str_at(&["name"]).into()).collect(),
        }
    }

    /// The APIServices that the definition requires, by name.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (Str, Value)> + '_ {
        self.served.iter().map(|v| managed(&self.group, v, PRIORITIES, "true"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn served_versions_get_an_apiservice() {
        let definition = Definition::from_value(&json!({"spec": {"group": "a", "versions": [
            {"name": "v1", "served": true}, {"name": "v0", "served": false}]}}));
        let found: Vec<(Str, Value)> = definition.wanted().collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "v1.a");
        assert_eq!(
            found[0].1.get("spec"),
            &json!({"group": "a", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
        );
    }
}

//! The resources that the gateway serves, built-in, custom and aggregated. [`discover`] reads them from the
//! gateway's own aggregated discovery: two requests, however many groups there are.

use super::loopback::{Failure, Loopback};
use crate::apimachinery::value::{Str, Value};
use std::collections::HashSet;

pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource in the version that the server prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedResource {
    pub group: Str,
    pub version: Str,
    pub resource: Str,
    pub kind: Str,
    pub namespaced: bool,
    pub verbs: Vec<Str>,
}

impl ServedResource {
    /// Whether the resource has this verb.
    pub(crate) fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// `<resource>.<group>`, with the dot also for the core group.
    pub(crate) fn qualified(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }
}

/// The result of discovery.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Discovered {
    pub resources: Vec<ServedResource>,
    /// Group versions whose server did not answer.
    pub stale: Vec<String>,
}

impl Discovered {
    /// The message of client-go's `discovery.ErrGroupDiscoveryFailed`, which ends up in namespace conditions.
    pub(crate) fn failure(&self) -> Option<String> {
        if self.stale.is_empty() {
            return None;
        }
        let mut all: Vec<String> = self
            .stale
            .iter()
            .map(|gv| format!("{gv}: stale GroupVersion discovery: {gv}"))
            .collect();
        // As client-go; also, a message that varied would be written to the conditions again and again.
        all.sort();
        Some(format!(
            "unable to retrieve the complete list of server APIs: {}",
            all.join(", ")
        ))
    }

    /// Adds the groups of a discovery document. If a resource has several versions, the group's first one
    /// is kept.
    fn add(&mut self, document: &Value) {
        for group in document.get("items").items() {
            let name = group.str_at(&["metadata", "name"]);
            let mut seen: HashSet<&str> = HashSet::new();
            for version in group.get("versions").items() {
                let of = version.str_at(&["version"]);
                if version.str_at(&["freshness"]) == "Stale" {
                    // Its resources below are the last known ones; the caller decides whether they suffice.
                    self.stale.push(match name {
                        "" => of.to_owned(),
                        name => format!("{name}/{of}"),
                    });
                }
                for resource in version.get("resources").items() {
                    let plural = resource.str_at(&["resource"]);
                    // Versions are listed in order of preference.
                    if !seen.insert(plural) {
                        continue;
                    }
                    let verbs = resource.get("verbs").items().iter();
                    self.resources.push(ServedResource {
                        group: name.into(),
                        version: of.into(),
                        resource: plural.into(),
                        kind: resource.str_at(&["responseKind", "kind"]).into(),
                        namespaced: resource.str_at(&["scope"]) == "Namespaced",
                        verbs: verbs.filter_map(Value::as_str).map(Str::from).collect(),
                    });
                }
            }
        }
    }
}

/// Reads the resources that are served now.
///
/// # Errors
/// The gateway itself does not answer.
pub(crate) async fn discover(api: &Loopback) -> Result<Discovered, Failure> {
    let mut found = Discovered::default();
    for path in ["/api", "/apis"] {
        // There may be thousands of resources.
        let add = move |document: Value| {
            found.add(&document);
            found
        };
        found = api.extract(path, AGGREGATED, add).await?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_preferred_version_of_each_resource_is_taken() {
        let resource = |name: &str| json!({"resource": name, "scope": "Namespaced", "verbs": ["delete", "list"], "responseKind": {"kind": "K"}});
        let document = json!({"items": [
            {"metadata": {"name": "a.io"}, "versions": [
                {"version": "v2", "resources": [(resource("xs"))]},
                {"version": "v1", "resources": [(resource("xs")), (resource("ys"))]}]},
            {"metadata": {"name": "b.io"}, "versions": [{"version": "v1", "freshness": "Stale"}]}]});
        let mut found = Discovered::default();
        found.add(&document);
        let names: Vec<String> = found
            .resources
            .iter()
            .map(|r| format!("{}/{}", r.version, r.qualified()))
            .collect();
        assert_eq!(names, ["v2/xs.a.io", "v1/ys.a.io"]);
        assert!(found.resources[0].has("delete") && !found.resources[0].has("watch"));
        assert_eq!(
            found.failure().unwrap(),
            "unable to retrieve the complete list of server APIs: b.io/v1: stale GroupVersion discovery: b.io/v1"
        );
    }
}

//! The names that may become label values ([`Known`]). All others are counted as `other`, so that invented names add
//! no series: memory and scrape size stay bounded, and served resources always have room for theirs.

use super::Labels;
use arc_swap::ArcSwap;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Label value for unknown names.
pub(crate) const OTHER: &str = "other";

/// Maximum number of group versions. APIServices are objects, so their number is not limited otherwise.
const MAX_GROUP_VERSIONS: usize = 2000;
/// Maximum number of paths. A path is added when it is answered successfully, so all are handlers' paths.
const MAX_PATHS: usize = 512;

type Subresources = HashSet<Box<str>>;
type Resources = HashMap<Box<str>, Subresources>;

#[derive(Clone, Default)]
struct Names {
    /// By group, then version.
    groups: HashMap<Box<str>, HashMap<Box<str>, Resources>>,
    group_versions: usize,
    paths: HashSet<Box<str>>,
}

#[derive(Default)]
pub(super) struct Known(ArcSwap<Names>);

impl Known {
    /// Adds a group version and the resources it serves, as far as they are known.
    pub(super) fn add<'a>(
        &self,
        group: &str,
        version: &str,
        resources: impl Iterator<Item = (&'a str, Vec<&'a str>)> + Clone,
    ) {
        // `rcu` may run the closure more than once, so it must not consume `resources`.
        self.0.rcu(|names| {
            let mut names = Names::clone(names);
            let is_new = names
                .groups
                .get(group)
                .is_none_or(|versions| !versions.contains_key(version));
            if is_new && names.group_versions >= MAX_GROUP_VERSIONS {
                return Arc::new(names);
            }
            names.group_versions += usize::from(is_new);
            let versions = names.groups.entry(group.into()).or_default();
            let served = versions.entry(version.into()).or_default();
            for (resource, subresources) in resources.clone() {
                let known = served.entry(resource.into()).or_default();
                known.extend(subresources.into_iter().map(Box::from));
            }
            Arc::new(names)
        });
    }

    /// Adds a path that was answered successfully.
    pub(super) fn add_path(&self, path: &str) {
        let names = self.0.load();
        if names.paths.contains(path) || names.paths.len() >= MAX_PATHS {
            return;
        }
        self.0.rcu(|names| {
            let mut names = Names::clone(names);
            if names.paths.len() < MAX_PATHS {
                names.paths.insert(path.into());
            }
            names
        });
    }

    /// Replaces unknown names by `other`.
    pub(super) fn normalize<'a>(&self, labels: &Labels<'a>) -> Labels<'a> {
        let names = self.0.load();
        if labels.resource.is_empty() {
            let subresource = match names.paths.contains(labels.subresource) || labels.subresource.is_empty() {
                true => labels.subresource,
                false => OTHER,
            };
            return Labels {
                group: "",
                version: "",
                subresource,
                ..*labels
            };
        }
        let versions = names.groups.get(labels.group);
        let served = versions.and_then(|versions| versions.get(labels.version));
        let subresources = served.and_then(|served| served.get(labels.resource));
        let or_other = |is_known: bool, name: &'a str| if is_known || name.is_empty() { name } else { OTHER };
        let is_known = subresources.is_some_and(|all| all.contains(labels.subresource));
        Labels {
            group: or_other(versions.is_some(), labels.group),
            version: or_other(served.is_some(), labels.version),
            resource: or_other(subresources.is_some(), labels.resource),
            subresource: or_other(is_known, labels.subresource),
            ..*labels
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(group: &'a str, version: &'a str, resource: &'a str, subresource: &'a str) -> Labels<'a> {
        Labels {
            group,
            version,
            resource,
            subresource,
            ..Labels::default()
        }
    }

    #[test]
    fn unknown_names_are_other() {
        let known = Known::default();
        known.add("apps", "v1", [("deployments", vec!["scale"])].into_iter());
        known.add("metrics.k8s.io", "v1", std::iter::empty());
        known.add_path("/version");
        for (labels, normalized) in [
            (
                of("apps", "v1", "deployments", "scale"),
                of("apps", "v1", "deployments", "scale"),
            ),
            (of("apps", "v1", "deployments", ""), of("apps", "v1", "deployments", "")),
            (
                of("apps", "v1", "deployments", "x"),
                of("apps", "v1", "deployments", OTHER),
            ),
            (of("apps", "v1", "x", ""), of("apps", "v1", OTHER, "")),
            (of("apps", "x", "deployments", ""), of("apps", OTHER, OTHER, "")),
            (of("x", "y", "z", "s"), of(OTHER, OTHER, OTHER, OTHER)),
            (
                of("metrics.k8s.io", "v1", "nodes", ""),
                of("metrics.k8s.io", "v1", OTHER, ""),
            ),
            (of("", "", "", "/version"), of("", "", "", "/version")),
            (of("", "", "", "/x"), of("", "", "", OTHER)),
        ] {
            assert_eq!(known.normalize(&labels), normalized);
        }
    }

    #[test]
    fn known_names_are_bounded() {
        let known = Known::default();
        for n in 0..3000 {
            known.add(&format!("g{n}"), "v1", std::iter::empty());
            known.add_path(&format!("/{n}"));
        }
        let names = known.0.load();
        assert_eq!(
            (names.group_versions, names.paths.len()),
            (MAX_GROUP_VERSIONS, MAX_PATHS)
        );
        known.add("g1", "v1", [("things", vec![])].into_iter());
        assert_eq!(known.normalize(&of("g1", "v1", "things", "")).resource, "things");
    }
}

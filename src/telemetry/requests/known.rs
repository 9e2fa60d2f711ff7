//! The names that may become label values ([`ServedNames`]). All others are counted as `other`, so that
//! invented names add no series: memory and scrape size stay bounded, and served resources always have room
//! for theirs.

use super::Labels;
use arc_swap::ArcSwap;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Label value for unknown names.
pub(crate) const OTHER: &str = "other";

/// Maximum number of group versions, those included whose series are to be removed. APIServices are objects,
/// so their number is not limited otherwise.
const MAX_GROUP_VERSIONS: usize = 2000;
/// Maximum number of paths. A path is added when it is answered successfully, so all are handlers' paths.
const MAX_PATHS: usize = 512;

type Subresources = HashSet<Box<str>>;
type Resources = HashMap<Box<str>, Subresources>;

/// Cheap to clone, because every change makes a new snapshot.
#[derive(Clone, Default)]
struct Names {
    /// By group, then version.
    groups: imbl::HashMap<Box<str>, Arc<Versions>>,
    group_versions: usize,
    paths: imbl::HashSet<Box<str>>,
    /// Group versions that are no longer served, by group and version, and whose series still exist.
    gone: imbl::HashSet<(Box<str>, Box<str>)>,
}

type Versions = HashMap<Box<str>, Served>;

/// A served group version: its resources, and whether an APIService registers it.
#[derive(Clone, Default)]
struct Served {
    resources: Resources,
    /// Whether an APIService stands for it.
    registered: bool,
}

/// The server of a group version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An APIService, whose resources are not known.
    ApiService,
    /// A server of this process.
    InProcess,
}

#[derive(Default)]
pub(super) struct ServedNames(ArcSwap<Names>);

impl Names {
    /// Changes the names of a group version; `None` if it would exceed the limit of group versions.
    fn change(&self, group: &str, version: &str, change: impl FnOnce(&mut Served)) -> Option<Self> {
        // A copy that shares its maps: requests go on reading the snapshot that it replaces.
        let mut names = self.clone();
        let mut versions = names
            .groups
            .get(group)
            .map_or_else(Versions::default, |known| Versions::clone(known));
        let is_new = !versions.contains_key(version);
        // Served again before its series were removed: they are kept.
        let known_before = names.gone.remove(&(group.into(), version.into())).is_some();
        if is_new && !known_before && names.group_versions + names.gone.len() >= MAX_GROUP_VERSIONS {
            return None;
        }
        let served = versions.entry(version.into()).or_default();
        change(served);
        let is_gone = !served.registered && served.resources.is_empty();
        if is_gone {
            versions.remove(version);
            names.gone.insert((group.into(), version.into()));
        }
        // In this order: a removal may find its group version gone already, which is then both new and gone.
        names.group_versions += usize::from(is_new);
        names.group_versions -= usize::from(is_gone);
        match versions.is_empty() {
            true => names.groups.remove(group),
            false => names.groups.insert(group.into(), Arc::new(versions)),
        };
        Some(names)
    }
}

impl ServedNames {
    /// Adds a group version and its resources, if they are known.
    pub(super) fn add<'a>(
        &self,
        origin: Origin,
        group: &str,
        version: &str,
        resources: impl Iterator<Item = (&'a str, Vec<&'a str>)> + Clone,
    ) {
        self.change(group, version, |served| {
            served.registered |= origin == Origin::ApiService;
            // `rcu` may run the closure more than once, so it must not consume `resources`.
            for (resource, subresources) in resources.clone() {
                let known = served.resources.entry(resource.into()).or_default();
                known.extend(subresources.into_iter().map(Box::from));
            }
        });
    }

    /// Removes what [`add`](Self::add) recorded for this origin. A group version that nobody serves any
    /// longer is forgotten.
    pub(super) fn remove(&self, origin: Origin, group: &str, version: &str) {
        // Otherwise the change would add the group version, only to mark it as gone.
        let names = self.0.load();
        if !names
            .groups
            .get(group)
            .is_some_and(|versions| versions.contains_key(version))
        {
            return;
        }
        self.change(group, version, |served| match origin {
            Origin::ApiService => served.registered = false,
            Origin::InProcess => served.resources.clear(),
        });
    }

    fn change(&self, group: &str, version: &str, change: impl Fn(&mut Served)) {
        self.0.rcu(|names| match names.change(group, version, &change) {
            Some(changed) => Arc::new(changed),
            None => names.clone(),
        });
    }

    /// The group versions that are no longer served, whose series the caller removes. Until then they count
    /// towards the limit.
    pub(super) fn take_gone(&self) -> imbl::HashSet<(Box<str>, Box<str>)> {
        if self.0.load().gone.is_empty() {
            return imbl::HashSet::new();
        }
        // Taken and cleared in one step, so that no removal in between is lost.
        let before = self.0.rcu(|names| Names {
            gone: imbl::HashSet::new(),
            ..Names::clone(names)
        });
        before.gone.clone()
    }

    /// Adds a path that was answered successfully.
    pub(super) fn add_path(&self, path: &str) {
        let names = self.0.load();
        if names.paths.contains(path) || names.paths.len() >= MAX_PATHS {
            return;
        }
        self.0.rcu(|names| {
            let mut names = Names::clone(names);
            // Checked again: another thread may have added one meanwhile.
            if names.paths.len() < MAX_PATHS {
                names.paths.insert(path.into());
            }
            names
        });
    }

    /// Replaces unknown names by `other`.
    pub(super) fn normalize<'a>(&self, labels: &Labels<'a>) -> Labels<'a> {
        let names = self.0.load();
        // A request for no resource: `subresource` is its path.
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
        let subresources = served.and_then(|served| served.resources.get(labels.resource));
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

    fn labels_for<'a>(group: &'a str, version: &'a str, resource: &'a str, subresource: &'a str) -> Labels<'a> {
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
        let known = ServedNames::default();
        known.add(
            Origin::InProcess,
            "apps",
            "v1",
            [("deployments", vec!["scale"])].into_iter(),
        );
        known.add(Origin::ApiService, "metrics.k8s.io", "v1", std::iter::empty());
        known.add_path("/version");
        for (labels, normalized) in [
            (
                labels_for("apps", "v1", "deployments", "scale"),
                labels_for("apps", "v1", "deployments", "scale"),
            ),
            (
                labels_for("apps", "v1", "deployments", ""),
                labels_for("apps", "v1", "deployments", ""),
            ),
            (
                labels_for("apps", "v1", "deployments", "x"),
                labels_for("apps", "v1", "deployments", OTHER),
            ),
            (labels_for("apps", "v1", "x", ""), labels_for("apps", "v1", OTHER, "")),
            (
                labels_for("apps", "x", "deployments", ""),
                labels_for("apps", OTHER, OTHER, ""),
            ),
            (labels_for("x", "y", "z", "s"), labels_for(OTHER, OTHER, OTHER, OTHER)),
            (
                labels_for("metrics.k8s.io", "v1", "nodes", ""),
                labels_for("metrics.k8s.io", "v1", OTHER, ""),
            ),
            (labels_for("", "", "", "/version"), labels_for("", "", "", "/version")),
            (labels_for("", "", "", "/x"), labels_for("", "", "", OTHER)),
        ] {
            assert_eq!(known.normalize(&labels), normalized);
        }
    }

    #[test]
    fn known_names_are_bounded() {
        let known = ServedNames::default();
        for n in 0..3000 {
            known.add(Origin::ApiService, &format!("g{n}"), "v1", std::iter::empty());
            known.add_path(&format!("/{n}"));
        }
        let names = known.0.load();
        assert_eq!(
            (names.group_versions, names.paths.len()),
            (MAX_GROUP_VERSIONS, MAX_PATHS)
        );
        known.add(Origin::InProcess, "g1", "v1", [("things", vec![])].into_iter());
        assert_eq!(
            known.normalize(&labels_for("g1", "v1", "things", "")).resource,
            "things"
        );
    }

    #[test]
    fn removed_group_versions_make_room_once_their_series_are_removed() {
        let known = ServedNames::default();
        let add = |n: usize| known.add(Origin::ApiService, &format!("g{n}"), "v1", std::iter::empty());
        let group = |n: usize| known.normalize(&labels_for(&format!("g{n}"), "v1", "x", "")).group == format!("g{n}");
        (0..2000).for_each(add);
        for n in 0..1000 {
            known.remove(Origin::ApiService, &format!("g{n}"), "v1");
        }
        assert!(!group(0) && group(1999));
        add(2000);
        assert!(!group(2000), "the series of the others still exist");
        add(0);
        assert!(group(0), "its own series exist already");
        assert_eq!(known.take_gone().len(), 999);
        add(2000);
        assert!(group(2000));
        assert!(known.take_gone().is_empty());
    }

    #[test]
    fn a_group_version_stays_known_while_it_is_served() {
        let known = ServedNames::default();
        let pods = || [("pods", vec![])].into_iter();
        known.add(Origin::InProcess, "", "v1", pods());
        known.add(Origin::ApiService, "", "v1", std::iter::empty());
        known.remove(Origin::ApiService, "", "v1");
        assert_eq!(known.normalize(&labels_for("", "v1", "pods", "")).resource, "pods");
        known.add(Origin::ApiService, "", "v1", std::iter::empty());
        known.remove(Origin::InProcess, "", "v1");
        assert_eq!(
            known.normalize(&labels_for("", "v1", "pods", "")),
            labels_for("", "v1", OTHER, "")
        );
        known.remove(Origin::ApiService, "", "v1");
        assert_eq!(known.take_gone().len(), 1);
    }
}

//! Decides which built-in APIs are served: `--runtime-config` applied to the versions of this release
//! (upstream's `k8s.io/apiserver/pkg/server/resourceconfig`). Later rows win:
//!
//! ```text
//! api/all, api/ga, api/beta, api/alpha    every version of that stability, in this order
//! group/version                           over those
//! group/version/resource                  over all of the above
//! ```

use crate::aggregator::autoregister;
use crate::apimachinery::gvk::GroupVersion;
use crate::cli::options::{RuntimeConfig, WIDE_KEYS};
use crate::cli::value::go_bool;
use crate::controlplane::{ControlPlane, Group};
use std::collections::{BTreeMap, BTreeSet};

/// Versions for which upstream still has types but which it no longer serves. Keys for them are valid.
const OLD: [(&str, &str); 6] = [
    ("apps", "v1beta1"),
    ("apps", "v1beta2"),
    ("authorization.k8s.io", "v1beta1"),
    ("extensions", "v1beta1"),
    ("rbac.authorization.k8s.io", "v1alpha1"),
    ("rbac.authorization.k8s.io", "v1beta1"),
];

/// The set of served versions and resources.
#[derive(Debug, Default)]
pub(crate) struct Enablement {
    versions: BTreeMap<(String, String), bool>,
    resources: BTreeMap<(String, String, String), bool>,
    /// Keys that enable an API which this release does not have.
    pub warnings: Vec<String>,
}

/// Whether a version belongs to a wide key: `v1` is GA, `v1beta1` beta, `v1alpha1` alpha.
fn is_of(wide: &str, version: &str) -> bool {
    let rest = version.strip_prefix('v').unwrap_or(version);
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    match wide {
        "api/ga" => rest.is_empty(),
        "api/beta" => rest.starts_with("beta"),
        "api/alpha" => rest.starts_with("alpha"),
        // `api/all`.
        _ => true,
    }
}

/// Why `--runtime-config` cannot be used; worded as upstream words it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("unknown api groups {0}")]
    Groups(String),
    #[error("invalid value {0}={1}")]
    Wide(&'static str, String),
    #[error("group version {0} that has not been registered")]
    Version(GroupVersion),
    #[error("invalid value of {key}: {value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    Value { key: String, value: String },
    #[error("invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}")]
    Resource { key: String, resource: String },
}

impl Enablement {
    /// Evaluates the flag against the built-in versions.
    ///
    /// # Errors
    /// The flag names something that does not exist, or has a wrong value.
    pub(crate) fn read(config: &RuntimeConfig, served: &[GroupVersion]) -> Result<Self, Refused> {
        let known = |group: &str, version: &str| {
            served.iter().any(|gv| gv.group == group && gv.version == version)
                || autoregister::priorities(group, version).is_some()
                || OLD.iter().any(|(g, v)| *g == group && *v == version)
        };
        let mut groups: BTreeSet<&str> = served.iter().map(|gv| gv.group.as_str()).collect();
        // A manifest written for kube-apiserver may name groups that this release does not serve.
        for group in autoregister::groups().chain(OLD.iter().map(|(group, _)| *group)) {
            groups.insert(group);
        }
        let narrow: Vec<(&str, Vec<&str>, &str)> = config
            .0
            .iter()
            .filter(|(k, _)| !WIDE_KEYS.contains(&k.as_str()))
            .map(|(k, v)| (k.as_str(), k.split('/').collect(), v.as_str()))
            .collect();
        let unknown: Vec<&str> = narrow
            .iter()
            .map(|(_, k, _)| k[0])
            .filter(|g| !groups.contains(g))
            .collect();
        if !unknown.is_empty() {
            return Err(Refused::Groups(unknown.join(",")));
        }
        let mut out = Self::default();
        for wide in WIDE_KEYS {
            let on = match config.0.get(wide).map(String::as_str) {
                None => continue,
                Some("true") => true,
                Some("false") => false,
                Some(other) => return Err(Refused::Wide(wide, other.to_owned())),
            };
            // In the order of `WIDE_KEYS`, so that `api/beta` overrides `api/all`.
            for gv in served.iter().filter(|gv| is_of(wide, &gv.version)) {
                out.versions.insert((gv.group.to_string(), gv.version.to_string()), on);
            }
            if on && matches!(wide, "api/beta" | "api/alpha") {
                out.warnings.push(format!(
                    "{wide}=true has no effect: this release serves no such version"
                ));
            }
        }
        for (key, parts, value) in narrow {
            let (group, version) = (parts[0], parts[1]);
            if !known(group, version) {
                let gv = GroupVersion::new(group, version);
                return Err(Refused::Version(gv));
            }
            let on = match value {
                "" => true,
                text => go_bool(text).ok_or_else(|| Refused::Value {
                    key: key.to_owned(),
                    value: text.to_owned(),
                })?,
            };
            if on && !served.iter().any(|gv| gv.group == group && gv.version == version) {
                out.warnings
                    .push(format!("{key}=true has no effect: this release does not serve it"));
            }
            match parts.get(2) {
                None => drop(out.versions.insert((group.to_owned(), version.to_owned()), on)),
                Some(resource) if resource.to_lowercase() != *resource => {
                    return Err(Refused::Resource {
                        key: key.to_owned(),
                        resource: (*resource).to_owned(),
                    });
                }
                Some(resource) => {
                    let key = (group.to_owned(), version.to_owned(), (*resource).to_owned());
                    out.resources.insert(key, on);
                }
            }
        }
        Ok(out)
    }

    fn serves(&self, gv: &GroupVersion, resource: &str) -> bool {
        let (group, version) = (gv.group.to_string(), gv.version.to_string());
        let version_on = self.versions.get(&(group.clone(), version.clone()));
        let own = self.resources.get(&(group, version, resource.to_owned()));
        // On by default: this release has no version that upstream leaves off.
        *own.or(version_on).unwrap_or(&true)
    }

    /// The group version with its enabled resources; `None` if there are none.
    pub(crate) fn of(&self, group: &Group) -> Option<Group> {
        let resources = group.resources.iter();
        let resources: Vec<_> = resources
            .filter(|(row, _)| self.serves(&group.gv, &row.gvr.resource))
            .cloned()
            .collect();
        (!resources.is_empty()).then(|| Group {
            gv: group.gv.clone(),
            resources,
        })
    }

    /// The enabled group versions of the control plane, in table order.
    pub(crate) fn groups(&self, plane: &ControlPlane) -> Vec<Group> {
        plane.groups.iter().filter_map(|g| self.of(g)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Enablement, Refused> {
        let served = [("", "v1"), ("apps", "v1"), ("autoscaling", "v2"), ("autoscaling", "v1")];
        let served: Vec<GroupVersion> = served.iter().map(|(g, v)| GroupVersion::new(g, v)).collect();
        let pairs = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Enablement::read(&RuntimeConfig(pairs.collect()), &served)
    }

    fn on(e: &Enablement, group: &str, version: &str, resource: &str) -> bool {
        e.serves(&GroupVersion::new(group, version), resource)
    }

    #[test]
    fn narrower_keys_win() {
        let e = read(&[
            ("api/all", "false"),
            ("autoscaling/v1", ""),
            ("apps/v1/deployments", "true"),
        ])
        .unwrap();
        assert!(!on(&e, "", "v1", "pods") && !on(&e, "autoscaling", "v2", "horizontalpodautoscalers"));
        assert!(on(&e, "autoscaling", "v1", "horizontalpodautoscalers"));
        assert!(on(&e, "apps", "v1", "deployments") && !on(&e, "apps", "v1", "daemonsets"));
        let e = read(&[("apps/v1/daemonsets", "false")]).unwrap();
        assert!(on(&e, "apps", "v1", "deployments") && !on(&e, "apps", "v1", "daemonsets"));
    }

    #[test]
    fn invalid_values_give_upstreams_messages() {
        let refused = |key: &str, value: &str| read(&[(key, value)]).unwrap_err().to_string();
        assert_eq!(
            refused("nope.example.com/v1", "true"),
            "unknown api groups nope.example.com"
        );
        assert_eq!(refused("api/ga", "yes"), "invalid value api/ga=yes");
        assert_eq!(
            refused("apps/v9", "true"),
            "group version apps/v9 that has not been registered"
        );
        assert_eq!(
            refused("apps/v1", "yes"),
            "invalid value of apps/v1: yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax"
        );
        assert_eq!(
            refused("apps/v1/Deployments", "true"),
            "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\""
        );
    }

    #[test]
    fn enabling_an_absent_api_gives_a_warning() {
        let e = read(&[("storage.k8s.io/v1beta1", "true"), ("api/beta", "true")]).unwrap();
        assert_eq!(
            e.warnings,
            [
                "api/beta=true has no effect: this release serves no such version",
                "storage.k8s.io/v1beta1=true has no effect: this release does not serve it"
            ]
        );
    }
}

//! API group, version, kind and resource identifiers, combined as upstream's `schema` package combines them.

use super::value::Str;
use std::fmt;

/// An API group and one of its versions. The core group is the empty string.
///
/// ```
/// use torana_apimachinery::{GroupVersion, GroupVersionResource};
///
/// let apps = GroupVersion::parse("apps/v1").expect("at most one slash");
/// assert_eq!(apps.path(), "/apis/apps/v1");
/// assert_eq!(GroupVersion::new("", "v1").path(), "/api/v1");
/// assert_eq!(apps.with_kind("Deployment").to_string(), "apps/v1, Kind=Deployment");
///
/// let deployments = GroupVersionResource::new("apps", "v1", "deployments");
/// assert_eq!(deployments.group_resource().to_string(), "deployments.apps");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupVersion {
    /// The group, empty for core.
    pub group: Str,
    /// The version, for example `v1beta1`.
    pub version: Str,
}

/// Identifies a kind in one version of its group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupVersionKind {
    /// The group, empty for core.
    pub group: Str,
    /// The version, for example `v1beta1`.
    pub version: Str,
    /// The kind in CamelCase, for example `ConfigMap`.
    pub kind: Str,
}

/// Identifies a resource (lower-case plural) in one version of its group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupVersionResource {
    /// The group, empty for core.
    pub group: Str,
    /// The version, for example `v1beta1`.
    pub version: Str,
    /// The plural resource name, for example `configmaps`.
    pub resource: Str,
}

/// Identifies a resource independently of its version. Displays as `pods` or `deployments.apps`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupResource {
    /// The group, empty for core.
    pub group: Str,
    /// The plural resource name, for example `configmaps`.
    pub resource: Str,
}

impl GroupVersion {
    /// Builds a group-version from its parts.
    pub fn new(group: &str, version: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
        }
    }

    /// Parses an `apiVersion` such as `v1` or `apps/v1`; `None` if it has more than one slash.
    pub fn parse(api_version: &str) -> Option<Self> {
        // Go's `ParseGroupVersion` accepts at most one slash and takes an empty group for core.
        match api_version.split_once('/') {
            None => Some(Self::new("", api_version)),
            Some((_, v)) if v.contains('/') => None,
            Some((g, v)) => Some(Self::new(g, v)),
        }
    }

    /// Combines this group-version with a kind.
    pub fn with_kind(&self, kind: &str) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: kind.into(),
        }
    }

    /// The URL prefix: `/api/v1` or `/apis/<group>/<version>`.
    pub fn path(&self) -> String {
        // Only the core group lives under `/api`.
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{self}")
        }
    }
}

impl GroupVersionKind {
    /// Builds an identifier from its parts.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// The group and version, without the kind.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion {
            group: self.group.clone(),
            version: self.version.clone(),
        }
    }

    /// The `apiVersion` of objects of this kind.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

impl GroupResource {
    /// Builds an identifier from its parts.
    pub fn new(group: &str, resource: &str) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

impl GroupVersionResource {
    /// Builds an identifier from its parts.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// The identifier without its version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource {
            group: self.group.clone(),
            resource: self.resource.clone(),
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// Matches Go's output: `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod` for the core group.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Upstream formats core kinds with a leading slash, since it joins unconditionally.
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

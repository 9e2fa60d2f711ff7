//! Parsed APIService objects: an immutable snapshot per change, shared by routes, controllers and documents.
//! Entry point: [`ApiService::from_entry`].

use crate::apimachinery::field::aggregate;
use crate::apimachinery::value::{Str, Value};
use crate::endpoints::discovery::compare_versions;
use crate::proxy::ca_bundle::CaBundle;
use crate::proxy::target::{self, BackendOptions, Target};
use crate::storage::Entry;
use base64::Engine as _;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// The label that marks APIServices managed by auto-registration.
pub(crate) const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The API group of APIService objects, which has no APIService itself.
pub(crate) const OWN_GROUP: &str = "apiregistration.k8s.io";

/// The Service that an APIService names.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ServiceReference {
    /// Namespace of the Service.
    pub namespace: Str,
    /// Name of the Service.
    pub name: Str,
    /// Number of the Service's port; 443 if the object has none.
    pub port: u16,
    /// Explicit addresses from the APIService's annotations, which take precedence over the Service.
    pub target: Option<Arc<Target>>,
    key: Box<str>,
}

/// The condition of type `Available`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: Str,
    /// A single CamelCase word.
    pub reason: Str,
    pub message: Str,
}

/// The fields of an APIService that routing, proxying and the availability check use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiService {
    /// `<version>.<group>`.
    pub name: Str,
    /// The UID, which distinguishes the object from an earlier one of the same name.
    pub uid: Str,
    /// The API group; empty for the legacy core.
    pub group: Str,
    /// The API version, such as `v1beta1`.
    pub version: Str,
    /// The backend; `None` if this process serves the group version.
    pub service: Option<ServiceReference>,
    /// Options from the annotations.
    pub backend: BackendOptions,
    /// Why the annotations are invalid. No request is sent to the backend then, because its description
    /// cannot be trusted.
    pub fault: Option<Str>,
    /// Skip verification of the backend's certificate.
    pub insecure: bool,
    /// CA certificates in PEM; empty for those of the system.
    pub ca_bundle: CaBundle,
    /// Priority of the group.
    pub group_priority: i64,
    /// Priority of the version within the group.
    pub version_priority: i64,
    /// The Available condition, if it was ever written.
    pub available: Option<Condition>,
    /// Stored `lastTransitionTime` of the Available condition.
    pub available_since: Str,
    /// Value of the [`AUTOMANAGED`] label.
    pub automanaged: Option<Str>,
}

impl ServiceReference {
    /// A reference to a Service, without explicit addresses.
    pub(crate) fn new(namespace: &str, name: &str, port: u16) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            port,
            target: None,
            key: format!("{namespace}/{name}").into(),
        }
    }

    /// `<namespace>/<name>`: the Service's storage key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The name that the backend's certificate must be valid for.
    pub(crate) fn server_name(&self) -> String {
        match &self.target {
            Some(target) => target.server_name.to_string(),
            None => format!("{}.{}.svc", self.name, self.namespace),
        }
    }
}

impl fmt::Debug for ServiceReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => f.write_str(&target.addresses.join(",")),
            None => write!(f, "{}:{}", self.key, self.port),
        }
    }
}

impl Condition {
    pub(crate) fn new(status: &str, reason: &str, message: impl Into<Str>) -> Self {
        Self {
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// The condition of every local APIService.
    pub(crate) fn local() -> Self {
        Self::new("True", "Local", "Local APIServices are always available")
    }

    fn stored(object: &Value) -> Option<&Value> {
        let conditions = object.at(&["status", "conditions"]).items();
        conditions.iter().find(|c| c.str_at(&["type"]) == "Available")
    }

    fn of(object: &Value) -> Option<Self> {
        let c = Self::stored(object)?;
        Some(Self::new(
            c.str_at(&["status"]),
            c.str_at(&["reason"]),
            c.str_at(&["message"]),
        ))
    }
}

impl ApiService {
    /// Parses a stored object.
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode())
    }

    /// Parses an object's tree.
    pub(crate) fn from_value(object: &Value) -> Self {
        let spec = object.get("spec");
        // Validation rejects invalid annotations, but an older object or another server's write may still
        // contain some.
        let (backend, fault) = match target::read(object) {
            Ok(backend) => (backend, None),
            Err(errors) => (BackendOptions::default(), Some(aggregate(&errors).into())),
        };
        let service = spec.get("service").as_object().map(|s| {
            // 443 is the API's default; validation rejects numbers that are out of range.
            let port = s.get("port").and_then(Value::as_i64).unwrap_or(443);
            let port = u16::try_from(port).unwrap_or(443);
            let mut service = ServiceReference::new(s.str("namespace"), s.str("name"), port);
            service.target = backend.target.clone();
            service
        });
        let ca = base64::engine::general_purpose::STANDARD
            .decode(spec.str_at(&["caBundle"]))
            .unwrap_or_default();
        Self {
            name: object.str_at(&["metadata", "name"]).into(),
            uid: object.str_at(&["metadata", "uid"]).into(),
            group: spec.str_at(&["group"]).into(),
            version: spec.str_at(&["version"]).into(),
            service,
            backend,
            fault,
            insecure: spec.get("insecureSkipTLSVerify").as_bool().unwrap_or(false),
            ca_bundle: Bytes::from(ca).into(),
            group_priority: spec.get("groupPriorityMinimum").as_i64().unwrap_or(0),
            version_priority: spec.get("versionPriority").as_i64().unwrap_or(0),
            available: Condition::of(object),
            available_since: Condition::stored(object)
                .map_or("", |c| c.str_at(&["lastTransitionTime"]))
                .into(),
            automanaged: object
                .at(&["metadata", "labels"])
                .get(AUTOMANAGED)
                .as_str()
                .map(Str::from),
        }
    }

    /// Whether `object` has the same spec.
    pub(crate) fn is_as(&self, object: &Value) -> bool {
        let other = Self::from_value(object);
        let spec = |s: &Self| (s.service.clone(), s.insecure, s.ca_bundle.clone());
        let place = |s: &Self| (s.group.clone(), s.version.clone(), s.group_priority, s.version_priority);
        // Everything that auto-registration sets: other fields belong to the user.
        spec(self) == spec(&other) && place(self) == place(&other)
    }

    /// Whether requests may be routed. False also if the condition was never written.
    // Routing follows the stored condition, as upstream's does, not the last probe.
    pub(crate) fn is_available(&self) -> bool {
        self.available.as_ref().is_some_and(|c| c.status == "True")
    }

    /// The path of its discovery document: `/apis/<g>/<v>`, or `/api/<v>` for the core.
    pub(crate) fn discovery_path(&self) -> String {
        if self.is_legacy() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// Whether this is the legacy core group, served under `/api`.
    pub(crate) fn is_legacy(&self) -> bool {
        // Validation allows an empty group under this name only.
        self.name == "v1."
    }
}

/// Groups the APIServices in the order of `/apis`. The position of a group is that of its first
/// APIService by group priority (highest first), then object name. Versions are ordered by version
/// priority, then by Kubernetes version order.
pub(crate) fn sorted_by_group_and_version(mut services: Vec<Arc<ApiService>>) -> Vec<Vec<Arc<ApiService>>> {
    services.sort_by(|a, b| {
        b.group_priority
            .cmp(&a.group_priority)
            .then_with(|| a.name.cmp(&b.name))
    });
    let mut groups: Vec<Vec<Arc<ApiService>>> = Vec::new();
    // By position rather than adjacency: the versions of one group need not be neighbours in the sorted list.
    let mut places: std::collections::HashMap<Str, usize> = std::collections::HashMap::new();
    for s in services {
        let next = groups.len();
        let place = *places.entry(s.group.clone()).or_insert(next);
        if place == next {
            groups.push(Vec::new());
        }
        groups[place].push(s);
    }
    for g in &mut groups {
        g.sort_by(|a, b| {
            b.version_priority
                .cmp(&a.version_priority)
                // Upstream's tie break: `v2` before `v1` before `v1beta1`.
                .then_with(|| compare_versions(&b.version, &a.version))
        });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn service(name: &str, group_priority: i64, version_priority: i64) -> Arc<ApiService> {
        let (version, group) = name.split_once('.').unwrap();
        Arc::new(ApiService::from_value(&json!({
            "metadata": {"name": (name)},
            "spec": {"group": (group), "version": (version),
                     "groupPriorityMinimum": (group_priority), "versionPriority": (version_priority)}
        })))
    }

    #[test]
    fn versions_sort_as_kubernetes_sorts_them() {
        let sorted = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
        ];
        let mut shuffled = sorted;
        shuffled.reverse();
        shuffled.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(shuffled, sorted);
    }

    #[test]
    fn the_first_service_determines_the_position_of_its_group() {
        let groups = sorted_by_group_and_version(vec![
            service("v1.b", 100, 1),
            service("v1beta1.a", 100, 9),
            service("v1.a", 50, 10),
            service("v2.c", 200, 1),
            service("v1.c", 1, 1),
        ]);
        let names: Vec<Vec<&str>> = groups
            .iter()
            .map(|g| g.iter().map(|s| s.name.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["v2.c", "v1.c"], vec!["v1.b"], vec!["v1.a", "v1beta1.a"]]);
    }

    #[test]
    fn an_object_is_parsed_with_defaults() {
        let s = ApiService::from_value(&json!({
            "metadata": {"name": "v1.g", "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}},
            "spec": {"group": "g", "version": "v1", "service": {"namespace": "n", "name": "s"}, "caBundle": "YQ=="},
            "status": {"conditions": [{"type": "Other", "status": "False"},
                                      {"type": "Available", "status": "True", "reason": "Passed"}]}
        }));
        assert_eq!(s.service, Some(ServiceReference::new("n", "s", 443)));
        assert_eq!(s.service.as_ref().unwrap().server_name(), "s.n.svc");
        assert_eq!((s.ca_bundle.pem(), s.is_available()), (b"a".as_slice(), true));
        assert_eq!(s.automanaged.as_deref(), Some("true"));
        assert_eq!(s.discovery_path(), "/apis/g/v1");
    }
}

//! [`ObjectView`]: typed access to the fields every API object has (`apiVersion`, `kind`, `metadata`).

use super::gvk::GroupVersionKind;
use super::value::Value;

/// Reads and writes `apiVersion`, `kind` and `metadata` of an object tree. Absent strings read as `""`.
///
/// ```
/// use torana_apimachinery::{ObjectView, json};
///
/// let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
///     "metadata": {"name": "web", "labels": {"app": "shop"}}});
/// assert_eq!(object.gvk().to_string(), "apps/v1, Kind=Deployment");
/// assert_eq!((object.name(), object.namespace()), ("web", ""));
/// assert_eq!(object.label("app"), Some("shop"));
///
/// object.set_meta("finalizers", vec!["example.com/cleanup"]);
/// assert_eq!(object.finalizers(), ["example.com/cleanup"]);
/// ```
pub trait ObjectView {
    /// `apiVersion`
    fn api_version(&self) -> &str;
    /// `kind`
    fn kind(&self) -> &str;
    /// Group, version and kind. A malformed `apiVersion` reads as the empty group and version.
    fn gvk(&self) -> GroupVersionKind;
    /// The string field `key` of `metadata`.
    fn meta(&self, key: &str) -> &str;
    /// `metadata.name`
    fn name(&self) -> &str {
        self.meta("name")
    }
    /// `metadata.namespace`
    fn namespace(&self) -> &str {
        self.meta("namespace")
    }
    /// `metadata.uid`
    fn uid(&self) -> &str {
        self.meta("uid")
    }
    /// `metadata.resourceVersion`
    fn resource_version(&self) -> &str {
        self.meta("resourceVersion")
    }
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
    /// The value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// Sets a field of `metadata`, creating `metadata` if absent.
    fn set_meta(&mut self, key: &str, value: impl Into<Value>);
    /// Removes a field of `metadata`.
    fn unset_meta(&mut self, key: &str);
    /// A copy without some fields of `metadata`, which are not copied either.
    fn without_meta(&self, keys: &[&str]) -> Self
    where
        Self: Sized;
    /// True if both are equal, except for some fields of `metadata`.
    fn equals_except_meta(&self, other: &Self, keys: &[&str]) -> bool;
    /// True if `metadata.deletionTimestamp` is set.
    fn is_being_deleted(&self) -> bool;
    /// `metadata.finalizers`; elements that are not strings are skipped.
    fn finalizers(&self) -> Vec<&str>;
}

/// Copies the value at `path` from `old` to `new`, or removes it if `old` has none.
///
/// ```
/// use torana_apimachinery::{json, object::restore};
///
/// let (mut new, old) = (json!({"spec": 2, "status": 2}), json!({"spec": 1}));
/// restore(&mut new, &old, &["spec"]);
/// restore(&mut new, &old, &["status"]);
/// assert_eq!(new, old);
/// ```
pub fn restore(new: &mut Value, old: &Value, path: &[&str]) {
    match old.at(path) {
        Value::Null => drop(new.unset(path)),
        was => new.set(path, was.clone()),
    }
}

impl ObjectView for Value {
    fn api_version(&self) -> &str {
        self.str_at(&["apiVersion"])
    }
    fn kind(&self) -> &str {
        self.str_at(&["kind"])
    }
    fn gvk(&self) -> GroupVersionKind {
        // Reads as empty instead of failing, because views are also taken of objects that were not validated yet.
        let gv = super::gvk::GroupVersion::parse(self.api_version()).unwrap_or_default();
        gv.with_kind(ObjectView::kind(self))
    }
    fn meta(&self, key: &str) -> &str {
        self.str_at(&["metadata", key])
    }
    fn label(&self, key: &str) -> Option<&str> {
        self.at(&["metadata", "labels", key]).as_str()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.at(&["metadata", "annotations", key]).as_str()
    }
    fn set_meta(&mut self, key: &str, value: impl Into<Value>) {
        self.set(&["metadata", key], value);
    }
    fn unset_meta(&mut self, key: &str) {
        self.unset(&["metadata", key]);
    }
    fn without_meta(&self, keys: &[&str]) -> Self {
        let (Some(object), Some(metadata)) = (self.as_object(), self.get("metadata").as_object()) else {
            return self.clone();
        };
        // `metadata` is left out of the first copy, so that managed fields are never cloned just to be dropped.
        let mut copy = object.without(&["metadata"]);
        copy.insert("metadata", metadata.without(keys));
        Self::Object(copy)
    }
    fn equals_except_meta(&self, other: &Self, keys: &[&str]) -> bool {
        let (Some(a), Some(b)) = (self.as_object(), other.as_object()) else {
            return self == other;
        };
        let metadata_equal = match (self.get("metadata").as_object(), other.get("metadata").as_object()) {
            (Some(a), Some(b)) => a.equals_except(b, keys),
            _ => self.get("metadata") == other.get("metadata"),
        };
        // Metadata first: it is small and differs in nearly every pair that differs.
        metadata_equal && a.equals_except(b, &["metadata"])
    }
    fn is_being_deleted(&self) -> bool {
        !self.at(&["metadata", "deletionTimestamp"]).is_null()
    }
    fn finalizers(&self) -> Vec<&str> {
        self.at(&["metadata", "finalizers"])
            .items()
            .iter()
            .filter_map(Value::as_str)
            .collect()
    }
}

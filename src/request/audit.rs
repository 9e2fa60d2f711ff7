//! [`AuditTrail`]: collects what handlers contribute to a request's audit event (annotations, impersonation,
//! the request object). It costs nothing if the policy records nothing. Building and storing events is up to
//! [`crate::audit`].

use super::user::UserInfo;
use crate::apimachinery::codec::json;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::request_parts::{Part, RequestParts};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Audit level: how much of a request is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// The request is not recorded.
    #[default]
    None,
    /// User, verb, resource and time, without bodies.
    Metadata,
    /// `Metadata` plus the request object.
    Request,
    /// `Request` plus the response object.
    RequestResponse,
}

impl AuditLevel {
    /// Every level, in ascending order.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// The name used in policies and events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Guards to hold until the upgraded connection ends. Set on upgrade requests.
#[derive(Clone)]
pub struct UntilUpgradeEnds(pub Arc<dyn std::any::Any + Send + Sync>);

/// Audit data of one request. Clones share it. The default value records nothing.
#[derive(Clone, Default)]
// `None` instead of an empty trail, so that requests that are not audited allocate nothing.
pub struct AuditTrail(Option<Arc<Trail>>);

struct Trail {
    level: AuditLevel,
    omit_managed_fields: bool,
    data: Mutex<AuditData>,
    parts: Arc<RequestParts>,
}

/// A snapshot of the data collected by an [`AuditTrail`].
#[derive(Clone, Debug, Default)]
pub struct AuditData {
    /// Annotations; the first value set for a key wins.
    pub annotations: BTreeMap<String, String>,
    /// The impersonated user, and `impersonate:<mode>` if impersonation was constrained (empty otherwise).
    pub impersonated: Option<(Arc<UserInfo>, &'static str)>,
    /// Identifying metadata of the request object.
    pub object: Option<AuditedObject>,
    /// The request object, as JSON; only from level `Request` on.
    pub request_object: Option<Bytes>,
}

/// Identifying metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditedObject {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
}

impl fmt::Debug for AuditTrail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuditTrail({:?})", self.level())
    }
}

impl AuditTrail {
    /// A trail that records at `level`.
    pub fn new(level: AuditLevel, omit_managed_fields: bool) -> Self {
        Self(Some(Arc::new(Trail {
            level,
            omit_managed_fields,
            data: Mutex::default(),
            parts: Arc::default(),
        })))
    }

    /// The level of the policy rule that applies.
    pub fn level(&self) -> AuditLevel {
        self.0.as_ref().map_or(AuditLevel::None, |t| t.level)
    }

    /// Whether request objects are recorded. If not, callers need not build them.
    pub fn wants_objects(&self) -> bool {
        self.level() >= AuditLevel::Request
    }

    /// True if the policy omits `metadata.managedFields` from recorded objects.
    pub fn omits_managed_fields(&self) -> bool {
        self.0.as_ref().is_some_and(|t| t.omit_managed_fields)
    }

    fn data(&self) -> Option<MutexGuard<'_, AuditData>> {
        let trail = self.0.as_ref()?;
        Some(trail.data.lock())
    }

    /// Sets an annotation. The first value wins: a different value is dropped with a log line, as upstream
    /// does.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        let Some(mut data) = self.data() else { return };
        let value = value.into();
        match data.annotations.get(key) {
            None => drop(data.annotations.insert(key.to_owned(), value)),
            // A retried write annotates again with the same value.
            Some(before) if *before == value => {}
            Some(_) => tracing::warn!(key, "audit annotation is already set; the new value is dropped"),
        }
    }

    /// Records how long a part of the request took.
    pub(crate) fn took(&self, part: Part, took: Duration) {
        if let Some(trail) = &self.0 {
            trail.parts.record(part, took);
        }
    }

    /// How long the parts of the request took so far.
    pub(crate) fn parts(&self) -> Arc<RequestParts> {
        // A trail that records nothing gets parts that nobody reads.
        self.0.as_ref().map_or_else(Arc::default, |trail| trail.parts.clone())
    }

    /// Records that the caller impersonates `user` from here on.
    pub fn impersonated(&self, user: &Arc<UserInfo>, constraint: &'static str) {
        if let Some(mut data) = self.data() {
            data.impersonated = Some((user.clone(), constraint));
        }
    }

    /// Records the request object. Below level `Request`, only its identifying metadata is kept.
    pub fn request_object(&self, object: &Value) {
        let Some(mut data) = self.data() else { return };
        // Also below level `Request`: the name of an object created with `generateName` is only known from here.
        data.object = Some(AuditedObject {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            resource_version: object.resource_version().to_owned(),
        });
        if self.wants_objects() {
            data.request_object = Some(self.encoded(object));
        }
    }

    /// Records the options of a delete, which identify no object.
    pub fn request_options(&self, options: &Value) {
        if self.wants_objects()
            && let Some(mut data) = self.data()
        {
            data.request_object = Some(json::to_vec(options).into());
        }
    }

    /// Records the raw patch if it is JSON, and the result of `decode` otherwise.
    pub fn request_patch(&self, raw: &Bytes, decode: impl FnOnce(&[u8]) -> Option<Value>) {
        if !self.wants_objects() {
            return;
        }
        // Encoded again, because the event embeds it and the client's bytes may be indented or end in a newline.
        let kept = match json::decode(raw) {
            Ok(patch) => Some(json::to_vec(&patch).into()),
            Err(_) => decode(raw).map(|patch| self.encoded(&patch)),
        };
        if let Some(mut data) = self.data() {
            data.request_object = kept;
        }
    }

    /// Encodes an object as JSON the way the policy wants it recorded.
    pub fn encoded(&self, object: &Value) -> Bytes {
        if self.omits_managed_fields() {
            let mut without = object.clone();
            forget_managed_fields(&mut without);
            json::to_vec(&without).into()
        } else {
            json::to_vec(object).into()
        }
    }

    /// A copy of the data collected so far; handlers may still add to it.
    pub fn snapshot(&self) -> AuditData {
        self.data().map_or_else(AuditData::default, |f| f.clone())
    }
}

/// Removes the managed fields of an object, or of each item of a list.
fn forget_managed_fields(object: &mut Value) {
    object.unset(&["metadata", "managedFields"]);
    if let Value::Object(members) = object
        && let Some(Value::Array(items)) = members.get_mut("items")
    {
        for item in items {
            item.unset(&["metadata", "managedFields"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn secret() -> Value {
        json!({"metadata": {"name": "s", "namespace": "n", "managedFields": [{"manager": "m"}]}, "data": {"k": "c2VjcmV0"}})
    }

    #[test]
    fn below_level_request_only_identifying_metadata_is_kept() {
        let trail = AuditTrail::new(AuditLevel::Metadata, false);
        trail.request_object(&secret());
        trail.request_patch(&Bytes::from_static(b"{\"data\":{}}"), |_| None);
        let data = trail.snapshot();
        assert_eq!(data.object.unwrap().name, "s");
        assert!(data.request_object.is_none());
    }

    #[test]
    fn managed_fields_are_omitted_if_the_policy_requests_it() {
        let text = |omit| {
            let trail = AuditTrail::new(AuditLevel::Request, omit);
            trail.request_object(&json!({"items": [(secret())]}));
            String::from_utf8(trail.snapshot().request_object.unwrap().to_vec()).unwrap()
        };
        assert!(text(false).contains("managedFields") && !text(true).contains("managedFields"));
    }

    #[test]
    fn the_first_value_of_an_annotation_wins() {
        let trail = AuditTrail::new(AuditLevel::Metadata, false);
        trail.annotate("a/b", "1");
        trail.annotate("a/b", "2");
        assert_eq!(trail.snapshot().annotations["a/b"], "1");
        AuditTrail::default().annotate("a/b", "1");
    }
}

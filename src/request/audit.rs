//! What those who serve a request leave for the audit event: a sink that costs nothing where nobody records.

use super::user::UserInfo;
use crate::apimachinery::codec::json;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// Nothing.
    #[default]
    None,
    /// Who did what when; no bodies.
    Metadata,
    /// And the object of the request.
    Request,
    /// And that of the answer.
    RequestResponse,
}

impl AuditLevel {
    /// All, least first.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// As policies and events write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Left on requests for an upgrade: what must stay alive until the upgraded connection ends.
#[derive(Clone)]
pub struct UntilUpgradeEnds(pub Arc<dyn std::any::Any + Send + Sync>);

/// What is known of a request beyond its head, for its audit event. Clones are the same request's; the default one
/// records nothing.
#[derive(Clone, Default)]
pub struct AuditTrail(Option<Arc<Trail>>);

struct Trail {
    level: AuditLevel,
    omit_managed_fields: bool,
    facts: Mutex<AuditFacts>,
}

/// What was left.
#[derive(Clone, Debug, Default)]
pub struct AuditFacts {
    /// Each key is set once.
    pub annotations: BTreeMap<String, String>,
    /// Whom the caller acts as, and `impersonate:<mode>` where impersonation was constrained.
    pub impersonated: Option<(Arc<UserInfo>, &'static str)>,
    /// What the body says its object is.
    pub object: Option<ObjectFacts>,
    /// The object of the request, as JSON.
    pub request_object: Option<Bytes>,
}

/// Parts of a reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFacts {
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
    /// Records at `level`.
    pub fn new(level: AuditLevel, omit_managed_fields: bool) -> Self {
        Self(Some(Arc::new(Trail {
            level,
            omit_managed_fields,
            facts: Mutex::default(),
        })))
    }

    /// How much is recorded.
    pub fn level(&self) -> AuditLevel {
        self.0.as_ref().map_or(AuditLevel::None, |t| t.level)
    }

    /// Whether objects of requests are recorded; where not, there is no need to make them up.
    pub fn wants_objects(&self) -> bool {
        self.level() >= AuditLevel::Request
    }

    /// True where managed fields of objects are left out.
    pub fn omits_managed_fields(&self) -> bool {
        self.0.as_ref().is_some_and(|t| t.omit_managed_fields)
    }

    fn facts(&self) -> Option<MutexGuard<'_, AuditFacts>> {
        let trail = self.0.as_ref()?;
        Some(trail.facts.lock().expect("no code panics while holding this lock"))
    }

    /// Sets an annotation. A key is set once: another value for it is dropped with a log line, as upstream has it.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        let Some(mut facts) = self.facts() else { return };
        let value = value.into();
        match facts.annotations.get(key) {
            None => drop(facts.annotations.insert(key.to_owned(), value)),
            Some(before) if *before == value => {}
            Some(_) => tracing::warn!(key, "an audit annotation was set already; the other value is dropped"),
        }
    }

    /// The caller acts as somebody else from here on.
    pub fn impersonated(&self, user: &Arc<UserInfo>, constraint: &'static str) {
        if let Some(mut facts) = self.facts() {
            facts.impersonated = Some((user.clone(), constraint));
        }
    }

    /// The object a request brings. Only what names it is kept below level Request.
    pub fn request_object(&self, object: &Value) {
        let Some(mut facts) = self.facts() else { return };
        facts.object = Some(ObjectFacts {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            resource_version: object.resource_version().to_owned(),
        });
        if self.wants_objects() {
            facts.request_object = Some(self.encoded(object));
        }
    }

    /// The options a delete brings; they name no object.
    pub fn request_options(&self, options: &Value) {
        if self.wants_objects()
            && let Some(mut facts) = self.facts()
        {
            facts.request_object = Some(json::to_vec(options).into());
        }
    }

    /// The patch a request brings, as it came, where it is JSON; `decoded` where it is not.
    pub fn request_patch(&self, raw: &Bytes, decode: impl FnOnce(&[u8]) -> Option<Value>) {
        if !self.wants_objects() {
            return;
        }
        let kept = match json::decode(raw) {
            Ok(patch) => Some(json::to_vec(&patch).into()),
            Err(_) => decode(raw).map(|patch| self.encoded(&patch)),
        };
        if let Some(mut facts) = self.facts() {
            facts.request_object = kept;
        }
    }

    /// The JSON of an object as this request's events show it.
    pub fn encoded(&self, object: &Value) -> Bytes {
        if self.omits_managed_fields() {
            let mut without = object.clone();
            forget_managed_fields(&mut without);
            json::to_vec(&without).into()
        } else {
            json::to_vec(object).into()
        }
    }

    /// What was left so far.
    pub fn snapshot(&self) -> AuditFacts {
        self.facts().map_or_else(AuditFacts::default, |f| f.clone())
    }
}

/// Of an object, or of each item of a list.
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
    fn below_level_request_only_what_names_the_object_is_kept() {
        let trail = AuditTrail::new(AuditLevel::Metadata, false);
        trail.request_object(&secret());
        trail.request_patch(&Bytes::from_static(b"{\"data\":{}}"), |_| None);
        let facts = trail.snapshot();
        assert_eq!(facts.object.unwrap().name, "s");
        assert!(facts.request_object.is_none());
    }

    #[test]
    fn managed_fields_are_left_out_where_the_policy_says_so() {
        let text = |omit| {
            let trail = AuditTrail::new(AuditLevel::Request, omit);
            trail.request_object(&json!({"items": [(secret())]}));
            String::from_utf8(trail.snapshot().request_object.unwrap().to_vec()).unwrap()
        };
        assert!(text(false).contains("managedFields") && !text(true).contains("managedFields"));
    }

    #[test]
    fn the_first_value_of_an_annotation_stays() {
        let trail = AuditTrail::new(AuditLevel::Metadata, false);
        trail.annotate("a/b", "1");
        trail.annotate("a/b", "2");
        assert_eq!(trail.snapshot().annotations["a/b"], "1");
        AuditTrail::default().annotate("a/b", "1");
    }
}

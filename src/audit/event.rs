//! The `audit.k8s.io/v1` Event and its two encodings: JSON with fields in upstream's order
//! ([`Event::encode`]) and the one-line legacy format ([`Event::legacy`]).

use super::policy::Stage;
use crate::apimachinery::codec::json::{encode, encode_int, encode_str};
use crate::apimachinery::field::quote;
use crate::apimachinery::time::format_micro;
use crate::apimachinery::value::Value;
use crate::request::{AuditLevel, RequestInfo, UserInfo};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use time::OffsetDateTime;

/// The part of an event that stays the same in all stages of a request.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The request's audit id.
    pub audit_id: Arc<str>,
    /// Path and query as sent by the client.
    pub uri: String,
    /// The resolved verb and resource.
    pub info: Arc<RequestInfo>,
    /// The authenticated user, before impersonation; `None` if authentication failed.
    pub user: Option<Arc<UserInfo>>,
    /// Source addresses: forwarded ones first (the client), the peer last.
    pub source_ips: Vec<IpAddr>,
    /// The `User-Agent` header, truncated.
    pub user_agent: String,
    /// When the request was received.
    pub received: OffsetDateTime,
}

/// Object metadata for `objectRef`; the resource comes from the request path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectRef {
    /// `objectRef.namespace`
    pub namespace: String,
    /// `objectRef.name`
    pub name: String,
    /// `objectRef.uid`
    pub uid: String,
    /// `objectRef.resourceVersion`
    pub resource_version: String,
}

/// `responseStatus` of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ResponseStatus {
    /// HTTP status code; zero is omitted.
    pub code: u16,
    /// `Success` or `Failure` if the response is a Status; empty otherwise.
    pub status: String,
    /// Message of the Status.
    pub message: String,
    /// Reason of the Status.
    pub reason: String,
    /// Details of the Status; null if it has none.
    pub details: Value,
}

impl ResponseStatus {
    /// A status with only the code, for responses that are not a Status.
    pub(crate) fn of(code: u16) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// The fields of a Status that events record; the rest is unbounded.
    pub(crate) fn of_status(code: u16, status: &Value) -> Self {
        let text = |key: &str| status.str_at(&[key]).to_owned();
        Self {
            code,
            status: text("status"),
            message: text("message"),
            reason: text("reason"),
            details: status.get("details").clone(),
        }
    }
}

/// An audit event: one stage of one request.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The stage-independent part.
    pub subject: Arc<Subject>,
    /// How much of the request is recorded.
    pub level: AuditLevel,
    /// The stage of the request that this event reports.
    pub stage: Stage,
    /// The impersonated user and the impersonation constraint (empty if unconstrained).
    pub impersonated: Option<(Arc<UserInfo>, &'static str)>,
    /// Reference to the object; only for resource requests.
    pub object: Option<ObjectRef>,
    /// The response; `None` before there is one.
    pub status: Option<ResponseStatus>,
    /// The request object, as JSON.
    pub request_object: Option<Bytes>,
    /// The response object, as JSON.
    pub response_object: Option<Bytes>,
    /// When the stage was reached.
    pub at: OffsetDateTime,
    /// Annotations added by filters and admission plugins.
    pub annotations: BTreeMap<String, String>,
}

/// Writes the members of one JSON object in call order, so that the output matches the field order of Go's
/// structs.
struct Members<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Members<'a> {
    fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        encode_str(key, self.out);
        self.out.push(b':');
        self.out
    }

    fn text(&mut self, key: &str, value: &str) {
        encode_str(value, self.key(key));
    }

    /// Writes a string member unless it is empty (Go's `omitempty`).
    fn some(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    fn raw(&mut self, key: &str, value: Option<&Bytes>) {
        if let Some(value) = value {
            self.key(key).extend_from_slice(value);
        }
    }

    fn close(self) {
        self.out.push(b'}');
    }
}

fn texts<'s>(items: impl Iterator<Item = &'s str>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        encode_str(item, out);
    }
    out.push(b']');
}

fn user(u: &UserInfo, out: &mut Vec<u8>) {
    let mut m = Members::open(out);
    m.some("username", &u.name);
    m.some("uid", &u.uid);
    if !u.groups.is_empty() {
        texts(u.groups.iter().map(String::as_str), m.key("groups"));
    }
    if !u.extra.is_empty() {
        let mut extra = Members::open(m.key("extra"));
        // Sorted by the map, like the keys of maps in Go's JSON.
        for (key, values) in &u.extra {
            texts(values.iter().map(String::as_str), extra.key(key));
        }
        extra.close();
    }
    m.close();
}

impl Event {
    /// The event as JSON. `typed` includes kind and apiVersion, for a line of a log; items of an EventList
    /// omit them.
    pub(crate) fn encode(&self, typed: bool) -> Vec<u8> {
        let s = &*self.subject;
        let mut out = Vec::with_capacity(
            // Without the objects an event is about a kilobyte.
            1024 + self.request_object.as_ref().map_or(0, Bytes::len)
                + self.response_object.as_ref().map_or(0, Bytes::len),
        );
        let mut m = Members::open(&mut out);
        if typed {
            m.text("kind", "Event");
            m.text("apiVersion", super::API_VERSION);
        }
        m.text("level", self.level.name());
        // Upstream's struct has these members without `omitempty`: they are written even if they are empty.
        m.text("auditID", &s.audit_id);
        m.text("stage", self.stage.name());
        m.text("requestURI", &s.uri);
        m.text("verb", &s.info.verb);
        match &s.user {
            Some(u) => user(u, m.key("user")),
            // Not omitted, for the same reason as `responseStatus.metadata`: it is a struct in Go.
            None => m.key("user").extend_from_slice(b"{}"),
        }
        if let Some((as_user, constraint)) = &self.impersonated {
            user(as_user, m.key("impersonatedUser"));
            if !constraint.is_empty() {
                let mut meta = Members::open(m.key("authenticationMetadata"));
                meta.text("impersonationConstraint", constraint);
                meta.close();
            }
        }
        if !s.source_ips.is_empty() {
            let ips: Vec<String> = s.source_ips.iter().map(ToString::to_string).collect();
            texts(ips.iter().map(String::as_str), m.key("sourceIPs"));
        }
        m.some("userAgent", &s.user_agent);
        if let Some(object) = &self.object {
            object.encode(&s.info, m.key("objectRef"));
        }
        if let Some(status) = &self.status {
            status.encode(m.key("responseStatus"));
        }
        m.raw("requestObject", self.request_object.as_ref());
        m.raw("responseObject", self.response_object.as_ref());
        m.text("requestReceivedTimestamp", &format_micro(s.received));
        m.text("stageTimestamp", &format_micro(self.at));
        if !self.annotations.is_empty() {
            let mut annotations = Members::open(m.key("annotations"));
            for (key, value) in &self.annotations {
                annotations.text(key, value);
            }
            annotations.close();
        }
        m.close();
        out
    }

    /// The legacy format, as upstream's `EventString` (`pkg/audit/format.go`): one line without the line
    /// break.
    pub(crate) fn legacy(&self) -> String {
        let s = &*self.subject;
        let listed = |groups: &[String]| groups.iter().map(|g| quote(g)).collect::<Vec<_>>().join(",");
        // As upstream, groups are shown only with a name.
        let named = s.user.as_ref().filter(|u| !u.name.is_empty());
        let (name, groups) = match named {
            Some(u) if !u.groups.is_empty() => (u.name.clone(), listed(&u.groups)),
            Some(u) => (u.name.clone(), "<none>".to_owned()),
            None => ("<none>".to_owned(), "<none>".to_owned()),
        };
        let (as_user, as_groups) = match &self.impersonated {
            Some((u, _)) if !u.groups.is_empty() => (u.name.clone(), listed(&u.groups)),
            // Upstream's placeholder where no groups were requested.
            Some((u, _)) => (u.name.clone(), "<lookup>".to_owned()),
            None => ("<self>".to_owned(), "<lookup>".to_owned()),
        };
        let namespace = self.object.as_ref().map_or("", |o| &*o.namespace);
        let namespace = if namespace.is_empty() { "<none>" } else { namespace };
        let response = self
            .status
            .as_ref()
            .map_or_else(|| "<deferred>".to_owned(), |s| s.code.to_string());
        // The client's own: forwarded addresses come first.
        let ip = s
            .source_ips
            .first()
            .map_or_else(|| "<unknown>".to_owned(), IpAddr::to_string);
        format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} namespace={} \
             uri={} response=\"{response}\"",
            nano(s.received),
            quote(&s.audit_id),
            quote(self.stage.name()),
            quote(&ip),
            quote(&s.info.verb),
            quote(&name),
            quote(&groups),
            quote(&as_user),
            quote(&as_groups),
            quote(&s.user_agent),
            quote(namespace),
            quote(&s.uri),
        )
    }

    /// A copy without request and response objects, annotated as truncated.
    #[must_use]
    pub(crate) fn truncated(&self) -> Self {
        let mut out = Self {
            request_object: None,
            response_object: None,
            ..self.clone()
        };
        out.annotations
            .insert("audit.k8s.io/truncated".to_owned(), "true".to_owned());
        out
    }

    /// Size in bytes of what clients make long.
    pub(crate) fn size(&self) -> usize {
        let object = |object: &Option<Bytes>| object.as_ref().map_or(0, Bytes::len);
        self.subject.uri.len() + object(&self.request_object) + object(&self.response_object)
    }
}

/// Formats a time with microseconds but without trailing zeros, as Go's `RFC3339Nano` does.
fn nano(t: OffsetDateTime) -> String {
    let text = format_micro(t);
    // A whole second has no fraction at all, hence the point.
    let text = text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
    format!("{text}Z")
}

impl ObjectRef {
    fn encode(&self, info: &RequestInfo, out: &mut Vec<u8>) {
        let mut m = Members::open(out);
        m.some("resource", &info.resource);
        m.some("namespace", &self.namespace);
        m.some("name", &self.name);
        m.some("uid", &self.uid);
        m.some("apiGroup", &info.api_group);
        m.some("apiVersion", &info.api_version);
        m.some("resourceVersion", &self.resource_version);
        m.some("subresource", &info.subresource);
        m.close();
    }
}

impl ResponseStatus {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut m = Members::open(out);
        // A `metav1.Status` always has this member: Go's `omitempty` does not omit structs.
        m.key("metadata").extend_from_slice(b"{}");
        m.some("status", &self.status);
        m.some("message", &self.message);
        m.some("reason", &self.reason);
        if !self.details.is_null() {
            encode(&self.details, m.key("details"));
        }
        if self.code != 0 {
            encode_int(i64::from(self.code), m.key("code"));
        }
        m.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::codec::json;

    fn event() -> Event {
        let info = RequestInfo {
            is_resource: true,
            verb: "create".into(),
            resource: "pods".into(),
            api_version: "v1".into(),
            namespace: "n".into(),
            ..RequestInfo::default()
        };
        let user = UserInfo::system("u\"x", &["g", "h"]);
        Event {
            subject: Arc::new(Subject {
                audit_id: "id-1".into(),
                uri: "/api/v1/namespaces/n/pods?x=<1>".into(),
                info: Arc::new(info),
                user: Some(Arc::new(user)),
                source_ips: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
                user_agent: "kubectl".into(),
                received: OffsetDateTime::UNIX_EPOCH + std::time::Duration::from_millis(1500),
            }),
            level: AuditLevel::Request,
            stage: Stage::ResponseComplete,
            impersonated: Some((Arc::new(UserInfo::system("v", &[])), "impersonate:user-info")),
            object: Some(ObjectRef {
                namespace: "n".into(),
                name: "p".into(),
                ..ObjectRef::default()
            }),
            status: Some(ResponseStatus::of(201)),
            request_object: Some(Bytes::from_static(b"{\"kind\":\"Pod\"}")),
            response_object: None,
            at: OffsetDateTime::UNIX_EPOCH + std::time::Duration::from_secs(2),
            annotations: BTreeMap::from([("a/b".to_owned(), "c".to_owned())]),
        }
    }

    #[test]
    fn json_fields_are_in_upstreams_order() {
        let text = String::from_utf8(event().encode(true)).unwrap();
        assert_eq!(
            text,
            "{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"Request\",\"auditID\":\"id-1\",\
             \"stage\":\"ResponseComplete\",\"requestURI\":\"/api/v1/namespaces/n/pods?x=\\u003c1\\u003e\",\
             \"verb\":\"create\",\"user\":{\"username\":\"u\\\"x\",\"groups\":[\"g\",\"h\"]},\
             \"impersonatedUser\":{\"username\":\"v\"},\
             \"authenticationMetadata\":{\"impersonationConstraint\":\"impersonate:user-info\"},\
             \"sourceIPs\":[\"10.0.0.1\",\"::1\"],\"userAgent\":\"kubectl\",\
             \"objectRef\":{\"resource\":\"pods\",\"namespace\":\"n\",\"name\":\"p\",\"apiVersion\":\"v1\"},\
             \"responseStatus\":{\"metadata\":{},\"code\":201},\"requestObject\":{\"kind\":\"Pod\"},\
             \"requestReceivedTimestamp\":\"1970-01-01T00:00:01.500000Z\",\
             \"stageTimestamp\":\"1970-01-01T00:00:02.000000Z\",\"annotations\":{\"a/b\":\"c\"}}"
        );
        json::decode(&event().encode(false)).unwrap();
    }

    #[test]
    fn the_legacy_format_matches_upstream() {
        assert_eq!(
            event().legacy(),
            "1970-01-01T00:00:01.5Z AUDIT: id=\"id-1\" stage=\"ResponseComplete\" ip=\"10.0.0.1\" method=\"create\" \
             user=\"u\\\"x\" groups=\"\\\"g\\\",\\\"h\\\"\" as=\"v\" asgroups=\"<lookup>\" user-agent=\"kubectl\" \
             namespace=\"n\" uri=\"/api/v1/namespaces/n/pods?x=<1>\" response=\"201\""
        );
    }

    #[test]
    fn a_truncated_event_is_annotated_and_has_no_objects() {
        let text = String::from_utf8(event().truncated().encode(true)).unwrap();
        assert!(!text.contains("requestObject") && text.contains("\"audit.k8s.io/truncated\":\"true\""));
    }
}

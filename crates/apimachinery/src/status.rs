//! `metav1.Status`: the error type of every API verb, with upstream's codes, reasons and messages
//! (`k8s.io/apimachinery/pkg/api/errors/errors.go`).
//!
//! The constructors of [`Status`] correspond to upstream's `errors.New…` functions. Encoding a Status as a
//! response is left to `endpoints::respond`.

use super::field::{FieldError, FieldErrorKind, MAX_TEXT, aggregate, cut, quote};
use super::gvk::GroupResource;
use super::value::{Map, Value};

/// An API error (or, rarely, success) response. Every API verb returns it as its error type.
///
/// ```
/// use torana_apimachinery::{GroupResource, Status};
///
/// let status = Status::not_found(&GroupResource::new("apps", "deployments"), "web");
/// assert_eq!((status.code, status.reason), (404, "NotFound"));
/// assert_eq!(status.to_string(), r#"deployments.apps "web" not found"#);
///
/// // As clients receive it.
/// let object = status.to_value();
/// assert_eq!(object.str_at(&["kind"]), "Status");
/// assert_eq!(object.str_at(&["details", "name"]), "web");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status of the response.
    pub code: u16,
    /// Machine-readable reason; empty where upstream sets none.
    pub reason: &'static str,
    /// The text that clients print for the user.
    pub message: String,
    /// The object concerned and the causes. `None` omits `details`.
    pub details: Option<Box<Details>>,
    /// A fresh continue token, sent when the client's token has expired.
    pub continue_token: Option<String>,
    /// The Status of another server, which is sent as it is; it may have a reason of its own. `code` and
    /// `message` are taken from it.
    pub verbatim: Option<Box<Value>>,
}

/// The `details` of a Status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// Group of the kind.
    pub group: String,
    /// Kind or resource, as upstream has it for the error.
    pub kind: String,
    /// Uid of the object.
    pub uid: String,
    /// Errors of individual fields.
    pub causes: Vec<Cause>,
    /// Seconds to wait before a retry, also sent as `Retry-After`. 0 omits it.
    pub retry_after_seconds: u32,
}

/// One of the errors that make up a Status, usually of one field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub reason: String,
    /// The error of the field, without its path.
    pub message: String,
    /// Path of the invalid field.
    pub field: String,
}

/// The result of an API verb.
pub type Result<T, E = Status> = std::result::Result<T, E>;

impl Status {
    /// A failure without details. Messages are truncated to slightly more than [`MAX_TEXT`] bytes.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        // Leaves room for the text around an aggregate. Aggregates are bounded by themselves and report how
        // much they omit.
        const FRAME: usize = 4096;
        Self {
            code,
            reason,
            message: cut(message.into(), MAX_TEXT + FRAME),
            details: None,
            continue_token: None,
            verbatim: None,
        }
    }

    /// The Status of another server, such as the refusal of a webhook.
    pub fn verbatim(code: u16, mut status: Value) -> Self {
        // The gateway's own `kind`, `apiVersion` and `code` win: webhooks may leave them out or contradict the
        // response.
        status.set(&["kind"], "Status");
        status.set(&["apiVersion"], "v1");
        status.set(&["code"], i64::from(code));
        let retry_after = status.at(&["details", "retryAfterSeconds"]).as_i64();
        let mut own = Self::new(code, "", status.get("message").as_str().unwrap_or_default());
        // Also kept in our own details, because the `Retry-After` header is derived from those.
        if let Some(seconds) = retry_after.and_then(|s| u32::try_from(s).ok()).filter(|s| *s > 0) {
            own = own.with_retry_after(seconds);
        }
        // Upstream always writes the member, if only as an empty object.
        if status.get("metadata").is_null() {
            status.set(&["metadata"], Value::object());
        }
        Self {
            verbatim: Some(Box::new(status)),
            ..own
        }
    }

    fn about(mut self, gr: &GroupResource, name: &str) -> Self {
        let d = self.details_mut();
        d.group = gr.group.to_string();
        d.kind = gr.resource.to_string();
        d.name = name.to_owned();
        self
    }

    /// The details, created if absent.
    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_with(Default::default)
    }

    /// Sets `retryAfterSeconds`.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    /// The value for `Retry-After` in seconds; 0 for none.
    pub fn retry_after(&self) -> u32 {
        self.details.as_ref().map_or(0, |d| d.retry_after_seconds)
    }

    /// 404: the object does not exist.
    pub fn not_found(gr: &GroupResource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{gr} {} not found", quote(name))).about(gr, name)
    }

    /// 409: an object of that name already exists.
    pub fn already_exists(gr: &GroupResource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{gr} {} already exists", quote(name))).about(gr, name)
    }

    /// 409: the write conflicts with the stored state; `why` says how. `gr.resource` may be a Kind where
    /// upstream shows one.
    pub fn conflict(gr: &GroupResource, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {gr} {}: {why}", quote(name)),
        )
        .about(gr, name)
    }

    /// 409: optimistic locking failed.
    pub fn modified(gr: &GroupResource, name: &str) -> Self {
        Self::conflict(
            gr,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422 with one cause per error, as many as fit into [`MAX_TEXT`]. `kind` is the Kind; some callers pass
    /// the resource, as upstream does.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let mut s = Self::new(
            422,
            "Invalid",
            format!("{qualified} {} is invalid: {}", quote(name), aggregate(errors)),
        );
        let d = s.details_mut();
        d.group = group.to_owned();
        d.kind = kind.to_owned();
        d.name = name.to_owned();
        let mut room = MAX_TEXT;
        // The count of omitted errors is part of the message, but not a cause.
        let named = errors.iter().filter(|e| !matches!(e.kind, FieldErrorKind::More(_)));
        let causes = named.map(|e| Cause {
            reason: e.reason().to_owned(),
            message: e.body(),
            field: e.field.clone(),
        });
        // The first cause is included whatever its size.
        let mut fits = |c: &Cause| {
            let before = room;
            // Charged by text only; the reason is a constant of a few bytes.
            room = room.saturating_sub(c.message.len() + c.field.len());
            room > 0 || before == MAX_TEXT
        };
        d.causes = causes.take_while(|c| fits(c)).collect();
        s
    }

    /// 400 with the given message.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401, the same for every failed authentication.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403; `why` follows `is forbidden: `. An empty name or resource is left out of the message.
    pub fn forbidden(gr: &GroupResource, name: &str, why: &str) -> Self {
        let message = if gr.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{gr} is forbidden: {why}")
        } else {
            format!("{gr} {} is forbidden: {why}", quote(name))
        };
        Self::new(403, "Forbidden", message).about(gr, name)
    }

    /// 405: the resource does not support the verb.
    pub fn method_not_supported(gr: &GroupResource, action: &str) -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            format!("{action} is not supported on resources of kind {:?}", gr.to_string()),
        )
        .about(gr, "")
    }

    /// 406: none of the media types in `Accept` is supported.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        Self::new(
            406,
            "NotAcceptable",
            format!("only the following media types are accepted: {}", accepted.join(", ")),
        )
    }

    /// 415: the media type of the request body is not supported.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// 413: the request body or the object exceeds a limit.
    pub fn too_large(message: &str) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {message}"),
        )
    }

    /// 410: the requested revision or continue token is no longer available.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 429 with `Retry-After` in seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(429, "TooManyRequests", message).with_retry_after(retry_after)
    }

    /// 500 with upstream's prefix and the error as its cause.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        let mut s = Self::new(500, "InternalError", format!("Internal error occurred: {error}"));
        s.details_mut().causes.push(Cause {
            message: error.to_string(),
            ..Default::default()
        });
        s
    }

    /// 500 without a reason, as upstream returns for an error that is not a Status.
    pub fn raw_error(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 503 with the given message.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504 with `Retry-After` in seconds.
    pub fn timeout(message: impl std::fmt::Display, retry_after: u32) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {message}")).with_retry_after(retry_after)
    }

    /// The Status as an object tree, ready to encode.
    pub fn to_value(&self) -> Value {
        if let Some(status) = &self.verbatim {
            return Value::clone(status);
        }
        let mut m = Map::new();
        m.insert("kind", "Status");
        m.insert("apiVersion", "v1");
        let mut meta = Map::new();
        if let Some(c) = &self.continue_token {
            meta.insert("continue", c.as_str());
        }
        m.insert("metadata", meta);
        m.insert("status", if self.code < 400 { "Success" } else { "Failure" });
        if !self.message.is_empty() {
            m.insert("message", self.message.as_str());
        }
        if !self.reason.is_empty() {
            m.insert("reason", self.reason);
        }
        if let Some(d) = &self.details {
            m.insert("details", d.to_value());
        }
        m.insert("code", i64::from(self.code));
        Value::Object(m)
    }

    /// The Success Status of a delete. Upstream sets neither message nor code.
    pub fn deleted(gr: &GroupResource, name: &str, uid: &str) -> Value {
        let details = Details {
            name: name.to_owned(),
            group: gr.group.to_string(),
            kind: gr.resource.to_string(),
            uid: uid.to_owned(),
            ..Default::default()
        };
        // Without `code`: upstream builds this Status by hand in `DeleteResource`.
        let mut v = crate::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        v.set(&["details"], details.to_value());
        v
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut m = Map::new();
        for (k, v) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !v.is_empty() {
                m.insert(k, v.as_str());
            }
        }
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self
                .causes
                .iter()
                .map(|c| {
                    let mut m = Map::new();
                    for (k, v) in [("reason", &c.reason), ("message", &c.message), ("field", &c.field)] {
                        if !v.is_empty() {
                            m.insert(k, v.as_str());
                        }
                    }
                    Value::Object(m)
                })
                .collect();
            m.insert("causes", causes);
        }
        if self.retry_after_seconds > 0 {
            m.insert("retryAfterSeconds", i64::from(self.retry_after_seconds));
        }
        Value::Object(m)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::super::field::{ErrorList, FieldPath};
    use super::*;

    #[test]
    fn names_are_quoted_like_go() {
        let gr = GroupResource::new("", "configmaps");
        let absent = Status::not_found(&gr, "a\0b");
        assert_eq!(absent.message, "configmaps \"a\\x00b\" not found");
    }

    #[test]
    fn invalid_status_is_bounded() {
        let path = FieldPath::new("spec");
        let wrong = |i| FieldError::invalid(&path.index(i), "v".repeat(200), "no");
        let many: ErrorList = (0..1_000_000).map(wrong).collect();
        let s = Status::invalid("", "Pod", "p", &many);
        assert!(
            s.message.ends_with("and 999900 more errors]"),
            "{}",
            &s.message[s.message.len() - 80..]
        );
        assert_eq!(s.details.as_ref().map(|d| d.causes.len()), Some(100));
        let large = (0..50).map(|i| FieldError::invalid(&path.index(i), "v".repeat(1 << 20), "no"));
        let large: ErrorList = large.collect();
        let encoded = crate::codec::json::to_vec(&Status::invalid("", "Pod", "p", &large).to_value());
        assert!(encoded.len() < 3 * MAX_TEXT, "{}", encoded.len());
        assert!(Status::bad_request("x".repeat(1 << 20)).message.len() < 2 * MAX_TEXT);
    }
}

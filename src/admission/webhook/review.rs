//! AdmissionReviews: [`Review`] encodes the request, [`answer`] checks the response (upstream:
//! `admission/plugin/webhook/request`). No I/O.

use crate::admission::{Attributes, ServedKind};
use crate::api::{by_gvk, decode};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::quote;
use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind, GroupVersionResource};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::patch::json_type;
use crate::apimachinery::value::{Map, Value};
use crate::client::webhook::ReviewVersion;

#[cfg(test)]
mod tests;

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// A review to be sent.
pub(crate) struct Review<'a> {
    /// The version of `AdmissionReview` that the webhook accepts.
    pub version: ReviewVersion,
    /// Identifies it in the answer.
    pub uid: &'a str,
    /// The attributes of the write.
    pub attributes: &'a Attributes,
    /// The version of the resource that the webhook sees.
    pub target: &'a ServedKind,
    /// The encoded object; `null` for none.
    pub object: &'a [u8],
    /// The encoded old object; `null` for none.
    pub old_object: &'a [u8],
}

/// A response that has passed all checks.
#[derive(Debug, Default, PartialEq)]
pub struct ReviewResponse {
    /// Whether the webhook admits the write.
    pub allowed: bool,
    /// The Status of a refusal.
    pub status: Option<Value>,
    /// A JSON patch; empty for none.
    pub patch: Vec<u8>,
    /// Empty if there is no patch.
    pub patch_type: String,
    /// Warnings to the client.
    pub warnings: Vec<String>,
    /// Annotations of the audit event, without the webhook's name.
    pub audit_annotations: Vec<(String, String)>,
}

/// Why a response is not accepted. The variants differ in the prefix of the message.
#[derive(Debug)]
pub enum Unacceptable {
    /// The body is not a review.
    Undecodable(Undecodable),
    /// The review is invalid.
    Invalid(InvalidReview),
}

/// Why a body is not a review, worded as upstream.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    /// It is not JSON.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(#[source] json::Error),
    /// It is JSON of this type instead of an object.
    #[error(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {0} into Go value of type struct {{ APIVersion \
         string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )]
    NotObject(&'static str),
    /// It is a Status with this message.
    #[error("{0}")]
    Status(String),
    /// It is a review of the other version.
    #[error("converting ({got}.{KIND}) to ({wanted}.{KIND}): unknown conversion")]
    OtherVersion {
        /// Its version.
        got: &'static str,
        /// The version of the request.
        wanted: &'static str,
    },
    /// It is an object of another kind.
    #[error(
        "no kind {} is registered for version {} in scheme \"k8s.io/apiserver/pkg/util/webhook/webhook.go\"",
        quote(.kind),
        quote(.version)
    )]
    UnknownKind {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        version: String,
    },
    /// A field has another type.
    #[error("json: cannot unmarshal {got} into Go struct field {field} of type {wanted}")]
    Mistyped {
        /// The field, with the Go type around it.
        field: String,
        /// Its JSON type.
        got: String,
        /// Its Go type.
        wanted: &'static str,
    },
    /// The patch is not base64, or a field of the status has another type.
    #[error(transparent)]
    Field(#[from] decode::DecodeError),
    /// The compute pool is full.
    #[error("the server is too busy to decode it")]
    Busy,
}

/// Why a review is invalid, worded as upstream.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReview {
    /// It has no response.
    #[error("webhook response was absent")]
    NoResponse,
    /// It answers another request.
    #[error("expected response.uid={}, got {}", quote(.wanted), quote(.got))]
    Uid {
        /// The UID of the request.
        wanted: String,
        /// The UID in the response.
        got: String,
    },
    /// It has no apiVersion or kind.
    #[error("expected webhook response of {GROUP}/v1, Kind={KIND}, got {group}/{version}, Kind={kind}")]
    Untyped {
        /// The group of its `apiVersion`.
        group: String,
        /// The version of its `apiVersion`.
        version: String,
        /// Its `kind`.
        kind: String,
    },
    /// It has a patch without a type.
    #[error("webhook returned response.patch but not response.patchType")]
    NoPatchType,
    /// It has a type of a patch without a patch.
    #[error("webhook returned response.patchType but not response.patch")]
    NoPatch,
    /// The type of its patch is empty.
    #[error("webhook returned invalid response.patchType of \"\"")]
    EmptyPatchType,
    /// It is of a validating webhook, and has a patch.
    #[error("validating webhook may not return response.patch")]
    Patch,
    /// It is of a validating webhook, and has the type of a patch.
    #[error("validating webhook may not return response.patchType")]
    PatchType,
}

impl From<Undecodable> for Unacceptable {
    fn from(e: Undecodable) -> Self {
        Self::Undecodable(e)
    }
}

impl From<InvalidReview> for Unacceptable {
    fn from(e: InvalidReview) -> Self {
        Self::Invalid(e)
    }
}

fn kind(gvk: &GroupVersionKind) -> Value {
    crate::json!({"group": (gvk.group.as_str()), "version": (gvk.version.as_str()), "kind": (gvk.kind.as_str())})
}

fn resource(gvr: &GroupVersionResource) -> Value {
    crate::json!({"group": (gvr.group.as_str()), "version": (gvr.version.as_str()), "resource": (gvr.resource.as_str())})
}

impl Review<'_> {
    /// The body of the request.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let attributes = self.attributes;
        let mut request = Map::new();
        let mut text = |key: &str, text: &str| {
            if !text.is_empty() {
                request.insert(key, text);
            }
        };
        text("uid", self.uid);
        // Equivalent resources have the same subresource, so both are equal.
        text("subResource", &attributes.subresource);
        text("requestSubResource", &attributes.subresource);
        text("name", &attributes.name);
        text("namespace", attributes.request_namespace());
        text("operation", attributes.operation.as_str());
        request.insert("kind", kind(&self.target.kind));
        request.insert("resource", resource(&self.target.resource));
        request.insert("requestKind", kind(&attributes.kind));
        request.insert("requestResource", resource(&attributes.resource));
        request.insert("userInfo", user_info(attributes));
        request.insert("dryRun", attributes.dry_run);
        request.insert("options", Value::clone(&attributes.options));

        // A kilobyte for the rest of the request.
        let mut out = Vec::with_capacity(1024 + self.object.len() + self.old_object.len());
        out.extend_from_slice(
            format!(
                "{{\"kind\":\"{KIND}\",\"apiVersion\":\"{GROUP}/{}\",\"request\":",
                self.version.name()
            )
            .as_bytes(),
        );
        json::encode(&Value::Object(request), &mut out);
        // The objects are encoded already, perhaps for several webhooks.
        // Removes the closing brace, so that the objects are appended to the request as raw JSON.
        out.pop();
        for (key, object) in [("object", self.object), ("oldObject", self.old_object)] {
            out.extend_from_slice(format!(",\"{key}\":").as_bytes());
            out.extend_from_slice(object);
        }
        out.extend_from_slice(b"}}\n");
        out
    }
}

fn user_info(attributes: &Attributes) -> Value {
    let user = &attributes.user;
    let mut info = Map::new();
    for (key, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info.insert(key, text);
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups", user.groups.clone());
    }
    if !user.extra.is_empty() {
        let extra = user
            .extra
            .iter()
            .map(|(key, values)| (key.as_str(), Value::from(values.clone())));
        info.insert("extra", extra.collect::<Map>());
    }
    Value::Object(info)
}

/// Reads the body of a webhook's response to the review with this UID.
///
/// # Errors
/// `Unacceptable`.
pub fn answer(version: ReviewVersion, uid: &str, mutating: bool, body: &[u8]) -> Result<ReviewResponse, Unacceptable> {
    let mut review = json::decode(body).map_err(Undecodable::Json)?;
    check_type(version, &review)?;
    let response = review.unset(&["response"]).unwrap_or_default();
    let response = match response {
        Value::Null => return Err(InvalidReview::NoResponse.into()),
        Value::Object(response) => response,
        other => return Err(mistyped("response", &other, "v1.AdmissionResponse").into()),
    };
    let answer = typed(&response)?;
    if version == ReviewVersion::V1 {
        // From the raw response: an empty type and an absent one are different errors.
        let patch_type = response.get("patchType").and_then(Value::as_str);
        check(&review, &response, uid, mutating, &answer, patch_type)?;
        return Ok(answer);
    }
    // In v1beta1 the type of a patch was not checked, and patches of validating webhooks are ignored.
    let has_patch = mutating && !answer.patch.is_empty();
    Ok(ReviewResponse {
        patch_type: if has_patch {
            "JSONPatch".to_owned()
        } else {
            String::new()
        },
        patch: if has_patch { answer.patch } else { Vec::new() },
        ..answer
    })
}

/// Refuses bodies that upstream's decoder does not convert to a review of this version.
fn check_type(version: ReviewVersion, review: &Value) -> Result<(), Undecodable> {
    let Value::Object(_) = review else {
        return Err(Undecodable::NotObject(json_type(review)));
    };
    let (api_version, kind) = (review.api_version(), ObjectView::kind(review));
    if api_version == "v1" && kind == "Status" {
        return Err(Undecodable::Status(review.str_at(&["message"]).to_owned()));
    }
    let own = format!("{GROUP}/{}", version.name());
    match (api_version, kind) {
        // Absent members are those of the expected type to the decoder; the check of v1 refuses them later.
        ("", "" | KIND) => Ok(()),
        (v, "" | KIND) if v == own => Ok(()),
        ("admission.k8s.io/v1" | "admission.k8s.io/v1beta1", KIND) => Err(Undecodable::OtherVersion {
            got: version.other().name(),
            wanted: version.name(),
        }),
        (version, kind) => Err(Undecodable::UnknownKind {
            kind: kind.to_owned(),
            version: version.to_owned(),
        }),
    }
}

fn typed(response: &Map) -> Result<ReviewResponse, Undecodable> {
    let text = |key: &str| match response.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.to_string()),
        Some(other) => Err(mistyped(key, other, "string")),
    };
    // Only its type is checked here; v1beta1 does not require it to match.
    text("uid")?;
    let warnings = match response.get("warnings") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(all)) => all
            .iter()
            .map(|w| {
                w.as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| mistyped("warnings", w, "string"))
            })
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(mistyped("warnings", other, "[]string")),
    };
    let audit_annotations = match response.get("auditAnnotations") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(all)) => all
            .iter()
            .map(|(k, v)| {
                Ok((
                    k.to_owned(),
                    v.as_str()
                        .ok_or_else(|| mistyped("auditAnnotations", v, "string"))?
                        .to_owned(),
                ))
            })
            .collect::<Result<_, Undecodable>>()?,
        Some(other) => return Err(mistyped("auditAnnotations", other, "map[string]string")),
    };
    Ok(ReviewResponse {
        allowed: match response.get("allowed") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(allowed)) => *allowed,
            Some(other) => return Err(mistyped("allowed", other, "bool")),
        },
        status: status(response.get("status"))?,
        patch: patch(response.get("patch"))?,
        patch_type: text("patchType")?,
        warnings,
        audit_annotations,
    })
}

/// The bytes of a patch: base64, or a list of numbers, which Go's decoder accepts for `[]byte` and kube-rs
/// sends.
fn patch(given: Option<&Value>) -> Result<Vec<u8>, Undecodable> {
    let byte = |v: &Value| match v {
        // As Go decodes null into a byte.
        Value::Null => Ok(0),
        Value::Int(n) => u8::try_from(*n).map_err(|_| mistyped_as("patch", format!("number {n}"), "uint8")),
        other => Err(mistyped("patch", other, "uint8")),
    };
    match given {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(decode::base64(text)?),
        Some(Value::Array(bytes)) => bytes.iter().map(byte).collect(),
        Some(other) => Err(mistyped("patch", other, "[]uint8")),
    }
}

/// The known members of a Status.
fn status(given: Option<&Value>) -> Result<Option<Value>, Undecodable> {
    let mut status = match given {
        None | Some(Value::Null) => return Ok(None),
        Some(status @ Value::Object(_)) => status.clone(),
        Some(other) => return Err(mistyped("status", other, "v1.Status")),
    };
    let definition = by_gvk("", "v1", "Status");
    if let Some(definition) = definition {
        // Drops unknown members, so that a webhook cannot put arbitrary fields into our response.
        decode::normalize(definition, &mut status)?;
    }
    Ok(Some(status))
}

fn check(
    review: &Value,
    response: &Map,
    uid: &str,
    mutating: bool,
    answer: &ReviewResponse,
    patch_type: Option<&str>,
) -> Result<(), InvalidReview> {
    let got = response.str("uid");
    if got != uid {
        return Err(InvalidReview::Uid {
            wanted: uid.to_owned(),
            got: got.to_owned(),
        });
    }
    let (api_version, kind) = (review.api_version(), ObjectView::kind(review));
    if api_version != "admission.k8s.io/v1" || kind != KIND {
        let gv = GroupVersion::parse(api_version).unwrap_or_default();
        return Err(InvalidReview::Untyped {
            group: gv.group.to_string(),
            version: gv.version.to_string(),
            kind: kind.to_owned(),
        });
    }
    match (mutating, answer.patch.is_empty(), patch_type) {
        (true, false, None) => Err(InvalidReview::NoPatchType),
        (true, true, Some(_)) => Err(InvalidReview::NoPatch),
        (true, _, Some("")) => Err(InvalidReview::EmptyPatchType),
        (false, false, _) => Err(InvalidReview::Patch),
        (false, _, Some(_)) => Err(InvalidReview::PatchType),
        _ => Ok(()),
    }
}

fn mistyped(field: &str, v: &Value, wanted: &'static str) -> Undecodable {
    mistyped_as(field, json_type(v).to_owned(), wanted)
}

fn mistyped_as(field: &str, got: String, wanted: &'static str) -> Undecodable {
    let field = if field == "response" {
        "AdmissionReview.response".to_owned()
    } else {
        format!("AdmissionResponse.response.{field}")
    };
    Undecodable::Mistyped { field, got, wanted }
}

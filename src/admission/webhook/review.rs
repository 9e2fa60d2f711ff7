//! AdmissionReviews: the request, and what is accepted as its answer (upstream: `admission/plugin/webhook/request`). No I/O.

use crate::admission::{Attributes, ServedKind};
use crate::api::{by_gvk, decode};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::quote;
use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind, GroupVersionResource};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Map, Value};

#[cfg(test)]
mod tests;

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// The version of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `v1`
    V1,
    /// `v1beta1`, of whose answers neither kind nor UID is checked.
    V1Beta1,
}

/// A review to be sent.
pub(crate) struct Review<'a> {
    /// Its version.
    pub version: Version,
    /// Identifies it in the answer.
    pub uid: &'a str,
    /// The write.
    pub attributes: &'a Attributes,
    /// The version of the resource that the webhook sees.
    pub target: &'a ServedKind,
    /// The encoded object; `null` for none.
    pub object: &'a [u8],
    /// The encoded old object; `null` for none.
    pub old_object: &'a [u8],
}

/// An acceptable answer.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
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

/// Why an answer is not acceptable. The variants differ in what precedes the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unacceptable {
    /// The body is no review.
    Undecodable(String),
    /// The review is invalid.
    Invalid(String),
}

impl Version {
    /// The first of `admissionReviewVersions` that is known.
    pub fn choose<'v>(mut accepted: impl Iterator<Item = &'v str>) -> Option<Self> {
        accepted.find_map(|v| match v {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
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
/// Upstream's text.
pub fn answer(version: Version, uid: &str, mutating: bool, body: &[u8]) -> Result<Answer, Unacceptable> {
    let mut review = json::decode(body)
        .map_err(|e| Unacceptable::Undecodable(format!("couldn't get version/kind; json parse error: {e}")))?;
    check_type(version, &review).map_err(Unacceptable::Undecodable)?;
    let response = review.unset(&["response"]).unwrap_or_default();
    let response = match response {
        Value::Null => return Err(Unacceptable::Invalid("webhook response was absent".to_owned())),
        Value::Object(response) => response,
        other => {
            return Err(Unacceptable::Undecodable(mistyped(
                "response",
                &other,
                "v1.AdmissionResponse",
            )));
        }
    };
    let answer = typed(&response).map_err(Unacceptable::Undecodable)?;
    if version == Version::V1 {
        let patch_type = response.get("patchType").and_then(Value::as_str);
        check(&review, &response, uid, mutating, &answer, patch_type).map_err(Unacceptable::Invalid)?;
        return Ok(answer);
    }
    // In v1beta1 the type of a patch was not checked, and patches of validating webhooks are ignored.
    let has_patch = mutating && !answer.patch.is_empty();
    Ok(Answer {
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
fn check_type(version: Version, review: &Value) -> Result<(), String> {
    let Value::Object(_) = review else {
        let text = "couldn't get version/kind; json parse error: json: cannot unmarshal";
        return Err(format!(
            "{text} {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            type_name(review)
        ));
    };
    let (api_version, kind) = (review.api_version(), ObjectView::kind(review));
    if api_version == "v1" && kind == "Status" {
        return Err(review.str_at(&["message"]).to_owned());
    }
    let own = format!("{GROUP}/{}", version.name());
    match (api_version, kind) {
        // Absent members are those of the expected type to the decoder; the check of v1 refuses them later.
        ("", "" | KIND) => Ok(()),
        (v, "" | KIND) if v == own => Ok(()),
        ("admission.k8s.io/v1" | "admission.k8s.io/v1beta1", KIND) => {
            let other = if version == Version::V1 { "v1beta1" } else { "v1" };
            Err(format!(
                "converting ({other}.{KIND}) to ({}.{KIND}): unknown conversion",
                version.name()
            ))
        }
        (v, k) => Err(format!(
            "no kind {} is registered for version {} in scheme \"k8s.io/apiserver/pkg/util/webhook/webhook.go\"",
            quote(k),
            quote(v)
        )),
    }
}

fn typed(response: &Map) -> Result<Answer, String> {
    let text = |key: &str| match response.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.to_string()),
        Some(other) => Err(mistyped(key, other, "string")),
    };
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
            .collect::<Result<_, String>>()?,
        Some(other) => return Err(mistyped("auditAnnotations", other, "map[string]string")),
    };
    Ok(Answer {
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

/// The bytes of a patch: base64, or a list of numbers, which Go's decoder accepts for `[]byte` and kube-rs sends.
fn patch(given: Option<&Value>) -> Result<Vec<u8>, String> {
    let byte = |v: &Value| match v {
        Value::Null => Ok(0),
        Value::Int(n) => u8::try_from(*n).map_err(|_| mistyped_as("patch", &format!("number {n}"), "uint8")),
        other => Err(mistyped("patch", other, "uint8")),
    };
    match given {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => decode::base64(text).map_err(|e| e.to_string()),
        Some(Value::Array(bytes)) => bytes.iter().map(byte).collect(),
        Some(other) => Err(mistyped("patch", other, "[]uint8")),
    }
}

/// The known members of a Status.
fn status(given: Option<&Value>) -> Result<Option<Value>, String> {
    let mut status = match given {
        None | Some(Value::Null) => return Ok(None),
        Some(status @ Value::Object(_)) => status.clone(),
        Some(other) => return Err(mistyped("status", other, "v1.Status")),
    };
    let definition = by_gvk("", "v1", "Status");
    if let Some(definition) = definition {
        decode::normalize(definition, &mut status).map_err(|e| e.to_string())?;
    }
    Ok(Some(status))
}

fn check(
    review: &Value,
    response: &Map,
    uid: &str,
    mutating: bool,
    answer: &Answer,
    patch_type: Option<&str>,
) -> Result<(), String> {
    let got = response.str("uid");
    if got != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(got)));
    }
    let (api_version, kind) = (review.api_version(), ObjectView::kind(review));
    if api_version != "admission.k8s.io/v1" || kind != KIND {
        let gv = GroupVersion::parse(api_version).unwrap_or_default();
        let got = format!("{}/{}, Kind={kind}", gv.group, gv.version);
        return Err(format!(
            "expected webhook response of {GROUP}/v1, Kind={KIND}, got {got}"
        ));
    }
    let why = match (mutating, answer.patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, _, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, _, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

const fn type_name(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        _ => "number",
    }
}

fn mistyped(field: &str, v: &Value, wanted: &str) -> String {
    mistyped_as(field, type_name(v), wanted)
}

fn mistyped_as(field: &str, got: &str, wanted: &str) -> String {
    let field = if field == "response" {
        "AdmissionReview.response".to_owned()
    } else {
        format!("AdmissionResponse.response.{field}")
    };
    format!("json: cannot unmarshal {got} into Go struct field {field} of type {wanted}")
}

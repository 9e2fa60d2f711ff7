//! ConversionReviews: encodes the request and validates the response. No I/O.

use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldPath, aggregate, cut, quote};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::patch::go_type;
use crate::apimachinery::validation::meta::{validate_annotations, validate_labels};
use crate::apimachinery::value::Value;
use crate::client::webhook::ReviewVersion;

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";

/// Why a response has no converted objects. Messages as upstream words them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResponse {
    /// The body is not JSON.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(#[source] json::Error),
    /// The response is a review of the other version.
    #[error("converting ({got}.{KIND}) to ({wanted}.{KIND}): unknown conversion")]
    OtherVersion {
        /// The version of the response.
        got: &'static str,
        /// The version of the request.
        wanted: &'static str,
    },
    /// The response is an object of another kind.
    #[error("no kind {} is registered for version {}", quote(.kind), quote(.version))]
    UnknownKind {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        version: String,
    },
    /// The response has no `apiVersion` or no `kind`.
    #[error("expected webhook response of {GROUP}/v1, Kind={KIND}, got {group}/{version}, Kind={kind}")]
    Untyped {
        /// The group of its `apiVersion`.
        group: String,
        /// The version of its `apiVersion`.
        version: String,
        /// Its `kind`.
        kind: String,
    },
    /// `response` is missing.
    #[error("no response provided")]
    NoResponse,
    /// The response answers another request.
    #[error("expected response.uid={}, got {}", quote(.wanted), quote(.got))]
    Uid {
        /// The UID of the request.
        wanted: String,
        /// The UID of the response.
        got: String,
    },
    /// The webhook reports a failure, without a message.
    #[error("response.result.status was '{0}', not 'Success'")]
    Failed(String),
    /// The webhook reports a failure, with this message.
    #[error("{0}")]
    FailedWith(String),
    /// The converted objects are not a list.
    #[error("response.convertedObjects is not a list")]
    NotList,
}

/// Why a converted object is not accepted, with upstream's message; the caller prepends the object's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unacceptable {
    /// Not an object with a kind.
    Undecodable(String),
    /// Another version or kind than requested.
    Type(String),
    /// Another name, namespace or UID than the original.
    Identity(String),
    /// Metadata that is no valid ObjectMeta.
    Metadata(String),
}

/// The body of a request for `objects`, which are encoded. Upstream sends an empty response along.
pub(crate) fn request(version: ReviewVersion, uid: &str, desired: &str, objects: &[Vec<u8>]) -> Vec<u8> {
    // Written by hand: the objects are encoded already, and may be megabytes.
    let mut out = Vec::with_capacity(256 + objects.iter().map(|o| o.len() + 1).sum::<usize>());
    out.extend_from_slice(
        format!(
            "{{\"kind\":\"{KIND}\",\"apiVersion\":\"{GROUP}/{}\",\"request\":{{\"uid\":\"{uid}\",\"desiredAPIVersion\":",
            version.name()
        )
        .as_bytes(),
    );
    // Only the desired version is a client's text; the UID is our own.
    json::encode_str(desired, &mut out);
    out.extend_from_slice(b",\"objects\":[");
    for (i, object) in objects.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(object);
    }
    out.extend_from_slice(b"]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\"result\":{\"metadata\":{}}}}\n");
    out
}

/// The converted objects of a response.
///
/// # Errors
/// `InvalidResponse`.
pub fn converted_objects(version: ReviewVersion, uid: &str, body: &[u8]) -> Result<Vec<Value>, InvalidResponse> {
    let mut review = json::decode(body).map_err(InvalidResponse::Json)?;
    check_type(version, &review)?;
    let response = review.get("response");
    if response.is_null() {
        return Err(InvalidResponse::NoResponse);
    }
    let got = response.str_at(&["uid"]);
    // v1beta1 webhooks did not have to echo the UID.
    if version == ReviewVersion::V1 && got != uid {
        return Err(InvalidResponse::Uid {
            wanted: uid.to_owned(),
            got: got.to_owned(),
        });
    }
    let result = response.get("result");
    let status = result.str_at(&["status"]);
    if status != "Success" {
        return Err(match result.str_at(&["message"]) {
            "" => InvalidResponse::Failed(status.to_owned()),
            message => InvalidResponse::FailedWith(message.to_owned()),
        });
    }
    match review.unset(&["response", "convertedObjects"]) {
        Some(Value::Array(objects)) => Ok(objects),
        // As in upstream, an absent list is an empty one; the caller compares the counts.
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(_) => Err(InvalidResponse::NotList),
    }
}

/// Checks the kind of a response as upstream's decoder does, which accepts missing members.
fn check_type(version: ReviewVersion, review: &Value) -> Result<(), InvalidResponse> {
    let (api_version, kind) = (review.api_version(), review.str_at(&["kind"]));
    let wanted = format!("{GROUP}/{}", version.name());
    let other = version.other();
    if kind == KIND && api_version == format!("{GROUP}/{}", other.name()) {
        return Err(InvalidResponse::OtherVersion {
            got: other.name(),
            wanted: version.name(),
        });
    }
    // Missing members pass here, since upstream's decoder defaults them.
    let differs = |got: &str, wanted: &str| !got.is_empty() && got != wanted;
    if differs(api_version, &wanted) || differs(kind, KIND) {
        let shown = if api_version.is_empty() { &wanted } else { api_version };
        return Err(InvalidResponse::UnknownKind {
            kind: kind.to_owned(),
            version: shown.to_owned(),
        });
    }
    // v1 requires both, which upstream checks after decoding.
    if version == ReviewVersion::V1 && (api_version.is_empty() || kind.is_empty()) {
        let gv = GroupVersion::parse(api_version).unwrap_or_default();
        return Err(InvalidResponse::Untyped {
            group: gv.group.to_string(),
            version: gv.version.to_string(),
            kind: kind.to_owned(),
        });
    }
    Ok(())
}

/// Checks a converted object against the original, and returns it with the original's metadata. Only labels
/// and annotations are taken from the converted one.
///
/// # Errors
/// `Unacceptable`.
pub fn accept(original: &Value, mut converted: Value, desired: &str) -> Result<Value, Unacceptable> {
    let wrong = |why: String| Err(Unacceptable::Type(why));
    if let Some(why) = undecodable(&converted) {
        return Err(Unacceptable::Undecodable(why));
    }
    let got = converted.api_version();
    if got != desired {
        return wrong(format!("invalid groupVersion (expected {desired}, received {got})"));
    }
    let (expected, got) = (original.str_at(&["kind"]), converted.str_at(&["kind"]));
    if expected != got {
        return wrong(format!("invalid kind (expected {expected}, received {got})"));
    }
    // Read from the objects rather than the request: a webhook must not be able to rename what it converts.
    for (what, key) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (before, after) = (original.meta(key), converted.meta(key));
        if before != after {
            let why = format!("must have the same {what}: {before} != {after}");
            return Err(Unacceptable::Identity(why));
        }
    }
    let metadata = restored(original.get("metadata"), &converted)?;
    converted.set(&["metadata"], metadata);
    Ok(converted)
}

/// Why upstream cannot decode a converted object.
fn undecodable(converted: &Value) -> Option<String> {
    /// Maximum length of the object in the message, in bytes.
    const SHOWN: usize = 4 * 1024;
    let found = match converted {
        Value::Object(_) if !converted.str_at(&["kind"]).is_empty() => return None,
        Value::Object(_) => {
            let shown = cut(json::to_string(converted), SHOWN);
            return Some(format!("Object 'Kind' is missing in '{shown}'"));
        }
        // Go leaves a null out of the raw objects.
        Value::Null => return Some("unexpected end of JSON input".to_owned()),
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Some(format!(
        "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    ))
}

/// The original's metadata with the labels and annotations of the converted object.
fn restored(original: &Value, converted: &Value) -> Result<Value, Unacceptable> {
    let wrong = |why: String| Err(Unacceptable::Metadata(why));
    let Some(given) = converted.as_object().and_then(|m| m.get("metadata")) else {
        return wrong("missing metadata in converted object".to_owned());
    };
    if given.as_object().is_none() {
        return wrong(format!(
            "invalid metadata of type {} in converted object",
            go_type(given)
        ));
    }
    // Everything but labels and annotations stays, also managed fields, which webhooks see but may not change.
    let mut metadata = original.clone();
    for part in ["labels", "annotations"] {
        let (before, after) = (original.get(part), given.get(part));
        if after.is_null() {
            metadata.unset(&[part]);
            continue;
        }
        let Some(pairs) = after.as_object() else {
            return wrong(format!(
                "invalid metadata.{part} of type {} in converted object",
                go_type(after)
            ));
        };
        if let Some((key, value)) = pairs.iter().find(|(_, value)| value.as_str().is_none()) {
            return wrong(format!(
                "metadata.{part}[{key}] must be a string, but is {} in converted object",
                go_type(value)
            ));
        }
        // Unchanged values are not validated: they may predate today's rules.
        if before != after {
            let mut errors = ErrorList::new();
            match part {
                "labels" => validate_labels(after, &FieldPath::new("metadata").child("labels"), &mut errors),
                // Upstream's path lacks the last letter.
                _ => validate_annotations(after, &FieldPath::new("metadata").child("annotation"), &mut errors),
            }
            if !errors.is_empty() {
                return wrong(aggregate(&errors));
            }
        }
        metadata.set(&[part], after.clone());
    }
    Ok(metadata)
}

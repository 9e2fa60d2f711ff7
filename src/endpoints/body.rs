//! Request bodies: size limit, media type and decoding. [`type_meta`] checks kind and version, which precede the
//! schema.
//!
//! Start at [`read()`], [`body_type`] and `decode`. Type checks against the schema are the registry's.

mod known;
mod other_version;
mod type_meta;

pub(crate) use known::INTERNAL_VERSION;
pub(crate) use other_version::{other_version, unknown_to_internal};
pub(crate) use type_meta::{
    cannot_be_handled, foreign, foreign_to_scales, is_versionless, no_kind, no_version, not_registered, read_type_meta,
};

use super::negotiate::Codecs;
use crate::api;
use crate::apimachinery::codec::budget::DecodeBudget;
use crate::apimachinery::codec::hex;
use crate::apimachinery::codec::{cbor, json, protobuf, yaml};
use crate::apimachinery::field::quote;
use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::request::Body;
use crate::request::body::CollectError;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use std::borrow::Cow;
use type_meta::{Mismatch, check_kind, check_type_meta};

/// Maximum size of a request body in bytes (upstream: `MaxRequestBodyBytes`, twice etcd's default request limit).
pub(crate) const LIMIT: usize = 3 * 1024 * 1024;

/// Why a body is not a document of its encoding. Messages as upstream words them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(#[source] json::Error),
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    #[error(transparent)]
    Cbor(#[from] cbor::Error),
    #[error(transparent)]
    Envelope(#[from] protobuf::OpenError),
    #[error(transparent)]
    Message(#[from] api::decode::DecodeError),
}

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// JSON, also the default without a `Content-Type`.
    Json,
    Yaml,
    /// Kubernetes' protobuf envelope.
    Protobuf,
    /// CBOR, if its feature gate is on.
    Cbor,
}

/// Reads the whole body into memory.
///
/// # Errors
/// 413 beyond [`LIMIT`]; 400 if the client aborts.
pub(crate) async fn read(body: Body) -> Result<Bytes> {
    body.collect(LIMIT).await.map_err(|e| match e {
        CollectError::TooLarge(limit) => Status::too_large(&format!("limit is {limit}")),
        CollectError::Read(e) => Status::bad_request(e.to_string()),
    })
}

/// The media type of the body in lower case, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let given = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    given.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// The encoding of the body of a create, update or delete. `messages` is set if the kind has a protobuf
/// encoding.
///
/// # Errors
/// 415 for an unsupported or malformed media type.
pub(crate) fn body_type(headers: &HeaderMap, messages: bool, codecs: Codecs) -> Result<BodyType> {
    let given = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let wrong = || Status::unsupported_media_type(codecs.object_types(messages));
    // Go's parser rejects the whole header if a part is missing; one semicolon may end it.
    let parts = given.trim_end();
    let mut parts = parts.strip_suffix(';').unwrap_or(parts).split(';');
    let nameless = parts.next().is_some_and(|name| name.trim().is_empty()) && !given.is_empty();
    let incomplete = |parameter: &str| {
        let sides = parameter.split_once('=');
        sides.is_none_or(|(name, value)| name.trim().is_empty() || value.trim().is_empty())
    };
    if nameless || parts.any(incomplete) {
        return Err(wrong());
    }
    // Upstream takes a missing `Content-Type` for JSON (`NegotiateInputSerializer`).
    match media_type(headers).as_str() {
        "" | "application/json" => Ok(BodyType::Json),
        "application/yaml" => Ok(BodyType::Yaml),
        protobuf::CONTENT_TYPE if messages => Ok(BodyType::Protobuf),
        cbor::CONTENT_TYPE if codecs.cbor => Ok(BodyType::Cbor),
        _ => Err(wrong()),
    }
}

/// A decoded document and its duplicate keys, formatted as strict decoding errors.
pub(crate) struct Document {
    pub value: Value,
    pub duplicates: Vec<String>,
    /// The error to report if the value holds numbers that no double represents; see
    /// [`json::decode_with_huge_numbers`].
    pub too_large: Option<Status>,
}

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        Self {
            value,
            duplicates: Vec::new(),
            too_large: None,
        }
    }
}

/// Decodes a document of any kind. The error is the decoder's message.
pub(crate) fn parse(bytes: &[u8], body_type: BodyType) -> std::result::Result<Document, ParseError> {
    match body_type {
        BodyType::Json => {
            let (value, notes) = json::decode_with_duplicates(bytes).map_err(ParseError::Json)?;
            Ok(json_document(value, &notes))
        }
        BodyType::Yaml => Ok(parse_yaml(bytes)?),
        BodyType::Cbor => Ok(Document::from(cbor::decode(bytes)?)),
        BodyType::Protobuf => {
            let unknown = protobuf::open(bytes)?;
            let (api_version, kind) = (&*unknown.api_version, &*unknown.kind);
            let value = match api::protobuf::definition(api_version, kind) {
                Some(def) => {
                    let mut budget = DecodeBudget::of_body(bytes.len());
                    api::protobuf::decode_with_budget(def, api_version, kind, unknown.raw, &mut budget)?
                }
                // Without a schema the message cannot be decoded; kind and version suffice for the error about them.
                None => type_meta(&unknown),
            };
            Ok(Document::from(value))
        }
    }
}

fn json_document(value: Value, notes: &json::DecodeNotes) -> Document {
    let duplicates = notes.duplicates.iter().map(|d| format!("duplicate field {}", quote(d)));
    Document {
        duplicates: duplicates.collect(),
        ..Document::from(value)
    }
}

/// Decodes the body of a delete: `DeleteOptions` of any group, also without an explicit kind.
pub(crate) fn parse_delete_options(bytes: &[u8], body_type: BodyType) -> std::result::Result<Document, ParseError> {
    if body_type != BodyType::Protobuf {
        return parse(bytes, body_type);
    }
    let unknown = protobuf::open(bytes)?;
    // The kind alone is an error, which needs no decoded message.
    if !matches!(&*unknown.kind, "" | "DeleteOptions") {
        return Ok(Document::from(type_meta(&unknown)));
    }
    // `DeleteOptions` is registered in every group, so the envelope's group does not matter.
    let def = api::by_gvk("", "v1", "DeleteOptions").expect("the schema table has the options");
    let mut budget = DecodeBudget::of_body(bytes.len());
    let value = api::protobuf::decode_message_within(def, unknown.raw, &mut budget)?;
    Ok(Document::from(value))
}

/// The `apiVersion` and `kind` of an envelope, as far as they are set.
fn type_meta(unknown: &protobuf::Unknown<'_>) -> Value {
    let type_meta = [("apiVersion", &unknown.api_version), ("kind", &unknown.kind)];
    let type_meta = type_meta.into_iter().filter(|(_, v)| !v.is_empty());
    Value::Object(type_meta.map(|(k, v)| (k, &**v)).collect())
}

/// Decodes YAML (of which JSON is a subset). Duplicates have the form `line 4: key "x" already set in map`;
/// the error is the decoder's message.
pub(crate) fn parse_yaml(bytes: &[u8]) -> std::result::Result<Document, yaml::Error> {
    let (value, duplicates) = yaml::decode_with_duplicates(bytes)?;
    Ok(Document {
        duplicates,
        ..Document::from(value)
    })
}

/// Combines the duplicate keys of a YAML document into one strict decoding error.
pub(crate) fn yaml_finding(duplicates: &[String]) -> String {
    let lines: String = duplicates.iter().map(|d| format!("\n  {d}")).collect();
    format!("error converting YAML to JSON: yaml: unmarshal errors:{lines}")
}

/// How the `kind` and `apiVersion` of a body are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypeCheck {
    /// For built-in kinds: both must be the endpoint's; missing ones are filled in.
    Filled,
    /// For custom resources: neither may be missing, and the version must be the endpoint's. The validation of the
    /// object compares the kind.
    Required,
}

/// Decodes an object of kind `expected`.
///
/// # Errors
/// 400 with upstream's message.
pub(crate) fn decode(
    bytes: &[u8],
    body_type: BodyType,
    expected: &GroupVersionKind,
    types: TypeCheck,
) -> Result<Document> {
    let unrecognized = |text: &str| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {text} ({})",
            expected.kind,
            summary(bytes)
        ))
    };
    let check = |value: &mut Value| {
        let checked = match types {
            TypeCheck::Filled => check_kind(value, expected),
            TypeCheck::Required => check_type_meta(value, expected),
        };
        checked.map_err(|e| match e {
            Mismatch::NoKind => unrecognized(&no_kind(&quoted(bytes, body_type, value))),
            Mismatch::Unrecognized(why) => unrecognized(&why.to_string()),
            Mismatch::NoVersion(given) => {
                cannot_be_handled(&given, expected, &no_version(&quoted(bytes, body_type, value)))
            }
            Mismatch::Kind(given) => mismatch(&given, expected, bytes, body_type, types),
        })
    };
    if body_type == BodyType::Protobuf {
        // Check the kind in the envelope first: it determines how to decode the message.
        let unknown = protobuf::open(bytes).map_err(|e| unrecognized(&e.to_string()))?;
        let mut given = type_meta(&unknown);
        // Upstream takes the endpoint's version for one that is missing or malformed, whatever the group (`protobuf.go`).
        if GroupVersion::parse(&unknown.api_version).is_none_or(|v| v.version.is_empty()) {
            given.unset(&["apiVersion"]);
        }
        check(&mut given)?;
        let api_version = expected.api_version();
        let def = api::protobuf::definition(&api_version, &expected.kind)
            .ok_or_else(|| Status::unsupported_media_type(&super::negotiate::OBJECT_TYPES[..2]))?;
        let mut budget = DecodeBudget::of_body(bytes.len());
        let value = api::protobuf::decode_with_budget(def, &api_version, &expected.kind, unknown.raw, &mut budget)
            .map_err(|e| cannot_be_handled(expected, expected, &e.0))?;
        return Ok(Document::from(value));
    }
    let mut document = match parse(bytes, body_type) {
        Ok(document) => document,
        Err(e) => {
            let refused = unrecognized(&e.to_string());
            // Upstream decodes into typed fields, so a number that no double represents is an error only where the
            // type has a number. The caller decides once unknown fields are dropped.
            let read_again = match e {
                ParseError::Json(_) => json::decode_with_huge_numbers(bytes).ok(),
                _ => None,
            };
            let Some((value, notes)) = read_again else {
                return Err(refused);
            };
            Document {
                too_large: Some(refused),
                ..json_document(value, &notes)
            }
        }
    };
    check(&mut document.value)?;
    Ok(document)
}

/// The error of Go's decoder for a JSON or YAML body that does not fit the type.
pub(crate) fn explained(def: &'static api::TypeDef, bytes: &[u8], body_type: BodyType) -> Option<String> {
    let error = match body_type {
        BodyType::Json => api::decode::explain(def, bytes),
        // Upstream converts YAML to JSON with sorted keys first.
        BodyType::Yaml => api::decode::explain(def, &json::to_vec(&parse(bytes, body_type).ok()?.value)),
        BodyType::Cbor | BodyType::Protobuf => None,
    };
    error.map(|e| e.0)
}

/// The error for a body of another kind or version than the expected one.
fn mismatch(
    given: &GroupVersionKind,
    expected: &GroupVersionKind,
    bytes: &[u8],
    body_type: BodyType,
    types: TypeCheck,
) -> Status {
    // Upstream decodes objects of custom kinds in any version.
    let why = match types == TypeCheck::Required || (given.kind == expected.kind && !known::is_known(expected)) {
        true => None,
        false => foreign(given, expected, |def| explained(def, bytes, body_type)),
    };
    match why {
        Some(text) => cannot_be_handled(given, expected, &text),
        None => Status::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            given.api_version(),
            expected.api_version()
        )),
    }
}

/// A body as the errors about a missing kind or version quote it. Only JSON is quoted as it was sent: upstream converts
/// YAML before it reads the kind. (CBOR it prints in its diagnostic notation, which resembles JSON.)
pub(crate) fn quoted<'a>(bytes: &'a [u8], body_type: BodyType, decoded: &Value) -> Cow<'a, str> {
    match body_type {
        BodyType::Json => String::from_utf8_lossy(bytes),
        _ => Cow::Owned(String::from_utf8_lossy(&json::to_vec(decoded)).into_owned()),
    }
}

/// The start of a body, as quoted in errors.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let head = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        // As upstream, a body that looks like JSON is quoted unchanged, anything else in hexadecimal.
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => format!("{}{more}", hex(head)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_media_types_are_unsupported() {
        let code = |given: &'static str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static(given))]);
            let body = body_type(&headers, true, Codecs { cbor: false });
            body.map_or_else(|e| e.code, |_| 200)
        };
        for fine in [
            "",
            "application/json",
            "application/json;",
            "application/yaml; a=b; ",
            "APPLICATION/JSON;a=b",
        ] {
            assert_eq!(code(fine), 200, "{fine}");
        }
        for wrong in [
            ";",
            "application/json;;",
            "application/json;a",
            "application/json;a=",
            "application/json;=b;v=v1",
        ] {
            assert_eq!(code(wrong), 415, "{wrong}");
        }
    }

    fn fails(body: &str) -> String {
        let expected = GroupVersionKind::new("", "v1", "ConfigMap");
        match decode(body.as_bytes(), BodyType::Json, &expected, TypeCheck::Filled) {
            Ok(d) => panic!("decoded {:?}", d.value),
            Err(e) => e.message,
        }
    }

    #[test]
    fn removed_versions_are_reported_as_version_mismatches() {
        let message = |given: [&str; 3], expected: [&str; 3]| {
            let kind = |[g, v, k]: [&str; 3]| GroupVersionKind::new(g, v, k);
            mismatch(&kind(given), &kind(expected), b"{}", BodyType::Json, TypeCheck::Filled).message
        };
        let deployment = ["apps", "v1", "Deployment"];
        for gone in [
            ["apps", "v1beta2", "Deployment"],
            ["extensions", "v1beta1", "Deployment"],
        ] {
            assert_eq!(
                message(gone, deployment),
                format!(
                    "the API version in the data ({}/{}) does not match the expected API version (apps/v1)",
                    gone[0], gone[1]
                )
            );
        }
        let scale = message(["extensions", "v1beta1", "Scale"], ["autoscaling", "v1", "Scale"]);
        assert!(scale.starts_with("the API version in the data (extensions/v1beta1) "));
        let events = message(["", "v1", "Event"], ["events.k8s.io", "v1", "Event"]);
        assert!(events.starts_with("the API version in the data (v1) "));
        let eviction = message(["policy", "v1", "Eviction"], ["events.k8s.io", "v1", "Event"]);
        assert!(eviction.ends_with("converting (v1.Eviction) to (core.Event): unknown conversion"));
        let never = message(["apps", "v1beta3", "Deployment"], deployment);
        assert!(never.contains("no kind \"Deployment\" is registered for version \"apps/v1beta3\""));
        let service = ["apiregistration.k8s.io", "v1", "APIService"];
        assert!(message(["x", "v1", "APIService"], service).ends_with("pkg/apiserver/scheme/scheme.go:28\""));
    }

    #[test]
    fn documents_without_a_version_are_quoted_as_json() {
        let expected = GroupVersionKind::new("apps", "v1", "Deployment");
        let fails = |body: &str, body_type| match decode(body.as_bytes(), body_type, &expected, TypeCheck::Filled) {
            Ok(d) => panic!("decoded {:?}", d.value),
            Err(e) => e.message,
        };
        let quoting = |document: &str| {
            let why = no_version(document);
            format!("Deployment in version \"\" cannot be handled as a Deployment: {why}")
        };
        let sent = r#"{ "kind": "Deployment", "apiVersion": "example.com/" }"#;
        assert_eq!(fails(sent, BodyType::Json), quoting(sent));
        let yaml = "apiVersion: example.com/\nkind: Deployment\n";
        let converted = r#"{"apiVersion":"example.com/","kind":"Deployment"}"#;
        assert_eq!(fails(yaml, BodyType::Yaml), quoting(converted));
    }

    #[test]
    fn errors_match_upstream() {
        assert_eq!(
            fails("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c3}\n"),
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse \
             error: invalid character 'a' looking for beginning of value \
             (61706956657273696f6e3a2076310a6b696e643a20436f6e6669674d6170 ...)"
        );
        assert_eq!(
            fails(r#"{"kind":"Service","apiVersion":"v1"}"#),
            "Service in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Service) to (core.ConfigMap): \
             unknown conversion"
        );
        assert_eq!(
            fails(r#"{"kind":"X"}"#),
            "X in version \"v1\" cannot be handled as a ConfigMap: no kind \"X\" is registered for version \"v1\" in \
             scheme \"pkg/api/legacyscheme/scheme.go:30\""
        );
        assert!(fails("").ends_with("unexpected end of JSON input (<empty>)"));
    }

    #[test]
    fn body_of_another_kind_is_decoded_as_that_kind_first() {
        assert_eq!(
            fails(r#"{"kind":"Pod","apiVersion":"v1","spec":5}"#),
            "Pod in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field \
             Pod.spec of type v1.PodSpec"
        );
        assert!(fails(r#"{"kind":"List","apiVersion":"v1"}"#).ends_with("(core.ConfigMap): unknown conversion"));
        let foreign = r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":5}"#;
        assert!(fails(foreign).contains("no kind \"CustomResourceDefinition\" is registered"));
        // The unknown member is of no interest: the kinds do not convert anyway.
        assert!(fails(r#"{"kind":"Pod","apiVersion":"v1","x":5}"#).ends_with("(core.ConfigMap): unknown conversion"));
    }

    #[test]
    fn custom_resources_must_name_their_kind_and_version() {
        let expected = GroupVersionKind::new("example.com", "v1", "Bar");
        let of = |body: &str| decode(body.as_bytes(), BodyType::Json, &expected, TypeCheck::Required);
        let fails = |body: &str| of(body).map_or_else(|e| e.message, |d| panic!("decoded {:?}", d.value));
        let versionless = "the API version in the data () does not match the expected API version (example.com/v1)";
        assert_eq!(fails(r#"{"kind":"Bar"}"#), versionless);
        assert_eq!(fails(r#"{"kind":"X"}"#), versionless);
        let other = "the API version in the data (v1) does not match the expected API version (example.com/v1)";
        assert_eq!(fails(r#"{"kind":"Pod","apiVersion":"v1","spec":5}"#), other);
        assert_eq!(
            fails(r#"{"x":{},"apiVersion":"example.com/v1"}"#),
            "the object provided is unrecognized (must be of type Bar): Object 'Kind' is missing in \
             '{\"x\":{},\"apiVersion\":\"example.com/v1\"}' ({\"x\":{},\"apiVersion\":\"example. ...)"
        );
        // Another kind is refused by validation.
        let decoded = of(r#"{"kind":"X","apiVersion":"example.com/v1"}"#).unwrap();
        assert_eq!(decoded.value.str_at(&["kind"]), "X");
    }

    #[test]
    fn internal_versions_are_named_with_their_group() {
        let known = fails(r#"{"kind":"Deployment","apiVersion":"apps/__internal"}"#);
        assert!(
            known.ends_with("converting (apps.Deployment) to (core.ConfigMap): unknown conversion"),
            "{known}"
        );
        let message = fails(r#"{"kind":"X","apiVersion":"apps/__internal"}"#);
        let want = "no kind \"X\" is registered for the internal version of group \"apps\" in scheme ";
        assert!(message.contains(want), "{message}");
    }

    #[test]
    fn missing_kind_and_version_are_filled_in() {
        let expected = GroupVersionKind::new("apps", "v1", "Deployment");
        let d = decode(b"{}", BodyType::Json, &expected, TypeCheck::Filled).map(|d| d.value);
        assert_eq!(d, Ok(crate::json!({"apiVersion": "apps/v1", "kind": "Deployment"})));
    }

    #[test]
    fn protobuf_bodies_decode_by_the_kind_of_their_envelope() {
        let expected = GroupVersionKind::new("", "v1", "ConfigMap");
        let read = |bytes: &[u8]| decode(bytes, BodyType::Protobuf, &expected, TypeCheck::Filled).map(|d| d.value);
        let config_map = crate::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}});
        let mut decoded = read(&api::protobuf::encode(&config_map).unwrap()).unwrap();
        decoded.unset(&["metadata"]);
        assert_eq!(decoded, config_map);
        let secret = api::protobuf::encode(&crate::json!({"apiVersion": "v1", "kind": "Secret"})).unwrap();
        assert!(
            read(&secret)
                .unwrap_err()
                .message
                .starts_with("Secret in version \"v1\" cannot be handled as")
        );
        assert_eq!(
            read(b"not protobuf").unwrap_err().message,
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a \
             protobuf message, expected prefix [107 56 115 0] (6e6f742070726f746f627566)"
        );
        // An envelope without a kind is taken for the expected one.
        assert_eq!(read(b"k8s\0\x12\0").unwrap().str_at(&["kind"]), "ConfigMap");
        let versionless = read(b"k8s\0\x0a\x0e\x0a\x0cexample.com/\x12\0").unwrap();
        assert_eq!(versionless.str_at(&["apiVersion"]), "v1");
    }

    #[test]
    fn delete_options_decode_from_protobuf() {
        let options = crate::json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"});
        let bytes = api::protobuf::encode(&options).unwrap();
        let read = parse_delete_options(&bytes, BodyType::Protobuf)
            .map(|d| d.value)
            .unwrap();
        assert_eq!(read, crate::json!({"propagationPolicy": "Orphan"}));
    }
}

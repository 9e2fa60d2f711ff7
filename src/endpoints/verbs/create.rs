//! POST: creates an object in a collection or through a subresource, or evaluates a review.
//!
//! Entry point: [`create`]. [`decode`] and [`normalize`] also serve the other write verbs. Creates in a
//! collection continue in the registry.

use super::super::call::Call;
use super::super::options::{FieldValidation, WriteQuery};
use super::super::{body, finish};
use super::Reply;
use super::VerbResult;
use crate::api::TypeDef;
use crate::api::decode::{quantities_as_written, quantities_of};
use crate::apimachinery::codec::{json, yaml};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::resource::Backing;
use crate::registry::write::WriteOptions;
use crate::registry::{ResultObject, SubresourceBehaviour};
use crate::request::Body;
use std::sync::Arc;

pub(crate) async fn create(mut call: Call, req_body: Body) -> VerbResult {
    if !call.subresource().is_empty() {
        call.check_name()?;
    }
    let negotiated = call.negotiate(call.offer())?;
    // As in upstream's `handlers/create.go`, 415 precedes reading the body; update reads the body first.
    let body_type = body::body_type(&call.parts.headers, call.definition().is_some(), call.codecs)?;
    let bytes = body::read(req_body).await?;
    let options = WriteQuery::parse(&call.query, "CreateOptions", false)?;
    call.cx.dry_run = options.dry_run;
    let mut object = decode(&call, &bytes, body_type, &options)?;
    call.check_namespace(&mut object)?;
    note(&call, &object);

    // The body is read and decoded before the task is detached: a client that disconnects until then leaves no
    // trace.
    let raw = Arc::new(options.to_value("CreateOptions", call.query.text("fieldValidation")));
    let manager = options.manager(&call.parts.headers);
    let (reply, late) = (Reply::to(&call, negotiated), call.late.clone());
    let (code, written) = finish::finish(run(call, object, raw, manager), late).await?;
    reply.object(code, written).await
}

async fn run(call: Call, object: Value, raw: Arc<Value>, manager: String) -> Result<(u16, ResultObject)> {
    let options = WriteOptions {
        manager: Some(manager),
        options: raw,
        ..WriteOptions::default()
    };
    if let Some(sub) = call.route.subresource().cloned() {
        let SubresourceBehaviour::Custom(handler) = sub.behaviour else {
            return Err(Status::method_not_supported(
                &call.resource().group_resource(),
                "create",
            ));
        };
        let options = WriteOptions {
            subresource: call.subresource().to_owned(),
            kind: Some(call.kind()),
            ..options
        };
        let created = call
            .store()
            .create_through(&call.cx, call.name(), &*handler, object, &options);
        return Ok((201, answered(created.await?)));
    }
    // Reviews are evaluated and never stored.
    if let Backing::CreateOnly(handler) = &call.resource().backing {
        let answer = call.store().review(&call.cx, &**handler, object, &options).await?;
        return Ok((201, answered(answer)));
    }
    Ok((201, call.store().create(&call.cx, object, &options).await?))
}

/// The response of a handler to a create. Like upstream, sets code 201 in a Status without a code.
fn answered(mut answer: Value) -> ResultObject {
    if ObjectView::kind(&answer) == "Status" && answer.get("code").is_null() {
        answer.set(&["code"], 201i64);
    }
    ResultObject::Tree(answer)
}

/// Passes the request's object to the audit event, with defaults set, because upstream audits it after
/// decoding.
pub(crate) fn note(call: &Call, object: &Value) {
    let trail = &call.cx.audit;
    // Defaulting copies the object, so it is only done at audit levels that record it. A subresource of another
    // kind has no defaults of the parent's strategy.
    if trail.wants_objects() && call.kind() == call.resource().gvk() {
        let mut whole = object.clone();
        call.resource().strategy.default(&mut whole);
        trail.request_object(&whole);
    } else {
        trail.request_object(object);
    }
}

/// Upstream's message for every body that does not decode to the `Scale` of a custom resource: the decoder looks up
/// the name of the Go type in a scheme that does not contain it (`customresource_handler.go`).
const NO_SCALE: &str = "no kind is registered for the type v1.Scale in scheme \
                        \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"";

/// Decodes the body of a create or update into the endpoint's kind, applying `fieldValidation`.
pub(crate) fn decode(call: &Call, bytes: &[u8], body_type: body::BodyType, options: &WriteQuery) -> Result<Value> {
    let decoded = decode_body(call, bytes, body_type, options);
    // `scale` of a custom resource: upstream's decoder fails for every reason with the same message.
    match call.resource().unstructured && !takes_custom_resources(call) {
        true => decoded.map_err(|_| Status::bad_request(NO_SCALE)),
        false => decoded,
    }
}

fn decode_body(call: &Call, bytes: &[u8], body_type: body::BodyType, options: &WriteQuery) -> Result<Value> {
    let expected = call.kind();
    let body::Document {
        mut value,
        duplicates,
        too_large,
    } = match body::decode(bytes, body_type, &expected, type_check(call)) {
        // Eviction is the only endpoint that accepts two versions of its kind. If the older version does not fit
        // either, the first error is returned.
        Err(s) if &*expected.kind == "Eviction" => body::decode(
            bytes,
            body_type,
            &{
                let mut older = expected.clone();
                older.version = "v1beta1".into();
                older
            },
            body::TypeCheck::Filled,
        )
        .map_err(|_| s)?,
        other => other.map_err(|refused| {
            let strict = check_other_version(call, bytes, body_type, options);
            let nameless = || leniently_without_kind(call, bytes, body_type, options);
            strict.err().or_else(nameless).unwrap_or(refused)
        })?,
    };
    let given = value.gvk();
    // YAML is not affected: upstream converts it to JSON first, which drops repeated keys.
    let is_repeated = body_type == body::BodyType::Json && !duplicates.is_empty();
    let mut findings = repeated(duplicates, body_type, options);
    let refused = |text: &str| body::cannot_be_handled(&given, &expected, text);
    // Go reports errors in the document's order, and of the first of several members of a name too.
    let in_document = || body::explained(call.definition()?, bytes, body_type);
    if let Some(def) = call.definition() {
        keep_digits(def, bytes, body_type, &mut value);
    }
    // Explaining the error parses the body again with Go's rules, so it is done only for refused bodies.
    findings.extend(normalize(call, &mut value, |text| {
        refused(in_document().as_deref().unwrap_or(text))
    })?);
    // A repeated member decodes twice in Go, so the first value can fail although the last one is valid and is
    // all that the tree holds.
    if too_large.is_some() || is_repeated {
        if let Some(text) = in_document() {
            return Err(refused(&text));
        }
        // Only an error if a huge number is still in the tree: those in unknown fields are dropped by Go, too.
        if let Some(e) = too_large.filter(|_| json::has_huge_numbers(&value)) {
            return Err(e);
        }
    }
    if body_type == body::BodyType::Json {
        findings = in_order(call, bytes, findings);
    }
    options.handle_strict_errors(findings, &call.cx.warnings, |text| {
        body::cannot_be_handled(&given, &expected, &text)
    })?;
    Ok(value)
}

/// Restores the digits of quantities that the body has as numbers.
fn keep_digits(def: &'static TypeDef, bytes: &[u8], body_type: body::BodyType, value: &mut Value) {
    match body_type {
        body::BodyType::Json => quantities_as_written(def, bytes, value),
        // Upstream prints YAML's numbers from their values before it reads them as quantities. Only those of its unsigned
        // integers are not in the tree.
        body::BodyType::Yaml => {
            if let Some(exact) = yaml::with_digits(bytes, value) {
                quantities_of(def, &exact, value);
            }
        }
        body::BodyType::Cbor | body::BodyType::Protobuf => {}
    }
}

/// The error of a custom resource without a kind if unknown fields are ignored: of upstream's two decoders, the lenient
/// one names the kind that it was to find.
fn leniently_without_kind(
    call: &Call,
    bytes: &[u8],
    body_type: body::BodyType,
    options: &WriteQuery,
) -> Option<Status> {
    if options.field_validation != FieldValidation::Ignore || !takes_custom_resources(call) {
        return None;
    }
    let document = body::parse(bytes, body_type).ok()?;
    let (None, version) = body::read_type_meta(&document.value).ok()? else {
        return None;
    };
    let expected = call.kind();
    let given = version
        .unwrap_or_else(|| expected.group_version())
        .with_kind(&expected.kind);
    let why = body::no_kind(&body::quoted(bytes, body_type, &document.value));
    Some(body::cannot_be_handled(&given, &expected, &why))
}

/// Applies `fieldValidation` to a refused body if it is the endpoint's kind in another version.
fn check_other_version(call: &Call, bytes: &[u8], body_type: body::BodyType, options: &WriteQuery) -> Result<()> {
    let expected = call.kind();
    let other = match type_check(call) {
        body::TypeCheck::Filled => body::other_version(bytes, body_type, &expected),
        // Custom resources are decoded in any version.
        body::TypeCheck::Required => None,
    };
    let Some(other) = other else { return Ok(()) };
    let mut findings = repeated(other.duplicates, body_type, options);
    findings.extend(other.unknown);
    if body_type == body::BodyType::Json {
        findings = in_order(call, bytes, findings);
    }
    options.handle_strict_errors(findings, &call.cx.warnings, |text| {
        body::cannot_be_handled(&other.given, &expected, &text)
    })
}

/// Repeated members as findings of strict decoding.
fn repeated(duplicates: Vec<String>, body_type: body::BodyType, options: &WriteQuery) -> Vec<String> {
    let is_strict = options.field_validation == FieldValidation::Strict;
    match body_type {
        body::BodyType::Yaml if is_strict && !duplicates.is_empty() => vec![body::yaml_finding(&duplicates)],
        _ => duplicates,
    }
}

/// True if the endpoint's bodies are custom resources, not the `Scale` of one.
fn takes_custom_resources(call: &Call) -> bool {
    let resource = call.resource();
    resource.unstructured && call.kind() == resource.gvk()
}

/// How the kind and version of the endpoint's bodies are checked.
pub(super) fn type_check(call: &Call) -> body::TypeCheck {
    match takes_custom_resources(call) {
        true => body::TypeCheck::Required,
        false => body::TypeCheck::Filled,
    }
}

/// Normalises a tree to the endpoint's kind and returns its unknown fields. `wrap` turns the decoder's
/// message into a Status.
pub(crate) fn normalize(call: &Call, value: &mut Value, wrap: impl FnOnce(&str) -> Status) -> Result<Vec<String>> {
    let resource = call.resource();
    let expected = call.kind();
    if expected == resource.gvk() {
        // An explicit empty list resets managed fields, but the schema drops empty lists: restore it.
        let at = ["metadata", "managedFields"];
        let forget = matches!(value.at(&at), Value::Array(a) if a.iter().all(Value::is_empty_value));
        let decoded = resource.schema.normalize_with_empties(value);
        let (findings, empties) = decoded.map_err(|s| reframe(s, wrap))?;
        call.cx.empties.set(empties);
        if forget {
            value.set(&at, Vec::<Value>::new());
        }
        return Ok(findings);
    }
    // A subresource with a kind of its own, such as Scale, Binding or TokenRequest.
    match crate::api::by_gvk(&expected.group, &expected.version, &expected.kind) {
        Some(def) => crate::api::decode::normalize(def, value).map_err(|e| wrap(&e.0)),
        None => Ok(Vec::new()),
    }
}

/// The findings of a JSON body in upstream's order: as they are in the body, but custom resources are pruned
/// after decoding, by sorted path.
pub(crate) fn in_order(call: &Call, body: &[u8], findings: Vec<String>) -> Vec<String> {
    match takes_custom_resources(call) {
        true => findings,
        false => crate::api::decode::sort_by_document_order(body, findings),
    }
}

/// Rewraps a schema error: takes the decoder's message out of the frame of a body error, if any, and applies
/// the caller's.
fn reframe(status: Status, wrap: impl FnOnce(&str) -> Status) -> Status {
    let framed = status.message.split_once(" cannot be handled as a ");
    let bare = framed.and_then(|(_, rest)| rest.split_once(": ")).map(|(_, text)| text);
    wrap(bare.unwrap_or(&status.message))
}

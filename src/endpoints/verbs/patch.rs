//! PATCH: JSON patch, JSON merge patch, strategic merge patch and server-side apply.
//!
//! Entry point: [`patch`]. The formats are implemented in `apimachinery::patch` and `apimachinery::apply`;
//! the retry on conflict is the registry's update loop.

use super::super::call::Call;
use super::super::negotiate::Codecs;
use super::super::options::{FieldValidation, WriteQuery};
use super::super::{body, finish};
use super::Reply;
use super::VerbResult;
use super::create::{in_order, normalize, type_check};
use super::update::{absent, custom};
use crate::api;
use crate::api::decode::{coerce, explain, has_float, quantities_as_written};
use crate::api::patch_schema::PatchType as PatchSchema;
use crate::apimachinery::apply::{self, ApplyRequest, Writer};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{FieldError, FieldPath, quote};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::patch::{Decoding, go_print, json_patch::JsonPatch, merge, shown, strategic};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::registry::schema::reset_set;
use crate::registry::write::WriteOptions;
use crate::registry::{SubresourceBehaviour, Updated};
use crate::request::Body;
use crate::tasks::compute;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use std::sync::Arc;

/// Estimated memory, in bytes, of what a JSON patch may copy (3 MiB of JSON), as a tree.
const MEMORY_OF_COPIES: usize = 24 << 20;
/// Attempts to patch a subresource that has its own handler.
const RETRIES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
    ApplyCbor,
}

impl PatchType {
    const fn is_apply(self) -> bool {
        matches!(self, Self::Apply | Self::ApplyCbor)
    }
}

fn patch_type(headers: &HeaderMap, codecs: Codecs) -> Option<PatchType> {
    let given = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    Some(match given.split(';').next().unwrap_or("").trim() {
        "application/json-patch+json" => PatchType::Json,
        "application/merge-patch+json" => PatchType::Merge,
        "application/strategic-merge-patch+json" => PatchType::Strategic,
        "application/apply-patch+yaml" => PatchType::Apply,
        "application/apply-patch+cbor" if codecs.cbor => PatchType::ApplyCbor,
        _ => return None,
    })
}

/// True if the Content-Type is that of a supported patch format.
pub(crate) fn is_known(headers: &HeaderMap, codecs: Codecs) -> bool {
    patch_type(headers, codecs).is_some()
}

pub(crate) async fn patch(mut call: Call, req_body: Body) -> VerbResult {
    let Some(patch_type) = patch_type(&call.parts.headers, call.codecs) else {
        return Err(unsupported());
    };
    // Also for their `scale`, whose kind is built in.
    if matches!(patch_type, PatchType::Strategic) && call.resource().unstructured {
        return Err(unsupported());
    }
    call.require_name()?;
    let negotiated = call.negotiate(call.offer())?;
    let bytes = body::read(req_body).await?;
    // The audit event records JSON. Bodies in other encodings are decoded for it, only if it records bodies at
    // all.
    call.cx.audit.request_patch(&bytes, |raw| match patch_type {
        PatchType::Apply => body::parse_yaml(raw).ok().map(|d| d.value),
        PatchType::ApplyCbor => body::parse(raw, body::BodyType::Cbor).ok().map(|d| d.value),
        _ => None,
    });
    let apply = patch_type.is_apply();
    let options = WriteQuery::parse(&call.query, "PatchOptions", apply)?;
    call.check_name()?;
    call.cx.dry_run = options.dry_run;
    let manager = options.manager(&call.parts.headers);
    let write = WriteOptions {
        // An apply tracks the fields of its manager itself, in `server_side`.
        manager: (!apply).then(|| manager.clone()),
        subresource: call.subresource().to_owned(),
        // To admission, a patch is an update.
        options: Arc::new(options.to_value("UpdateOptions", call.query.text("fieldValidation"))),
        uid: None,
        kind: None,
        authorize_create: call.authorize_create.clone(),
    };
    let (reply, late) = (Reply::to(&call, negotiated), call.late.clone());
    let patcher = Patcher {
        call,
        patch_type,
        bytes,
        options,
        manager,
    };
    let updated = finish::finish(async move { patcher.run(&write).await }, late).await?;
    let code = if updated.created { 201 } else { 200 };
    reply.object(code, updated.object).await
}

struct Patcher {
    call: Call,
    patch_type: PatchType,
    bytes: Bytes,
    options: WriteQuery,
    manager: String,
}

impl Patcher {
    async fn run(&self, write: &WriteOptions) -> Result<Updated> {
        let call = &self.call;
        // A `copy` operation can multiply the document, so the size of body and object does not bound the cost and
        // `dispatch` may have left the patch on the reactor.
        if self.has_copies() {
            compute::leave_reactor(MEMORY_OF_COPIES).await;
        }
        if let Some(SubresourceBehaviour::Custom(handler)) = call.route.subresource().map(|s| &s.behaviour) {
            // The handler stores the object itself. After a conflict, reapply the patch to the current
            // object.
            for _ in 1..RETRIES {
                let live = handler.live(&call.cx, call.name()).await?;
                let object = self.apply(Some(&live))?;
                // A patch that sets `resourceVersion` demands that version: retrying would fail again, or hide the
                // conflict.
                let same_version = object.resource_version() == live.resource_version();
                match custom(call, handler, object, write).await {
                    Err(s) if s.reason == "Conflict" && same_version => {}
                    done => return done,
                }
            }
            let live = handler.live(&call.cx, call.name()).await?;
            return custom(call, handler, self.apply(Some(&live))?, write).await;
        }
        // Only apply creates a missing object.
        let upsert = self.patch_type.is_apply();
        // Called again with the new live object after each conflict, so it must not consume the patch.
        let mut transform = |live: Option<&Value>| self.apply(live);
        call.store()
            .update(&call.cx, call.name(), &mut transform, upsert, write)
            .await
    }

    /// True for a JSON patch whose result can be much larger than the patch and the live object.
    fn has_copies(&self) -> bool {
        let decode = || JsonPatch::decode(&self.bytes, Decoding::Lenient);
        self.patch_type == PatchType::Json && decode().is_ok_and(|patch| patch.has_copies())
    }

    /// Applies the patch to `live` and returns the new object.
    fn apply(&self, live: Option<&Value>) -> Result<Value> {
        let mut object = match (self.patch_type, live) {
            (PatchType::Apply | PatchType::ApplyCbor, live) => self.server_side(live)?,
            // The registry calls with `None` only if there is no object, which only apply creates.
            (_, None) => return Err(absent(&self.call)),
            (PatchType::Json, Some(live)) => {
                // Decoded for every attempt: conflicts are rare, and a kept patch would need a copy for each
                // application.
                let patch = JsonPatch::decode(&self.bytes, self.decoding())?;
                let findings = patch.findings.clone();
                self.decoded(patch.apply(live.clone())?, findings, || {
                    self.document_in_errors(live, shown::operated)
                })?
            }
            (PatchType::Merge, Some(live)) => {
                let (patch, duplicates) = merge::decode(&self.bytes, self.decoding())?;
                let mut object = live.clone();
                merge::apply(&mut object, patch);
                let shown = || self.document_in_errors(live, shown::merged);
                self.decoded(object, named(duplicates), shown)?
            }
            (PatchType::Strategic, Some(live)) => self.strategic(live)?,
        };
        self.call.check_namespace(&mut object)?;
        self.call.check_body_name(&object)?;
        Ok(object)
    }

    fn decoding(&self) -> Decoding {
        match self.options.field_validation {
            FieldValidation::Ignore => Decoding::Lenient,
            FieldValidation::Warn | FieldValidation::Strict => Decoding::Strict,
        }
    }

    /// The patched document as error messages quote it; `patched` applies a JSON patch to JSON.
    fn document_in_errors(&self, live: &Value, patched: fn(&str, &str) -> Option<String>) -> Option<String> {
        let (live, patch) = (api::json::to_vec(live), &self.bytes);
        patched(&String::from_utf8_lossy(&live), &String::from_utf8_lossy(patch))
    }

    fn handle_strict_errors(&self, findings: Vec<String>, shown: impl FnOnce() -> String) -> Result<()> {
        let warnings = &self.call.cx.warnings;
        self.options
            .handle_strict_errors(findings, warnings, |text| refused(shown(), text))
    }

    /// Decodes a patched document like a request body of the kind. `shown` is how errors show the document;
    /// without it, they show its members sorted.
    fn decoded(
        &self,
        mut object: Value,
        mut findings: Vec<String>,
        shown: impl Fn() -> Option<String>,
    ) -> Result<Value> {
        if let Some(def) = self.call.definition().filter(|_| has_float(&object))
            && let Some(document) = shown()
        {
            quantities_as_written(def, document.as_bytes(), &mut object);
        }
        // Findings are sorted by their position in the patched document, so it is encoded before normalizing.
        let text = json::to_vec(&object);
        let shown = || shown().unwrap_or_else(|| String::from_utf8_lossy(&text).into_owned());
        let expected = self.call.kind();
        let (kind, version) = body::read_type_meta(&object).map_err(|why| refused(shown(), why.to_string()))?;
        let has_kind = kind.is_some();
        let custom = type_check(&self.call) == body::TypeCheck::Required;
        // The registry compares those of custom resources; here they only have to be there.
        if custom {
            if !has_kind {
                return Err(refused(shown(), body::no_kind(&String::from_utf8_lossy(&text))));
            }
            if version.is_none() {
                return Err(Status::internal(body::no_version("object has no apiVersion field")));
            }
        }
        // Like upstream's decoder, a missing kind defaults to the endpoint's. A missing version selects the
        // internal type, whose JSON has hardly any of the members.
        let is_internal = |v: &GroupVersion| &*v.version == body::INTERNAL_VERSION && v.group == expected.group;
        let has_version = version.is_some_and(|v| !is_internal(&v) && !body::is_versionless(&v, &expected));
        if !has_kind {
            object.set(&["kind"], expected.kind.as_str());
        }
        // The result has no name, hence the check against an empty object.
        if !has_version && ObjectView::kind(&object) == expected.kind.as_str() {
            findings.extend(body::unknown_to_internal(&object));
            self.handle_strict_errors(findings, shown)?;
            return self.call.check_body_name(&Value::object()).map(|()| object);
        }
        if object.gvk() != expected && !custom {
            let mut given = object.gvk();
            if !has_version {
                given.group.clone_from(&expected.group);
                given.version = body::INTERNAL_VERSION.into();
            }
            let document = shown();
            if given.version.is_empty() {
                let why = body::no_version(&document);
                return Err(refused(document, why));
            }
            // Upstream decodes the document as the kind it claims to be, so errors in its fields take precedence over
            // the mismatch of kinds.
            let own = |def| explain(def, document.as_bytes()).map(|e| e.0);
            let scales = self.call.resource().unstructured;
            let why = scales.then(|| body::foreign_to_scales(&given)).flatten();
            let why = why.or_else(|| body::foreign(&given, &expected, own));
            let why = why.unwrap_or_else(|| body::not_registered(&given, &expected));
            return Err(refused(document, why));
        }
        let unknown = normalize(&self.call, &mut object, |why| {
            let document = shown();
            let def = self.call.definition();
            let error = def.and_then(|def| explain(def, document.as_bytes()));
            refused(document, error.map_or_else(|| why.to_owned(), |e| e.0))
        })?;
        findings.extend(in_order(&self.call, &text, unknown));
        self.handle_strict_errors(findings, shown)?;
        Ok(object)
    }

    fn strategic(&self, live: &Value) -> Result<Value> {
        let (patch, duplicates) = strategic::decode(&self.bytes)?;
        let patch = Value::Object(patch);
        let resource = self.call.resource();
        let definition = self.call.definition().map(PatchSchema::Def);
        // The rest of the patch after the merge, because upstream's merge consumes the patch.
        let shown = || match (live, &patch, definition) {
            (Value::Object(live), Value::Object(patch), Some(schema)) => {
                go_print(&Value::Object(strategic::leftover(live, patch.clone(), schema)))
            }
            _ => go_print(&patch),
        };
        // A subresource of its own kind (Scale) has its own schema, too.
        let has_own = self.call.kind() != resource.gvk() && resource.schema.definition().is_some();
        let mut object = match definition.filter(|_| has_own) {
            Some(schema) => {
                let (mut merged, patch) = (live.clone(), patch.as_object().cloned());
                strategic::apply(&mut merged, patch.unwrap_or_default(), schema)?;
                merged
            }
            None => match resource.schema.strategic_merge(live, &patch) {
                Some(merged) => merged?,
                None => return Err(unsupported()),
            },
        };
        // Upstream converts the merged map to the typed object (`FromUnstructuredWithValidation`), so a field of the
        // wrong type takes precedence over unknown fields.
        if let Some(def) = self.call.definition() {
            coerce(def, &mut object).map_err(|e| refused(shown(), e.0))?;
        }
        let mut unknown = normalize(&self.call, &mut object, |why| refused(shown(), why.to_owned()))?;
        unknown.sort_unstable();
        let mut findings = named(duplicates);
        findings.extend(unknown);
        self.handle_strict_errors(findings, shown)?;
        Ok(object)
    }

    fn server_side(&self, live: Option<&Value>) -> Result<Value> {
        let call = &self.call;
        let expected = call.kind();
        let (patch, duplicates) = match self.patch_type {
            PatchType::ApplyCbor => {
                let document = body::parse(&self.bytes, body::BodyType::Cbor)
                    .map_err(|e| Status::bad_request(format!("error decoding CBOR: {e}")))?;
                (apply::check_config(document.value, &expected)?, document.duplicates)
            }
            _ => apply::decode_config(&self.bytes, &expected)?,
        };
        let now = time::now();
        let writer = Writer {
            manager: &self.manager,
            subresource: call.subresource(),
            now: &now,
            api_version: &expected.api_version(),
        };
        let resource = call.resource();
        let request = ApplyRequest {
            writer,
            force: self.options.force == Some(true),
            reset: &reset_set(resource.strategy.reset_fields(call.subresource())),
        };
        // The schema of a subresource of its own kind (Scale) differs from that of the parent.
        let own = match call.route.subresource().map(|s| &s.behaviour) {
            Some(SubresourceBehaviour::Custom(handler)) => handler.schema(),
            _ => None,
        };
        let schema = own.as_ref().unwrap_or(&resource.schema);
        // Conflicts and schema errors take precedence over duplicate keys, as in upstream's `applyPatcher`.
        let (object, empties) = schema.apply_with_empties(live, patch, &request)?;
        call.cx.empties.set(empties);
        let text = body::yaml_finding(&duplicates);
        self.options.handle_strict_errors(duplicates, &call.cx.warnings, |_| {
            Status::bad_request(format!("error strict decoding YAML: {text}"))
        })?;
        Ok(object)
    }
}

/// Formats the duplicate keys of a patch as strict decoding errors.
fn named(duplicates: Vec<String>) -> Vec<String> {
    let finding = |d: String| format!("duplicate field {}", quote(&d));
    duplicates.into_iter().map(finding).collect()
}

/// 422 for the patch as a whole. Upstream sets no kind, so the message starts with a space.
fn refused(shown: String, why: String) -> Status {
    let error = FieldError::invalid(&FieldPath::new("patch"), shown, why);
    Status::invalid("", "", "", &[error])
}

/// 415 for a kind without strategic merge patch.
fn unsupported() -> Status {
    Status::unsupported_media_type(&[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/apply-patch+yaml",
    ])
}

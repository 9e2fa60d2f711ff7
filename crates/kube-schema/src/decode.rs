//! Emulates a decode into Go's typed structs followed by an encode, on an untyped tree: unknown fields are
//! reported and dropped, types are checked, scalars are canonicalized, empty values are dropped and
//! always-written ones added. The result is what upstream would encode.
//!
//! Start at [`normalize`]. Duplicate keys are reported by the JSON codec; field validation policy is the
//! caller's.

mod converter;
mod empties;
mod explain;
mod go_names;
mod literals;
mod order;
mod position;
mod scalar;

pub use converter::coerce;
pub use empties::Empties;
pub use explain::explain;
pub use literals::{has_float, quantities_as_written, quantities_of};
pub use order::sort_by_document_order;
pub use scalar::base64;

use super::{Emit, Field, FreeForm, SchemaOr, Ty, TypeDef};
use position::{At, Step, go_struct, go_type};
use std::fmt;
use torana_apimachinery::codec::budget::{DecodeBudget, OverBudget, PAIR, weight};
use torana_apimachinery::codec::strict_errors::StrictErrors;
use torana_apimachinery::field::quote;
use torana_apimachinery::interrupt::pause;
use torana_apimachinery::patch::json_type;
use torana_apimachinery::value::{Str, Value};

/// Memory budget, in bytes, for the always-written fields that are added. An empty container takes three
/// bytes of JSON and over a hundred in the tree, so a small body could otherwise expand without bound.
/// Objects that fit into the store stay far below.
const MAX_ADDED: usize = 16 << 20;

/// Maximum nesting depth of objects. Only JSON schemas are recursive and can reach it.
const MAX_DEPTH: usize = 2_000;

/// A value does not match the expected type. Holds Go's error text, which the caller wraps into a 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(pub String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

impl From<OverBudget> for DecodeError {
    fn from(e: OverBudget) -> Self {
        Self(e.to_string())
    }
}

/// Rewrites `v` to what Go would encode after decoding it into `def`; see the module documentation.
///
/// Returns the findings of strict validation (`unknown field "spec.foo"`), at most as many as
/// [`StrictErrors`] keeps, sorted by key at each level; [`sort_by_document_order`] merges them with the JSON
/// codec's duplicate-key findings in upstream's order. The caller applies `fieldValidation` to them.
///
/// ```
/// use torana_apimachinery::json;
/// use torana_kube_schema::by_gvk;
/// use torana_kube_schema::decode::{DecodeError, normalize};
///
/// # fn main() -> Result<(), DecodeError> {
/// let namespace = by_gvk("", "v1", "Namespace").expect("a built-in kind");
/// let mut object = json!({"metadata": {"name": "a", "creationTimestamp": null}, "sepc": {}});
/// assert_eq!(normalize(namespace, &mut object)?, [r#"unknown field "sepc""#]);
/// // Undeclared and empty members are gone, those that Go always writes are there.
/// assert_eq!(object, json!({"metadata": {"name": "a"}, "spec": {}, "status": {}}));
///
/// let pod = by_gvk("", "v1", "Pod").expect("a built-in kind");
/// let wrong = normalize(pod, &mut json!({"metadata": "x"}));
/// let why = "json: cannot unmarshal string into Go struct field Pod.metadata of type v1.ObjectMeta";
/// assert_eq!(wrong, Err(DecodeError(why.to_owned())));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The first value that a type with its own parser refuses (a quantity, a time), else the first value of a
/// wrong type, with `encoding/json`'s message. `v` is then partially rewritten.
pub fn normalize(def: &'static TypeDef, v: &mut Value) -> Result<Vec<String>, DecodeError> {
    normalize_under("", def, v)
}

/// Like [`normalize`], for a part of a document that upstream decodes separately, such as a custom resource's
/// metadata. Findings are prefixed with `path`; type errors, as upstream, are not.
///
/// # Errors
/// As of [`normalize`].
pub fn normalize_under(path: &str, def: &'static TypeDef, v: &mut Value) -> Result<Vec<String>, DecodeError> {
    normalized(path, def, v).map(|(findings, _)| findings)
}

/// Like [`normalize`]; also returns the empty lists and maps that were dropped.
///
/// # Errors
/// As of [`normalize`].
pub fn normalize_with_empties(def: &'static TypeDef, v: &mut Value) -> Result<(Vec<String>, Empties), DecodeError> {
    normalized("", def, v)
}

fn normalized(path: &str, def: &'static TypeDef, v: &mut Value) -> Result<(Vec<String>, Empties), DecodeError> {
    let mut cx = Cx {
        empties: Empties::default(),
        findings: StrictErrors::default(),
        added: DecodeBudget::of(MAX_ADDED),
        mismatch: None,
        is_strict: true,
    };
    let step = if path.is_empty() { Step::Root } else { Step::Key(path) };
    let at = At {
        parent: None,
        step,
        depth: 0,
    };
    // A few definitions are scalars with a name.
    match def.scalar {
        Some(ty) => cx.value(ty, v, &at)?,
        None => cx.object(def, v, &at)?,
    }
    // Only now: an error of a type with its own parser precedes it, as in Go.
    if let Some(e) = cx.mismatch {
        return Err(e);
    }
    Ok((cx.findings.into_texts(), cx.empties))
}

/// Go's encoding of an unset value of this type: `""`, `0`, `false`, `null`, or an object of the
/// always-written fields.
pub fn zero(ty: Ty) -> Value {
    match ty {
        Ty::String => Value::from(""),
        Ty::Int32 | Ty::Int64 | Ty::Float | Ty::IntOrString => Value::Int(0),
        Ty::Bool => Value::Bool(false),
        Ty::Quantity => Value::from("0"),
        Ty::Struct(r) => {
            let fields = r.get().fields.iter().filter(|f| f.always);
            Value::Object(fields.map(|f| (f.name, unset(f))).collect())
        }
        _ => Value::Null,
    }
}

/// The encoding of an always-written field that is unset.
fn unset(f: &Field) -> Value {
    if f.emit == Emit::Zero { zero(f.ty) } else { Value::Null }
}

struct Cx {
    empties: Empties,
    findings: StrictErrors,
    added: DecodeBudget,
    /// The first value of a wrong type. Go decodes on after one, and reports it only if nothing fails at
    /// once.
    mismatch: Option<DecodeError>,
    /// False in what unmarshals itself, where upstream drops unknown fields without a word.
    is_strict: bool,
}

impl Cx {
    /// Records a value of a wrong type, described by `what`, if it is the first one.
    fn mismatch(&mut self, at: &At<'_>, what: impl FnOnce() -> String, go_type: impl FnOnce() -> String) {
        self.mismatch.get_or_insert_with(|| at.mismatch(&what(), &go_type()));
    }

    fn mismatch_of(&mut self, at: &At<'_>, ty: Ty, v: &Value) {
        self.mismatch(at, || json_type(v).to_owned(), || go_type(ty));
    }

    fn unknown(&mut self, at: &At<'_>, key: &str) {
        if self.is_strict {
            self.findings
                .add(|| format!("unknown field {}", quote(&at.path_to(key))));
        }
    }

    fn object(&mut self, def: &'static TypeDef, v: &mut Value, at: &At<'_>) -> Result<(), DecodeError> {
        let Value::Object(map) = v else {
            self.mismatch(at, || json_type(v).to_owned(), || go_struct(def));
            return Ok(());
        };
        // Deeper documents would overflow the stack, here and in every later walk.
        if at.depth > MAX_DEPTH {
            return Err(DecodeError("exceeded max depth".into()));
        }
        // Merge join: keys and fields are both sorted by name.
        let mut fields = def.fields.iter().peekable();
        let mut missing: Vec<&'static Field> = Vec::new();
        let mut error = None;
        map.retain(|key, v| {
            // `retain` cannot stop early; after an error the remaining members are kept unvisited.
            if error.is_some() {
                return true;
            }
            while let Some(f) = fields.next_if(|f| f.name < key) {
                if f.always {
                    missing.push(f);
                }
            }
            let Some(f) = fields.next_if(|f| f.name == key) else {
                self.unknown(at, key);
                return false;
            };
            match self.field(def, f, v, at) {
                // An empty value of an always-written field is replaced by its zero value.
                Ok(keep) => {
                    if !keep && f.always {
                        missing.push(f);
                    }
                    keep
                }
                Err(e) => {
                    error = Some(e);
                    true
                }
            }
        });
        if let Some(e) = error {
            return Err(e);
        }
        missing.extend(fields.filter(|f| f.always));
        if missing.is_empty() {
            return Ok(());
        }
        // Once for all: inserting one by one may grow the map several times.
        map.reserve(missing.len());
        for f in missing {
            let v = unset(f);
            // Accounted before it is inserted.
            self.added.take(PAIR + weight(&v))?;
            // No allocation: field names are static.
            map.insert(Str::const_new(f.name), v);
        }
        Ok(())
    }

    /// Normalizes one member; returns whether to keep it.
    fn field(
        &mut self,
        def: &'static TypeDef,
        f: &'static Field,
        v: &mut Value,
        at: &At<'_>,
    ) -> Result<bool, DecodeError> {
        // Go leaves a field unset on null.
        if v.is_null() {
            return Ok(false);
        }
        let at = at.then(Step::Field(def, f));
        self.value(f.ty, v, &at)?;
        let keep = f.emit != Emit::OmitEmpty || !v.is_empty_value();
        // Those that are kept become null later (`forget_empty_lists`).
        if matches!(f.ty, Ty::List(_) | Ty::Map(_)) && v.is_empty_value() {
            self.empties.note(v, &at);
        }
        Ok(keep)
    }

    fn value(&mut self, ty: Ty, v: &mut Value, at: &At<'_>) -> Result<(), DecodeError> {
        // Gives a long document's thread to others between values.
        pause();
        match (ty, &mut *v) {
            (Ty::String, Value::String(_)) | (Ty::Bool, Value::Bool(_)) | (Ty::Int64, Value::Int(_)) => Ok(()),
            // Wider numbers are an error of type in Go, not a truncation.
            (Ty::Int32, Value::Int(i)) if i32::try_from(*i).is_ok() => Ok(()),
            (Ty::Int32 | Ty::Int64, Value::Int(_) | Value::Float(_)) => {
                let number = || format!("number {}", torana_apimachinery::codec::json::to_string(v));
                self.mismatch(at, number, || go_type(ty));
                Ok(())
            }
            (Ty::Float, Value::Int(_) | Value::Float(_)) => Ok(()),
            (Ty::Struct(r), _) => self.object(r.get(), v, at),
            (Ty::List(t), Value::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.element(*t, item, &at.then(Step::Index(i)))?;
                }
                Ok(())
            }
            (Ty::Map(t), Value::Object(map)) => {
                // Fast path: string maps (labels, selectors, data) need no rewriting.
                if *t == Ty::String && map.values().all(|v| matches!(v, Value::String(_))) {
                    return Ok(());
                }
                // Amounts of resources are rounded, except where upstream registers no defaults for the kind.
                let amounts = *t == Ty::Quantity && !matches!(at.step, Step::Field(def, _) if keeps_amounts(def));
                for (key, item) in map.iter_mut() {
                    match amounts && !item.is_null() {
                        true => scalar::amount(item)?,
                        false => self.element(*t, item, &at.then(Step::Key(key)))?,
                    }
                }
                Ok(())
            }
            (Ty::Bytes, Value::String(s)) => scalar::bytes(s),
            (Ty::Bytes, Value::Array(items)) => match scalar::byte_array(items) {
                Some(encoded) => {
                    *v = encoded;
                    Ok(())
                }
                None => {
                    self.mismatch_of(at, ty, v);
                    Ok(())
                }
            },
            (Ty::Time | Ty::MicroTime, Value::String(s)) => {
                match ty {
                    Ty::Time => scalar::time(s)?,
                    _ => scalar::micro_time(s)?,
                }
                // Go writes its zero time as null, also behind a pointer.
                if scalar::is_zero_time(s) {
                    *v = Value::Null;
                }
                Ok(())
            }
            // `Time.UnmarshalJSON` decodes into a plain string, so its errors lack the field path.
            (Ty::Time | Ty::MicroTime, _) => Err(DecodeError(format!(
                "json: cannot unmarshal {} into Go value of type string",
                json_type(v)
            ))),
            (Ty::Quantity, _) => scalar::quantity(v),
            (Ty::IntOrString, _) => scalar::int_or_string(v),
            (Ty::Any(FreeForm::Object), Value::Object(_)) => Ok(()),
            (Ty::Any(FreeForm::FieldsV1 | FreeForm::RawExtension | FreeForm::Json | FreeForm::Patch), _) => Ok(()),
            (Ty::SchemaOr(or), _) => {
                let was_strict = std::mem::replace(&mut self.is_strict, false);
                // Not returned with `?`: the flag must be restored first.
                let decoded = self.schema_or(or, v, at);
                self.is_strict = was_strict;
                decoded
            }
            _ => {
                self.mismatch_of(at, ty, v);
                Ok(())
            }
        }
    }

    /// Normalizes an element of a list or map. As in Go, null becomes the zero value.
    fn element(&mut self, ty: Ty, v: &mut Value, at: &At<'_>) -> Result<(), DecodeError> {
        if !v.is_null() {
            return self.value(ty, v, at);
        }
        if ty == Ty::Bytes {
            *v = Value::from("");
        } else if !matches!(ty, Ty::Any(_)) {
            *v = zero(ty);
        }
        Ok(())
    }

    fn schema_or(&mut self, or: SchemaOr, v: &mut Value, at: &At<'_>) -> Result<(), DecodeError> {
        // The table contains the apiextensions types, which `by_name` finds.
        let schema = super::by_name(SCHEMA).expect("the table has it");
        match (or, &mut *v) {
            (_, Value::Object(_)) => self.object(schema, v, at),
            (SchemaOr::Bool, Value::Bool(_)) => Ok(()),
            (SchemaOr::Array, Value::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.object(schema, item, &at.then(Step::Index(i)))?;
                }
                Ok(())
            }
            (SchemaOr::StringArray, Value::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.element(Ty::String, item, &at.then(Step::Index(i)))?;
                }
                Ok(())
            }
            (or, v) => match of_schema_or(or, matches!(v, Value::Bool(_))) {
                Some(text) => Err(DecodeError(text.to_owned())),
                None => {
                    *v = Value::Null;
                    Ok(())
                }
            },
        }
    }
}

/// Go's error for a value that is neither a schema nor the shorthand for it. Where a list may stand for
/// schemas, Go takes any other value for an absent one.
fn of_schema_or(or: SchemaOr, is_bool: bool) -> Option<&'static str> {
    (or == SchemaOr::Bool && !is_bool).then_some("boolean or JSON schema expected")
}

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Turns empty lists of always-written fields into null. Upstream does so by storing objects as protobuf,
/// which cannot tell an empty list from an unset one. Ownership is recorded before; therefore [`normalize`]
/// keeps these lists.
pub fn forget_empty_lists(def: &'static TypeDef, v: &mut Value) {
    if has_empty_list(v) {
        forget_in_object(def, v);
    }
}

fn forget_in_object(def: &'static TypeDef, v: &mut Value) {
    let Value::Object(map) = v else { return };
    // Not below a type that is stored as JSON.
    if !stored_as_protobuf(def) {
        return;
    }
    for (key, v) in map.iter_mut() {
        let Some(f) = def.field(key) else { continue };
        if f.emit == Emit::Null && matches!((f.ty, &*v), (Ty::List(_), Value::Array(a)) if a.is_empty()) {
            *v = Value::Null;
        } else {
            forget_in(f.ty, v);
        }
    }
}

/// Reads the object without its types, which is faster than finding none in [`forget_in_object`].
fn has_empty_list(v: &Value) -> bool {
    pause();
    match v {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_list),
        Value::Object(map) => map.values().any(has_empty_list),
        _ => false,
    }
}

fn forget_in(ty: Ty, v: &mut Value) {
    pause();
    match (ty, v) {
        (Ty::Struct(r), v) => forget_in_object(r.get(), v),
        (Ty::List(t), Value::Array(items)) => items.iter_mut().for_each(|v| forget_in(*t, v)),
        (Ty::Map(t), Value::Object(map)) => map.iter_mut().for_each(|(_, v)| forget_in(*t, v)),
        _ => {}
    }
}

/// Whether upstream stores this type as protobuf. CRDs and APIServices are stored as JSON; lists are never
/// stored.
fn stored_as_protobuf(def: &TypeDef) -> bool {
    !(def.name.ends_with("List")
        || def.name.starts_with("io.k8s.apiextensions-apiserver.")
        || def.name.starts_with("io.k8s.kube-aggregator."))
}

/// Whether a definition is of a group without defaults for amounts of resources: those of devices are of no
/// `ResourceList` in Go, and RuntimeClasses have no defaults at all.
fn keeps_amounts(def: &TypeDef) -> bool {
    ["api.resource.v", "api.node.v"].iter().any(|of| def.name.contains(of))
}

#[cfg(test)]
mod tests;

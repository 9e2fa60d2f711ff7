//! What a client may apply: the body of the request, and whether it fits its type.

use super::fieldset::PathElement;
use super::typed::{item_element, shape_of};
use super::{ApplySchema, Scalar, Shape};
use crate::apimachinery::codec::yaml;
use crate::apimachinery::field::{MAX_ERRORS, MAX_TEXT, cut};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::patch::{go_print, json_type};
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What does not fit, as far as it is told: each line names a whole path, and a client may make those long.
#[derive(Default)]
struct Errors {
    lines: Vec<String>,
    size: usize,
    more: usize,
}

impl Errors {
    fn push(&mut self, line: impl FnOnce() -> String) {
        if self.lines.len() >= MAX_ERRORS || self.size >= MAX_TEXT {
            self.more += 1;
            return;
        }
        let line = cut(line(), MAX_TEXT - self.size);
        self.size += line.len();
        self.lines.push(line);
    }
}

/// The object that a configuration means, in the words of upstream's field manager.
pub fn described(config: &Value) -> String {
    format!("{}/{}; {}", config.namespace(), config.name(), config.gvk())
}

/// Checks that a configuration fits its type.
pub(super) fn check<S: ApplySchema>(config: &Value, schema: S) -> Result<(), Status> {
    let mut errors = Errors::default();
    check_below(config, schema, &mut String::new(), &mut errors);
    if errors.more > 0 {
        errors.lines.push(format!("and {} more errors", errors.more));
    }
    let text = match errors.lines.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    Err(Status::raw_error(format!(
        "failed to create typed patch object ({}): {text}",
        described(config)
    )))
}

fn check_below<S: ApplySchema>(v: &Value, schema: S, path: &mut String, errors: &mut Errors) {
    if v.is_null() {
        return;
    }
    checkpoint();
    let shape = shape_of(schema, v);
    let wrong = |what: &str, got: String| format!("{path}: expected {what}, got {got}");
    match (shape, v) {
        (Shape::Scalar(s), v) => {
            let fits = match (s, v) {
                (Scalar::Untyped, Value::Object(_) | Value::Array(_)) => false,
                (Scalar::Untyped, _) => true,
                (Scalar::String, v) => matches!(v, Value::String(_)),
                (Scalar::Numeric, v) => matches!(v, Value::Int(_) | Value::Float(_)),
                (Scalar::Boolean, v) => matches!(v, Value::Bool(_)),
            };
            if !fits {
                errors.push(|| match s {
                    Scalar::String => wrong("string", go_value(v)),
                    Scalar::Numeric => wrong("numeric (int or float)", "*value.valueUnstructured".to_owned()),
                    Scalar::Boolean => wrong("boolean", go_value(v)),
                    Scalar::Untyped => wrong("scalar", go_value(v)),
                });
            }
        }
        (Shape::Object | Shape::AtomicObject, Value::Object(m)) => {
            for (k, v) in m.iter() {
                let len = path.len();
                path.push('.');
                path.push_str(k);
                match schema.member(k) {
                    Some(member) => check_below(v, member.schema, path, errors),
                    None => errors.push(|| format!("{path}: field not declared in schema")),
                }
                path.truncate(len);
            }
        }
        (Shape::Object | Shape::AtomicObject, v) => errors.push(|| wrong("map", format!("&{{{}}}", go_print(v)))),
        (Shape::Set(of) | Shape::Keyed(of), Value::Array(a)) => {
            let mut seen: BTreeSet<PathElement> = BTreeSet::new();
            for (i, item) in a.iter().enumerate() {
                match item_element(schema, shape, item) {
                    Err(e) => errors.push(|| format!("{path}: element {i}: {e}")),
                    Ok(e) => {
                        if seen.contains(&e) {
                            errors.push(|| format!("{path}: duplicate entries for key {e}"));
                        }
                        let len = path.len();
                        let _ = write!(path, "{e}");
                        check_below(item, of, path, errors);
                        path.truncate(len);
                        seen.insert(e);
                    }
                }
            }
        }
        (Shape::Set(_) | Shape::Keyed(_) | Shape::AtomicList, v) if !matches!(v, Value::Array(_)) => {
            errors.push(|| wrong("list", format!("&{{{}}}", go_print(v))));
        }
        _ => {}
    }
}

/// Go's `%#v` of upstream's value wrapper.
fn go_value(v: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", go_literal(v))
}

fn go_literal(v: &Value) -> String {
    match v {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(s) => format!("{s:?}"),
        Value::Array(a) => {
            format!(
                "[]interface {{}}{{{}}}",
                a.iter().map(go_literal).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Object(m) => {
            let members: Vec<String> = m.iter().map(|(k, v)| format!("{k:?}:{}", go_literal(v))).collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        other => go_print(other),
    }
}

/// Reads the body of an apply: YAML, of exactly the kind of the endpoint, without managed fields. Keys that occur twice
/// are reported for strict validation.
///
/// # Errors
/// 400 in upstream's words.
pub fn decode_config(body: &[u8], expected: &GroupVersionKind) -> Result<(Value, Vec<String>), Status> {
    let failed = |e| Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: {e}"));
    let (v, duplicates) = yaml::decode_noting(body).map_err(failed)?;
    Ok((check_config(v, expected)?, duplicates))
}

/// The same of a body that was read already.
///
/// # Errors
/// 400 in upstream's words.
pub fn check_config(v: Value, expected: &GroupVersionKind) -> Result<Value, Status> {
    if !v.is_null() && v.as_object().is_none() {
        return Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of \
             type map[string]interface {{}}",
            json_type(&v)
        )));
    }
    let given = v.gvk();
    if given != *expected {
        return Err(Status::bad_request(format!("invalid object type: {given}")));
    }
    if !v.at(&["metadata", "managedFields"]).is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    Ok(v)
}

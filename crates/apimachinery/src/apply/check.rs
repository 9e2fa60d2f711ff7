//! Validates the body of an apply request: decoding, and conformance to the schema of its type.
//!
//! Start at [`decode_config`]; [`check`] runs inside [`apply`](super::apply()).

use super::fieldset::PathElement;
use super::typed::{item_element, shape_of};
use super::{ApplySchema, Scalar, Shape};
use crate::codec::yaml;
use crate::field::{MAX_ERRORS, MAX_TEXT, cut, quote};
use crate::gvk::GroupVersionKind;
use crate::interrupt::checkpoint;
use crate::object::ObjectView;
use crate::patch::{go_print, go_type, json_type};
use crate::status::Status;
use crate::time;
use crate::value::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Schema errors, bounded in number and size: every line contains a full path, and clients can make paths
/// long.
#[derive(Default)]
struct Errors {
    lines: Vec<String>,
    size: usize,
    more: usize,
    /// Set for stored objects, where duplicate items of sets and maps are allowed.
    allow_duplicates: bool,
}

impl Errors {
    fn of_stored() -> Self {
        Self {
            allow_duplicates: true,
            ..Self::default()
        }
    }

    /// All of them as one text; `None` if there are none.
    fn text(mut self) -> Option<String> {
        if self.more > 0 {
            self.lines.push(format!("and {} more errors", self.more));
        }
        match self.lines.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("errors:\n  {}", many.join("\n  "))),
        }
    }

    fn push(&mut self, line: impl FnOnce() -> String) {
        // Counted but not built: the closure would otherwise format a path per error of a hostile body.
        if self.lines.len() >= MAX_ERRORS || self.size >= MAX_TEXT {
            self.more += 1;
            return;
        }
        let line = cut(line(), MAX_TEXT - self.size);
        self.size += line.len();
        self.lines.push(line);
    }
}

/// Describes the object of a configuration in the format of upstream's field manager errors.
pub fn described(config: &Value) -> String {
    format!("{}/{}; {}", config.namespace(), config.name(), config.gvk())
}

/// Checks that a configuration conforms to its schema.
pub(super) fn check<S: ApplySchema>(config: &Value, schema: S) -> Result<(), Status> {
    let Some(text) = nonconformity(config, schema) else {
        return Ok(());
    };
    Err(Status::raw_error(format!(
        "failed to create typed patch object ({}): {text}",
        described(config)
    )))
}

/// The error of an apply to an object that does not conform to its schema. `failed` is what upstream was doing, with
/// `{}` in place of the object.
pub(super) fn untyped<S: ApplySchema>(failed: &str, object: &Value, schema: S) -> Status {
    let mut errors = Errors::of_stored();
    check_below(object, schema, &mut String::new(), &mut errors);
    let failed = failed.replace("{}", &format!("({})", described(object)));
    Status::raw_error(format!("{failed}: {}", errors.text().unwrap_or_default()))
}

/// Why a configuration does not conform to its schema, in upstream's words.
pub(super) fn nonconformity<S: ApplySchema>(config: &Value, schema: S) -> Option<String> {
    let mut errors = Errors::default();
    check_below(config, schema, &mut String::new(), &mut errors);
    errors.text()
}

/// True if an object has the types of its schema. Unlike a configuration, it may have duplicate items.
pub(super) fn conforms<S: ApplySchema>(object: &Value, schema: S) -> bool {
    let mut errors = Errors::of_stored();
    check_below(object, schema, &mut String::new(), &mut errors);
    errors.lines.is_empty() && errors.more == 0
}

fn check_below<S: ApplySchema>(v: &Value, schema: S, path: &mut String, errors: &mut Errors) {
    // Null is a valid value of every type: it stands for an absent field.
    if v.is_null() {
        return;
    }
    checkpoint();
    let shape = shape_of(schema, v);
    // The wording differs per type because upstream mixes `%v`, `%T` and `%#v` in `typed/validate.go`.
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
                    // Upstream prints the type of one, and the value of the other in another form.
                    Scalar::Numeric => wrong("numeric (int or float)", go_type(v).to_owned()),
                    Scalar::Boolean => wrong("boolean", format!("&{{{}}}", go_print(v))),
                    Scalar::Untyped => wrong("any scalar", format!("&{{{}}}", go_print(v))),
                });
            }
        }
        (Shape::Object | Shape::AtomicObject, Value::Object(m)) => {
            // One growing path buffer for the whole walk; a `String` per field would cost more than the check.
            for (k, v) in m.iter() {
                let len = path.len();
                path.push('.');
                path.push_str(k);
                let member = schema.member(k);
                match &member {
                    Some(member) => check_below(v, member.schema, path, errors),
                    None => errors.push(|| format!("{path}: field not declared in schema")),
                }
                path.truncate(len);
                // As upstream's `visitMapItems`: the first undeclared member ends the check of its object.
                if member.is_none() {
                    break;
                }
            }
        }
        (Shape::Object | Shape::AtomicObject, v) => errors.push(|| wrong("map", format!("&{{{}}}", go_print(v)))),
        (Shape::Set(of) | Shape::Keyed(of), Value::Array(a)) => {
            let mut seen: BTreeSet<PathElement> = BTreeSet::new();
            for (i, item) in a.iter().enumerate() {
                match item_element(schema, shape, item) {
                    // As upstream's `visitListItems`: an item without identity ends the check of its list.
                    Err(e) => {
                        errors.push(|| format!("{path}: element {i}: {e}"));
                        break;
                    }
                    Ok(e) => {
                        if seen.contains(&e) {
                            errors.push(|| format!("{path}: duplicate entries for key {e}"));
                        }
                        let len = path.len();
                        let _ = write!(path, "{e}");
                        check_below(item, of, path, errors);
                        path.truncate(len);
                        // Not filled when duplicates are allowed: stored lists can be long, and the set would only be
                        // thrown away.
                        if !errors.allow_duplicates {
                            seen.insert(e);
                        }
                    }
                }
            }
        }
        (Shape::AtomicList, Value::Array(a)) => {
            let Some(of) = schema.elements() else { return };
            for (i, item) in a.iter().enumerate() {
                let len = path.len();
                let _ = write!(path, "[{i}]");
                check_below(item, of, path, errors);
                path.truncate(len);
            }
        }
        (Shape::Set(_) | Shape::Keyed(_) | Shape::AtomicList, v) if !matches!(v, Value::Array(_)) => {
            errors.push(|| wrong("list", format!("&{{{}}}", go_print(v))));
        }
        // Not reached: the arms above cover every shape that `shape_of` returns, but the guard hides that from the
        // compiler.
        _ => {}
    }
}

/// Go's `%#v` of the `valueUnstructured` wrapper in structured-merge-diff.
fn go_value(v: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", go_literal(v))
}

fn go_literal(v: &Value) -> String {
    match v {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(s) => quote(s),
        Value::Array(a) => {
            format!(
                "[]interface {{}}{{{}}}",
                a.iter().map(go_literal).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Object(m) => {
            let members: Vec<String> = m
                .iter()
                .map(|(k, v)| format!("{}:{}", quote(k), go_literal(v)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        other => go_print(other),
    }
}

/// Decodes the body of an apply request: YAML, of exactly the endpoint's kind, without `managedFields`. Also
/// returns the duplicate keys, which strict field validation reports.
///
/// # Errors
/// 400 with upstream's message.
pub fn decode_config(body: &[u8], expected: &GroupVersionKind) -> Result<(Value, Vec<String>), Status> {
    let failed = |e| Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: {e}"));
    let (v, duplicates) = yaml::decode_with_duplicates(body).map_err(failed)?;
    Ok((check_config(v, expected)?, duplicates))
}

/// True if upstream's decoder accepts a value as an entry of managed fields, whatever its fields are.
fn is_entry(v: &Value) -> bool {
    const TEXTS: [&str; 5] = ["manager", "operation", "apiVersion", "fieldsType", "subresource"];
    checkpoint();
    let is_text = |name: &&str| v.get(name).is_null() || v.get(name).as_str().is_some();
    let time = v.get("time");
    let is_time = time.is_null() || time.as_str().is_some_and(|t| time::parse(t).is_ok());
    v.as_object().is_some() && TEXTS.iter().all(is_text) && is_time
}

/// The checks of [`decode_config`] for a body that is already decoded.
///
/// # Errors
/// 400 with upstream's message.
pub fn check_config(v: Value, expected: &GroupVersionKind) -> Result<Value, Status> {
    if !v.is_null() && v.as_object().is_none() {
        return Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of \
             type map[string]interface {{}}",
            json_type(&v)
        )));
    }
    // Decoding picks a type by the endpoint, so a body of another kind would be merged with the wrong schema.
    let given = v.gvk();
    if given != *expected {
        // Upstream leaves an API version with more than one slash unparsed, and the error message then lacks the kind
        // as well.
        let shown = match v.str_at(&["apiVersion"]).matches('/').count() {
            0 | 1 => given.to_string(),
            _ => "/, Kind=".to_owned(),
        };
        return Err(Status::bad_request(format!("invalid object type: {shown}")));
    }
    // Anything but a list of entries is refused later, by its type, as upstream does.
    let entries = v.at(&["metadata", "managedFields"]).as_array();
    if entries.is_some_and(|entries| entries.iter().all(is_entry)) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    Ok(v)
}

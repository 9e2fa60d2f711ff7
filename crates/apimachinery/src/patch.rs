//! The three patch formats that carry a change: JSON patch, JSON merge patch and strategic merge patch. Apply
//! patches carry a desired configuration instead; see [`super::apply`].
//!
//! Each submodule takes the object's tree and the request body and returns the new tree. Errors are the
//! statuses upstream returns; some of them omit the reason.

pub mod json_patch;
pub mod merge;
pub mod shown;
pub mod strategic;

use super::codec::json;
use super::field::go_float;
use super::status::Status;
use super::value::{Map, Value};

/// The Status for a patch that cannot be applied. Upstream sends the same message whatever the reason.
pub(crate) fn rejected() -> Status {
    let mut s = Status::new(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
    // Creates empty details, which upstream sends as well.
    s.details_mut();
    s
}

/// Translates a decoder's message to Go's where Go's is fixed.
fn go_syntax_error(e: &str) -> String {
    // serde_json reports its own wording for truncated bodies that `explain` did not see.
    if e.starts_with("EOF while parsing") {
        "unexpected end of JSON input".to_owned()
    } else {
        e.to_owned()
    }
}

/// The name Go's JSON decoder uses for the type of a value.
pub fn json_type(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// How the body of a patch is decoded, which depends on the field validation of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// For `Ignore`: what has another type than it should is found when the patch is applied.
    Lenient,
    /// For `Warn` and `Strict`: with the types of the members, and errors begin with `error decoding patch: `.
    Strict,
}

/// Why the body of a patch cannot be read. Messages as Go words them.
#[derive(Debug, thiserror::Error)]
enum InvalidBody {
    #[error("{}", go_syntax_error(&.0.to_string()))]
    Syntax(#[from] json::Error),
    /// It is JSON of this type instead of an object.
    #[error("json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotObject(&'static str),
}

/// Decodes a body that must be an object; `None` for `null`. The strings are the duplicate keys found.
fn decode_object(body: &[u8]) -> Result<(Option<Map>, Vec<String>), InvalidBody> {
    let (v, notes) = json::decode_with_duplicates(body)?;
    match v {
        Value::Object(m) => Ok((Some(m), notes.duplicates)),
        // `null` decodes into a nil map without an error in Go; callers decide what that means.
        Value::Null => Ok((None, Vec::new())),
        other => Err(InvalidBody::NotObject(json_type(&other))),
    }
}

/// The Go type of a decoded JSON value, as `%T` formats it.
pub fn go_type(v: &Value) -> &'static str {
    match v {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Formats a decoded JSON value as Go's `%v` does: `map[a:1 b:[x y]]`.
pub fn go_print(v: &Value) -> String {
    let mut out = String::new();
    go_print_into(v, &mut out);
    out
}

fn go_print_into(v: &Value, out: &mut String) {
    match v {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => out.push_str(&i.to_string()),
        Value::Float(f) => out.push_str(&go_float(*f)),
        Value::String(s) => out.push_str(s),
        Value::Array(a) => {
            out.push('[');
            for (i, v) in a.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                go_print_into(v, out);
            }
            out.push(']');
        }
        Value::Object(m) => {
            out.push_str("map[");
            for (i, (k, v)) in m.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(k);
                out.push(':');
                go_print_into(v, out);
            }
            out.push(']');
        }
    }
}

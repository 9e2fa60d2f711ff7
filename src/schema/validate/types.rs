//! Checks the type of a value, with upstream's messages. A format changes how upstream checks the type, in ways that
//! differ by format; the cases are in `Validator::types`.

use super::numbers::is_json_integer;
use super::{Outcome, Validator};
use crate::apimachinery::field::FieldError;
use crate::apimachinery::value::Value;
use crate::schema::format::FormatCheck;
use crate::schema::path::At;
use crate::schema::{Node, Type};

/// The JSON type of a value, and the name of the Go format it has.
fn actual(v: &Value) -> (&'static str, &'static str) {
    match v {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Int(_) => ("integer", "int64"),
        Value::Float(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

impl Validator<'_> {
    pub(super) fn types(&mut self, node: &Node, v: &Value, at: &At<'_>, out: &mut Outcome) {
        let checks = node.checks.as_deref();
        // Upstream removes formats it does not know before it validates objects, but not before it validates defaults.
        let foreign = checks.filter(|_| self.is_default);
        let foreign = foreign.and_then(|c| c.foreign_format.as_deref());
        let format = checks.and_then(|c| c.format.as_ref()).map(FormatCheck::spelling);
        let format = format.or(foreign);
        let declared = node.ty;
        let expected = match declared {
            // Both types are named in the message in this form.
            _ if node.int_or_string && !self.is_default => "integer,string",
            Some(ty) => ty.name(),
            None => checks.and_then(|c| c.foreign_type.as_deref()).unwrap_or(""),
        };
        if expected.is_empty() && format.is_none() {
            // Upstream always runs this check for nulls.
            out.matches += usize::from(v.is_null());
            return;
        }
        // One for the validator that ran, even if it failed, and one if it found no error.
        if !v.is_null() {
            out.matches += 1;
        }
        let (actual, actual_format) = actual(v);
        let contains = |name: &str| expected.split(',').any(|e| e == name);
        let fits = match v {
            Value::Null => node.nullable || matches!(expected, "" | "null"),
            // Integers are numbers as well.
            Value::Int(_) => contains("integer") || contains("number"),
            Value::Float(f) => contains("number") || contains("integer") && is_json_integer(*f),
            _ => contains(actual),
        };
        let textual = matches!(v, Value::String(_) | Value::Array(_));
        let numeric = contains("integer") || contains("number");
        let (expected, actual) = match format {
            _ if fits => ("", ""),
            _ if v.is_null() => (expected, actual),
            // Upstream judges a value that is not text by its format, and text only where the type is not a number.
            Some(f) if !textual && f != actual_format => (f, actual_format),
            Some(_) if textual && !numeric => ("", ""),
            _ => (expected, actual),
        };
        if expected.is_empty() {
            out.matches += 1;
            return;
        }
        out.push_with(|| {
            let named = self.name(at);
            let detail = format!("{} in body must be of type {expected}: {actual:?}", named.text.as_str());
            FieldError::type_invalid(&named.field, actual, detail)
        });
    }
}

impl Type {
    /// True for the types whose values are numbers.
    pub(super) fn is_numeric(self) -> bool {
        matches!(self, Self::Integer | Self::Number)
    }
}

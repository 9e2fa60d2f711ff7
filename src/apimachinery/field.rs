//! Field paths and error lists: how validation says what is wrong, in upstream's words.
//!
//! Messages follow `k8s.io/apimachinery/pkg/util/validation/field/errors.go`.

use super::value::{Str, Value};
use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A path to a field: `spec.ports[0].name`, `metadata.labels[a/b]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Str);

impl FieldPath {
    /// A path of one field; `""` is the root.
    pub fn new(name: &str) -> Self {
        Self(Str::new(name))
    }
    /// The path of a member.
    // Called from thousands of places.
    #[inline(never)]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(Str::new(name))
        } else {
            self.with([".", name, ""])
        }
    }
    /// Paths are made for every field that is looked at, and read only where something is wrong: no formatting.
    fn with(&self, parts: [&str; 3]) -> Self {
        /// What the string type holds without an allocation; a longer one it takes over from a `String`, which grows
        /// cheaper.
        const INLINE: usize = 24;
        let length = self.0.len() + parts.iter().map(|p| p.len()).sum::<usize>();
        if length > INLINE {
            let mut path = String::with_capacity(length);
            path.push_str(&self.0);
            parts.iter().for_each(|p| path.push_str(p));
            return Self(Str::from(path));
        }
        let mut path = Str::with_capacity(length);
        path.push_str(&self.0);
        parts.iter().for_each(|p| path.push_str(p));
        Self(path)
    }
    /// The path of an element.
    pub fn index(&self, i: usize) -> Self {
        self.with(["[", &i.to_string(), "]"])
    }
    /// The path of a map entry.
    pub fn key(&self, k: &str) -> Self {
        self.with(["[", k, "]"])
    }
    /// The text of the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("<nil>")
        } else {
            f.write_str(&self.0)
        }
    }
}

/// What kind of wrong a field is. The text form is the cause's `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// `FieldValueNotFound`
    NotFound,
    /// `FieldValueRequired`
    Required,
    /// `FieldValueDuplicate`
    Duplicate,
    /// `FieldValueInvalid`
    Invalid,
    /// `FieldValueNotSupported`
    NotSupported,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueTooLong`
    TooLong,
    /// `FieldValueTooMany`
    TooMany,
    /// `InternalError`
    Internal,
    /// `FieldValueTypeInvalid`
    TypeInvalid,
}

/// One thing that is wrong with one field: a word wide, as validation has a thousand places that push one and hardly an
/// object that needs one.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError(Box<Fault>);

/// What a [`FieldError`] says.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What kind of wrong.
    pub kind: FieldErrorKind,
    /// Where.
    pub field: String,
    /// The offending value as it is shown: Go's `%#v`-like form, already rendered (strings quoted).
    pub bad_value: Option<String>,
    /// The rest of the message.
    pub detail: String,
}

impl Deref for FieldError {
    type Target = Fault;
    fn deref(&self) -> &Fault {
        &self.0
    }
}

impl DerefMut for FieldError {
    fn deref_mut(&mut self) -> &mut Fault {
        &mut self.0
    }
}

/// All that is wrong with an object.
pub type ErrorList = Vec<FieldError>;

/// How upstream shows a bad value: strings quoted as Go's `%q` does, numbers and booleans bare, the rest as JSON.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(s) => quote(s),
        Value::Null => "null".to_owned(),
        other => super::codec::json::to_string(other),
    }
}

/// Go's `strconv.Quote`.
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl FieldError {
    #[cold]
    #[inline(never)]
    fn of(kind: FieldErrorKind, path: &FieldPath, bad_value: Option<String>, detail: Cow<'_, str>) -> Self {
        Self(Box::new(Fault {
            kind,
            field: path.to_string(),
            bad_value,
            detail: detail.into_owned(),
        }))
    }
    #[cold]
    #[inline(never)]
    fn of_value(kind: FieldErrorKind, path: &FieldPath, value: &Value, detail: Cow<'_, str>) -> Self {
        Self::of(kind, path, Some(show(value)), detail)
    }
    /// The field must be set.
    pub fn required<'a>(path: &FieldPath, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(FieldErrorKind::Required, path, None, detail.into())
    }
    /// The value is wrong.
    pub fn invalid<'a>(path: &FieldPath, value: impl Into<Value>, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of_value(FieldErrorKind::Invalid, path, &value.into(), detail.into())
    }
    /// The value is wrong; `shown` is printed as it is.
    pub fn invalid_raw<'a>(path: &FieldPath, shown: impl Into<String>, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(FieldErrorKind::Invalid, path, Some(shown.into()), detail.into())
    }
    /// The value stands there already.
    pub fn duplicate(path: &FieldPath, value: impl Into<Value>) -> Self {
        Self::of_value(FieldErrorKind::Duplicate, path, &value.into(), Cow::Borrowed(""))
    }
    /// What the value names does not exist.
    pub fn not_found(path: &FieldPath, value: impl Into<Value>) -> Self {
        Self::of_value(FieldErrorKind::NotFound, path, &value.into(), Cow::Borrowed(""))
    }
    /// The field could not be judged.
    pub fn internal<'a>(path: &FieldPath, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(FieldErrorKind::Internal, path, None, detail.into())
    }
    /// The value is none of `supported` (shown quoted, in the order given; upstream sorts sets before).
    pub fn not_supported(path: &FieldPath, value: impl Into<Value>, supported: &[&str]) -> Self {
        Self::none_of(path, &value.into(), supported)
    }
    fn none_of(path: &FieldPath, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| quote(s)).collect::<Vec<_>>().join(", ");
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {list}")
        };
        Self::of_value(FieldErrorKind::NotSupported, path, value, detail.into())
    }
    /// The field may not be set.
    pub fn forbidden<'a>(path: &FieldPath, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(FieldErrorKind::Forbidden, path, None, detail.into())
    }
    /// The value has more than `max` bytes (negative: no number is given).
    pub fn too_long(path: &FieldPath, max: i64) -> Self {
        let detail = if max >= 0 {
            format!("may not be more than {max} bytes")
        } else {
            "value is too long".to_owned()
        };
        Self::of(FieldErrorKind::TooLong, path, None, detail.into())
    }
    /// The list has `actual` elements, more than `max`.
    pub fn too_many(path: &FieldPath, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {items}");
        Self::of(FieldErrorKind::TooMany, path, Some(actual.to_string()), detail.into())
    }
    /// The value has the wrong type.
    pub fn type_invalid<'a>(path: &FieldPath, value: impl Into<Value>, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of_value(FieldErrorKind::TypeInvalid, path, &value.into(), detail.into())
    }

    /// The cause's `reason`.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::Internal => "InternalError",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// The message without the field: what a cause carries.
    pub fn body(&self) -> String {
        let title = match self.kind {
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Invalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::Internal => "Internal error",
            FieldErrorKind::TypeInvalid => "Invalid value",
        };
        let mut out = title.to_owned();
        if let Some(v) = &self.bad_value {
            out.push_str(": ");
            out.push_str(v);
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// The joined message of a list: one error bare, several in brackets; equal messages are said once.
pub fn aggregate(errors: &[FieldError]) -> String {
    aggregate_texts(errors.iter().map(ToString::to_string))
}

/// The same of other errors.
pub fn aggregate_texts(errors: impl IntoIterator<Item = String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for e in errors {
        if !seen.contains(&e) {
            seen.push(e);
        }
    }
    match seen.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_upstream_prints_them() {
        let p = FieldPath::new("spec").child("ports").index(0).child("port");
        let e = FieldError::invalid(&p, 0i64, "must be between 1 and 65535, inclusive");
        assert_eq!(
            e.to_string(),
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"
        );
        let r = FieldError::required(&p, "");
        assert_eq!(
            aggregate(&[e.clone(), r, e]),
            "[spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, spec.ports[0].port: Required value]"
        );
    }

    #[test]
    fn paths_of_any_length_are_what_their_parts_say() {
        let mut text = "a".to_owned();
        let mut path = FieldPath::new("a");
        for i in 0..12 {
            path = path.child("bcd").index(i).key("e");
            text += &format!(".bcd[{i}][e]");
            assert_eq!(path.as_str(), text);
        }
        assert_eq!(FieldPath::default().child("a"), FieldPath::new("a"));
    }
}

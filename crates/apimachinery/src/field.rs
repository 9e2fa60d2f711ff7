//! Field paths and validation errors, the counterparts of upstream's `field.Path` and `field.Error`.
//!
//! Start at [`FieldPath`] and [`FieldError`]; [`ErrorList`] collects errors up to a limit.
//!
//! Messages follow `k8s.io/apimachinery/pkg/util/validation/field/errors.go`.

mod list;

pub(crate) use list::MAX_ERRORS;
pub use list::{ErrorList, MAX_TEXT, aggregate, aggregate_texts, cut};

use super::interrupt::pause;
use super::value::{Str, Value};
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::{Deref, DerefMut};

/// Maximum bytes of a path. Map keys are chosen by the client, and every nested path repeats its parents'
/// keys.
const MAX_PATH: usize = 2048;
/// Maximum bytes of a value quoted in an error.
const MAX_VALUE: usize = 16 * 1024;
/// Maximum bytes of an error's detail, which may contain a diff of two objects.
const MAX_DETAIL: usize = 32 * 1024;

/// A path to a field: `spec.ports[0].name`, `metadata.labels[a/b]`.
///
/// ```
/// use torana_apimachinery::FieldPath;
///
/// let ports = FieldPath::new("spec").child("ports");
/// assert_eq!(ports.index(0).child("name").to_string(), "spec.ports[0].name");
/// assert_eq!(FieldPath::new("metadata").child("labels").key("a/b").as_str(), "metadata.labels[a/b]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Str);

impl FieldPath {
    /// A path with a single field; `""` is the root.
    pub fn new(name: &str) -> Self {
        Self(Str::new(name))
    }
    /// Appends a member: `.name`.
    // Called from thousands of places; inlining it would bloat the binary.
    #[inline(never)]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(Str::new(name))
        } else {
            self.with([".", name, ""])
        }
    }
    /// Appends three parts. Validation builds a path for every field but reads it only on an error, so this
    /// avoids `format!`.
    fn with(&self, parts: [&str; 3]) -> Self {
        /// The inline capacity of [`Str`]. Longer text is built in a `String`, which grows more cheaply, and
        /// converted.
        const INLINE: usize = 24;
        // Loops over what a client sent build a path for each element.
        pause();
        let length = self.0.len() + parts.iter().map(|p| p.len()).sum::<usize>();
        if length > INLINE {
            if length > MAX_PATH {
                return self.shortened(parts);
            }
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
    /// Truncates a path that would exceed [`MAX_PATH`] and ends it in dots. Children of a truncated path have
    /// the same path.
    #[cold]
    fn shortened(&self, parts: [&str; 3]) -> Self {
        const DOTS: &str = "...";
        if self.0.len() >= MAX_PATH {
            // Children of a truncated path stay at one text; otherwise each level would copy two kilobytes again.
            return self.clone();
        }
        let mut path = [self.as_str(), parts[0], parts[1], parts[2]].concat();
        path.truncate(path.floor_char_boundary(MAX_PATH));
        path.push_str(DOTS);
        Self(Str::from(path))
    }
    /// Appends a list index: `[i]`.
    pub fn index(&self, i: usize) -> Self {
        self.with(["[", &i.to_string(), "]"])
    }
    /// Appends a map key: `[k]`.
    pub fn key(&self, k: &str) -> Self {
        self.with(["[", k, "]"])
    }
    /// The path as text; empty for the root.
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

/// The category of a validation error. Its text form is the cause's `reason`.
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
    /// Not an error itself: the number of errors omitted from a full [`ErrorList`].
    More(usize),
}

/// A validation error of one field. Boxed to one word because a thousand call sites may push one and few
/// objects ever produce one.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError(Box<Fault>);

/// The content of a [`FieldError`].
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Decides how the message begins and the `reason` of the cause.
    pub kind: FieldErrorKind,
    /// The path of the field.
    pub field: String,
    /// The offending value, already rendered in upstream's form (strings quoted).
    pub bad_value: Option<String>,
    /// The part of the message after the value.
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

/// Renders a bad value as upstream does: strings quoted as by Go's `%q`, numbers and booleans bare, anything
/// else as JSON. Long values are truncated.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(s) if s.len() > MAX_VALUE => {
            // Cut before quoting: escapes may multiply the length by ten.
            let (head, tail) = s.split_at(s.floor_char_boundary(MAX_VALUE));
            format!("{}... ({} more bytes)", quote(head), tail.len())
        }
        Value::String(s) => quote(s),
        Value::Null => "null".to_owned(),
        Value::Float(f) => go_float(*f),
        other => super::codec::json::to_string_within(other, MAX_VALUE),
    }
}

/// Renders a bad value as `json.Marshal` does, which escapes `<`, `>` and `&`. Upstream's formatter does so for all but
/// plain strings: also for values of named string types (enumerations such as `RestartPolicy`) and for pointers.
pub fn show_json(value: &Value) -> String {
    super::codec::json::to_string_within(value, MAX_VALUE)
}

/// Renders a float as Go's `%v` does, with an exponent below 1e-4 and from 1e6 (Go's JSON: below 1e-6 and from 1e21).
pub fn go_float(f: f64) -> String {
    let abs = f.abs();
    if abs == 0.0 || (1e-4..1e6).contains(&abs) {
        return f.to_string();
    }
    let text = format!("{f:e}");
    let (mantissa, exp) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exp.strip_prefix('-').map_or(('+', exp), |d| ('-', d));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// Go's short escape sequence of a character, if it has one in a quoted string.
pub fn go_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\x0c' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\x0b' => "\\v",
        _ => return None,
    })
}

/// Quotes a string as Go's `strconv.Quote` does.
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    // Writing to a string does not fail.
    let _ = write!(out, "{}", Quoted(s));
    out
}

/// Formats a string as [`quote`] does, piece by piece, so that a bounded writer can stop it early.
pub struct Quoted<'s>(pub &'s str);

/// Length in bytes of an unescaped piece.
const PIECE: usize = 256;

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0;
        f.write_char('"')?;
        // Where the pending text that needs no escape starts.
        let mut plain = 0;
        for (at, c) in s.char_indices() {
            let escape = go_escape(c);
            let is_plain = escape.is_none() && (c as u32) >= 0x20 && c as u32 != 0x7f && is_printable(c);
            // Plain text is flushed in pieces, so that a writer with a limit sees it early enough to stop.
            if is_plain && at - plain < PIECE {
                continue;
            }
            f.write_str(&s[plain..at])?;
            // The current character opens the next piece.
            plain = at;
            if is_plain {
                continue;
            }
            // The character is replaced by its escape, so pending text starts behind it.
            plain += c.len_utf8();
            match escape {
                Some(escape) => f.write_str(escape)?,
                None if (c as u32) < 0x80 => write!(f, "\\x{:02x}", c as u32)?,
                None if (c as u32) < 0x10000 => write!(f, "\\u{:04x}", c as u32)?,
                None => write!(f, "\\U{:08x}", c as u32)?,
            }
        }
        f.write_str(&s[plain..])?;
        f.write_char('"')
    }
}

/// Whether Go prints a character as it is: no control or format character, and no space but the ASCII one. Of ASCII,
/// everything counts as printable: the callers look at those characters themselves.
pub(crate) fn is_printable(c: char) -> bool {
    // Rust escapes by the same categories, but also combining marks, except where `str::escape_debug` finds them after
    // another character.
    // In this order because the third test allocates, and nearly all text is ASCII.
    c.is_ascii() || c.escape_debug().len() == 1 || format!("a{c}").escape_debug().nth(1) == Some(c)
}

impl FieldError {
    #[cold]
    #[inline(never)]
    fn of(kind: FieldErrorKind, path: &FieldPath, bad_value: Option<String>, detail: Cow<'_, str>) -> Self {
        // Errors are built in loops over what a client sent, and formatting a value is the slow part of one.
        pause();
        Self(Box::new(Fault {
            kind,
            field: path.to_string(),
            // `show` has already truncated the value; the extra room keeps its "more bytes" suffix.
            bad_value: bad_value.map(|v| cut(v, 2 * MAX_VALUE)),
            detail: cut(detail.into_owned(), MAX_DETAIL),
        }))
    }
    fn more(n: usize) -> Self {
        Self::of(FieldErrorKind::More(n), &FieldPath::default(), None, Cow::Borrowed(""))
    }
    /// True for the count at the end of a full list, which stands for errors of unspecified fields.
    pub fn is_more(&self) -> bool {
        matches!(self.kind, FieldErrorKind::More(_))
    }
    #[cold]
    #[inline(never)]
    fn of_value(kind: FieldErrorKind, path: &FieldPath, value: &Value, detail: Cow<'_, str>) -> Self {
        Self::of(kind, path, Some(show(value)), detail)
    }
    /// A required field is missing.
    pub fn required<'a>(path: &FieldPath, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(FieldErrorKind::Required, path, None, detail.into())
    }
    /// The value is invalid.
    pub fn invalid<'a>(path: &FieldPath, value: impl Into<Value>, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of_value(FieldErrorKind::Invalid, path, &value.into(), detail.into())
    }
    /// As [`invalid`](Self::invalid), for a value whose type in Go is not `string` itself but a type made from it.
    pub fn invalid_enum<'a>(path: &FieldPath, value: impl Into<Value>, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(
            FieldErrorKind::Invalid,
            path,
            Some(show_json(&value.into())),
            detail.into(),
        )
    }
    /// The value is invalid; `shown` is printed verbatim.
    pub fn invalid_raw<'a>(path: &FieldPath, shown: impl Into<String>, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(FieldErrorKind::Invalid, path, Some(shown.into()), detail.into())
    }
    /// The value occurs more than once.
    pub fn duplicate(path: &FieldPath, value: impl Into<Value>) -> Self {
        Self::of_value(FieldErrorKind::Duplicate, path, &value.into(), Cow::Borrowed(""))
    }
    /// As [`duplicate`](Self::duplicate), for a value whose type in Go is not `string` itself but a type made from it.
    pub fn duplicate_enum(path: &FieldPath, value: impl Into<Value>) -> Self {
        let shown = show_json(&value.into());
        Self::of(FieldErrorKind::Duplicate, path, Some(shown), Cow::Borrowed(""))
    }
    /// The object that the value refers to does not exist.
    pub fn not_found(path: &FieldPath, value: impl Into<Value>) -> Self {
        Self::of_value(FieldErrorKind::NotFound, path, &value.into(), Cow::Borrowed(""))
    }
    /// The field could not be validated because of an internal error.
    pub fn internal<'a>(path: &FieldPath, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(FieldErrorKind::Internal, path, None, detail.into())
    }
    /// The value of an enumeration is not in `supported`. The supported values are quoted, in the given order; upstream
    /// sorts sets first, so callers do.
    pub fn not_supported(path: &FieldPath, value: impl Into<Value>, supported: &[&str]) -> Self {
        // Nearly all of upstream's enumerations are named string types.
        Self::none_of(path, show_json(&value.into()), supported)
    }
    /// As [`not_supported`](Self::not_supported), for a field whose type is `string` in Go.
    pub fn not_supported_string(path: &FieldPath, value: &str, supported: &[&str]) -> Self {
        Self::none_of(path, show(&Value::from(value)), supported)
    }
    #[cold]
    #[inline(never)]
    fn none_of(path: &FieldPath, value: String, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| quote(s)).collect::<Vec<_>>().join(", ");
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {list}")
        };
        Self::of(FieldErrorKind::NotSupported, path, Some(value), detail.into())
    }
    /// The field must not be set.
    pub fn forbidden<'a>(path: &FieldPath, detail: impl Into<Cow<'a, str>>) -> Self {
        Self::of(FieldErrorKind::Forbidden, path, None, detail.into())
    }
    /// The value is longer than `max` bytes; a negative `max` omits the number from the message.
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

    /// The `reason` of the cause.
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
            FieldErrorKind::More(_) => "",
        }
    }

    /// The message without the field path, as a Status cause carries it.
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
            FieldErrorKind::More(n) => return list::more_errors(n),
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
        // A count of omitted errors concerns no field, so it has no path to print.
        if let FieldErrorKind::More(_) = self.kind {
            return f.write_str(&self.body());
        }
        write!(f, "{}: {}", self.field, self.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_matches_upstream() {
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
    fn floats_are_shown_as_go_prints_them() {
        for (float, shown) in [
            (1e-7, "1e-07"),
            (0.00015, "0.00015"),
            (0.5, "0.5"),
            (1_234_567.5, "1.2345675e+06"),
        ] {
            assert_eq!(show(&Value::Float(float)), shown);
        }
    }

    #[test]
    fn paths_concatenate_their_parts_at_any_length() {
        let mut text = "a".to_owned();
        let mut path = FieldPath::new("a");
        for i in 0..12 {
            path = path.child("bcd").index(i).key("e");
            text += &format!(".bcd[{i}][e]");
            assert_eq!(path.as_str(), text);
        }
        assert_eq!(FieldPath::default().child("a"), FieldPath::new("a"));
    }

    #[test]
    fn error_paths_and_values_are_truncated() {
        let long = "é".repeat(3000);
        let path = FieldPath::new("a").key(&long);
        assert!(path.as_str().starts_with("a[é") && path.as_str().ends_with("...") && path.as_str().len() <= 2051);
        assert_eq!(path.child("below"), path);
        let list = Value::from(vec!["0123456789"; 100_000]);
        for value in [list, Value::from("\u{1}".repeat(1 << 20))] {
            let shown = FieldError::invalid(&path, value, "why").to_string();
            assert!(
                shown.len() < 3 * MAX_VALUE + MAX_PATH && shown.ends_with("more bytes): why"),
                "{}",
                shown.len()
            );
        }
    }
}

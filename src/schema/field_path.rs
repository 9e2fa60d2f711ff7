//! Paths to fields as CEL rules and selectable fields have them: `.spec.size`, `.metadata['a b']` (upstream's
//! `ValidFieldPath` in `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`).

use crate::apimachinery::value::Value;
use std::fmt;

/// Whether `['name']` may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayNotation {
    /// Members may be written in brackets.
    Allowed,
    /// Members are written behind dots only.
    Refused,
}

/// Why a path is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InvalidPath {
    /// The schema has no such field.
    NoField,
    /// Brackets are not allowed here.
    ArrayNotation,
    /// The path ends too early.
    End,
    /// The expected token, and the actual one.
    Expected(&'static str, String),
    /// A quoted name has an unknown escape.
    Literal,
}

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoField => f.write_str("does not refer to a valid field"),
            Self::ArrayNotation => f.write_str("array notation is not allowed"),
            Self::End => f.write_str("unexpected end of JSON path"),
            Self::Expected(what, actual) => write!(
                f,
                "expected {what} but got{} {actual}",
                if *what == "[ or ." { ":" } else { "" }
            ),
            Self::Literal => f.write_str("invalid string literal: invalid escape sequence"),
        }
    }
}

impl std::error::Error for InvalidPath {}

/// The names on the way to a field, and its schema.
pub(crate) type Resolved<'s> = (Vec<String>, &'s Value);

/// Follows a path into a schema.
///
/// # Errors
/// The path is malformed, or the schema has no such field.
pub(crate) fn resolve<'s>(path: &str, schema: &'s Value, brackets: ArrayNotation) -> Result<Resolved<'s>, InvalidPath> {
    // The name is consumed first: a missing closing bracket is reported behind the name, as upstream does.
    let (mut names, mut schema, mut rest) = (Vec::new(), schema, path);
    while let Some(token) = next(&mut rest) {
        let name = match token {
            "." => next(&mut rest).ok_or(InvalidPath::End)?.to_owned(),
            "[" if brackets == ArrayNotation::Refused => return Err(InvalidPath::ArrayNotation),
            "[" => {
                let token = next(&mut rest).ok_or(InvalidPath::End)?;
                let quoted = token.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
                let quoted = quoted.ok_or_else(|| InvalidPath::Expected("single quoted string", token.to_owned()))?;
                unescape(quoted).ok_or(InvalidPath::Literal)?
            }
            other => return Err(InvalidPath::Expected("[ or .", other.to_owned())),
        };
        // Looked up before the closing bracket is checked, which decides the error of `.a['x'`.
        schema = member(schema, &name).ok_or(InvalidPath::NoField)?;
        names.push(name);
        if token == "[" {
            match next(&mut rest) {
                Some("]") => {}
                Some(other) => return Err(InvalidPath::Expected("]", other.to_owned())),
                None => return Err(InvalidPath::End),
            }
        }
    }
    Ok((names, schema))
}

fn member<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    // Additional properties only count without declared ones, as in upstream.
    match schema.get("properties").as_object().filter(|p| !p.is_empty()) {
        Some(properties) => properties.get(name),
        None => Some(schema.get("additionalProperties")).filter(|s| s.as_object().is_some()),
    }
}

/// Takes the next token: a dot, a bracket, a quoted string, or the text up to a dot or bracket.
fn next<'p>(rest: &mut &'p str) -> Option<&'p str> {
    let text = *rest;
    let first = text.chars().next()?;
    let end = match first {
        '.' | '[' | ']' => 1,
        '\'' => {
            let mut escaped = false;
            let close = text.char_indices().skip(1).find(|(_, c)| {
                let found = *c == '\'' && !escaped;
                // Tracks escapes so that an escaped quote does not end the token; two backslashes in a row are not
                // told apart, as upstream.
                escaped = *c == '\\';
                found
            });
            // An unterminated string takes the rest, and fails as not being quoted.
            close.map_or(text.len(), |(i, _)| i + 1)
        }
        _ => text.find(['.', '[', ']']).unwrap_or(text.len()),
    };
    let (token, after) = text.split_at(end);
    *rest = after;
    Some(token)
}

fn unescape(s: &str) -> Option<String> {
    let mut out = String::with_capacity(s.len());
    let mut chars = s.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            c @ ('\\' | '\'') => c,
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn error(path: &str, brackets: ArrayNotation) -> String {
        let schema = json!({"properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}, "b c": {}}},
            "m": {"additionalProperties": {"type": "integer"}}}});
        match resolve(path, &schema, brackets) {
            Ok((names, schema)) => format!("{} {}", names.join("/"), schema.str_at(&["type"])),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn paths_are_followed_into_the_schema() {
        let allowed = |path| error(path, ArrayNotation::Allowed);
        assert_eq!(allowed(".spec.a"), "spec/a string");
        assert_eq!(allowed(".m.x"), "m/x integer");
        assert_eq!(allowed(".spec['b c']"), "spec/b c ");
        assert_eq!(allowed(".m['\\'.']"), "m/'. integer");
        assert_eq!(allowed(".spec.x"), "does not refer to a valid field");
        assert_eq!(allowed(".spec["), "unexpected end of JSON path");
        assert_eq!(allowed(".spec[0]"), "expected single quoted string but got 0");
        assert_eq!(allowed(".spec['a'x"), "expected ] but got x");
        assert_eq!(allowed("spec"), "expected [ or . but got: spec");
        assert_eq!(
            error(".spec['a']", ArrayNotation::Refused),
            "array notation is not allowed"
        );
        assert_eq!(error(".spec.", ArrayNotation::Refused), "unexpected end of JSON path");
    }
}

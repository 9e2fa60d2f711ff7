//! Field selectors such as `metadata.name=a,status.phase!=Running`, with the grammar and error texts of
//! `k8s.io/apimachinery/pkg/fields`.
//!
//! Start at [`FieldSelector::parse`]. Which fields a kind supports is decided by the registry.

use crate::value::Str;
use std::fmt;

/// Why a text is not a field selector; worded as upstream words it for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A term without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The selector as it was given.
        selector: String,
        /// The part between commas that has no operator.
        term: String,
    },
    /// A backslash before something that needs no escape, or at the end.
    #[error("invalid field selector: invalid escape sequence: \\{0}")]
    Escape(String),
    /// A comma or an equals sign in a value, as a code point.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
}

/// A comparison of one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The field name, as written.
    pub field: Str,
    /// The value to compare with, unescaped.
    pub value: Str,
    /// True for `=` and `==`, false for `!=`.
    pub equal: bool,
}

/// A conjunction of comparisons; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

impl FieldSelector {
    /// A selector that matches every object.
    pub const fn everything() -> Self {
        Self { terms: Vec::new() }
    }

    /// A selector that requires one field to equal a value.
    pub fn exact(field: &str, value: &str) -> Self {
        Self {
            terms: vec![Term {
                field: Str::new(field),
                value: Str::new(value),
                equal: true,
            }],
        }
    }

    /// Parses a selector; the empty text selects everything, as does a term without field and value (`=`).
    ///
    /// # Errors
    /// The text is not a selector. As upstream, the first wrong term in alphabetical order is named.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut terms = Vec::new();
        let mut parts = split(text);
        // Upstream sorts the terms first, which decides the one that an error names and the order of the parsed
        // selector.
        parts.sort_unstable();
        for part in parts {
            // Doubled and trailing commas are allowed.
            if part.is_empty() {
                continue;
            }
            let Some((field, equal, value)) = operator(part) else {
                return Err(Error::Term {
                    selector: text.to_owned(),
                    term: part.to_owned(),
                });
            };
            let value = unescape(value)?;
            // Upstream's `ParseSelector` drops such a term as matching everything.
            if field.is_empty() && value.is_empty() {
                continue;
            }
            let field = Str::new(field);
            terms.push(Term { field, value, equal });
        }
        Ok(Self { terms })
    }

    /// The comparisons, in the alphabetical order of their texts.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// True if the selector matches everything.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// True if the fields returned by `get` satisfy all comparisons; an absent field reads as `""`.
    pub fn matches<'a>(&self, get: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        self.terms
            .iter()
            .all(|t| (get(&t.field).unwrap_or("") == t.value) == t.equal)
    }

    /// The value that `field` must equal, if the selector requires one.
    pub fn requires_exact(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| t.equal && t.field == field)
            .map(|t| t.value.as_str())
    }

    /// Passes every term through `f`, which may rename the field or reject it.
    ///
    /// # Errors
    /// Returns the first error of `f`.
    pub fn try_map<E>(&self, mut f: impl FnMut(&Term) -> Result<Term, E>) -> Result<Self, E> {
        Ok(Self {
            terms: self.terms.iter().map(&mut f).collect::<Result<_, _>>()?,
        })
    }
}

/// Splits at unescaped commas.
fn split(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            // The character after a backslash is taken literally here; `unescape` decides whether it may be escaped.
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn operator(term: &str) -> Option<(&str, bool, &str)> {
    // The first operator separates field and value; operators in values must be escaped.
    let at = term
        .char_indices()
        // `!` alone is part of a field name; only `!=` is an operator.
        .find(|&(i, c)| c == '=' || (c == '!' && term[i + 1..].starts_with('=')))?
        .0;
    let (field, rest) = term.split_at(at);
    if let Some(v) = rest.strip_prefix("!=") {
        return Some((field, false, v));
    }
    // The longer operator first: `=` would leave a `=` in the value.
    rest.strip_prefix("==")
        .or_else(|| rest.strip_prefix('='))
        .map(|v| (field, true, v))
}

fn unescape(value: &str) -> Result<Str, Error> {
    let mut out = Str::default();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    return Err(Error::Escape(other.into_iter().collect()));
                }
            },
            // Could only be written by accident, and upstream refuses to guess.
            ',' | '=' => {
                return Err(Error::Unescaped(c.into()));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, t) in self.terms.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}{}", t.field, if t.equal { "=" } else { "!=" })?;
            for c in t.value.chars() {
                // The characters that `unescape` accepts, so that the text parses to the same selector.
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_split_at_the_first_operator_and_unescape() {
        let s = FieldSelector::parse(r"a=b,,c!=d,e==f\,g\=h").unwrap();
        assert_eq!(s.to_string(), r"a=b,c!=d,e=f\,g\=h");
        assert_eq!(s.requires_exact("e"), Some("f,g=h"));
        assert_eq!(s.requires_exact("c"), None);
        assert!(s.matches(&|k| match k {
            "a" => Some("b"),
            "e" => Some("f,g=h"),
            _ => None,
        }));
        assert!(FieldSelector::parse("").unwrap().is_everything());
    }

    #[test]
    fn parse_errors_match_upstream() {
        for (text, want) in [
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn display_round_trips(
            terms in proptest::collection::vec(("[a-z.]{1,6}", "[a-z,=\\\\! é]{0,6}", any::<bool>()), 0..4),
        ) {
            let terms: Vec<Term> = terms.into_iter()
                .map(|(f, v, equal)| Term { field: f.into(), value: v.into(), equal }).collect();
            let mut s = FieldSelector { terms };
            let mut again = FieldSelector::parse(&s.to_string()).unwrap();
            for terms in [&mut s.terms, &mut again.terms] {
                terms.sort_by_key(|t| (t.field.to_string(), t.value.to_string(), t.equal));
            }
            prop_assert_eq!(again, s);
        }

        #[test]
        fn terms_without_sides_select_everything(text in "(=|==|!=|,){0,4}") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                prop_assert!(selector.is_everything(), "{}", text);
            }
        }

        #[test]
        fn arbitrary_text_does_not_panic(s in "[a=!,\\\\\\PC]{0,20}") {
            let _ = FieldSelector::parse(&s);
        }
    }
}

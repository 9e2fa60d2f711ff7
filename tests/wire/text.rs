//! Normalisation inside strings: names, addresses, identifiers and times that appear anywhere in a text.

use crate::normalise::now;
use regex::Regex;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The letters of generated names.
const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
/// The length of their random end.
const END: usize = 5;
/// Times before this (2020-09) are never of this run.
const LONG_AGO: f64 = 1_600_000_000.0;

/// Whether a text is the random end of a generated name.
pub(crate) fn is_generated(end: &str) -> bool {
    end.len() == END && end.chars().all(|c| LETTERS.contains(c))
}

/// Whether a text is a JSON web token.
pub(crate) fn is_token(s: &str) -> bool {
    let parts: Vec<&str> = s.split('.').collect();
    let plain = |p: &&str| p.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    parts.len() == 3
        && parts.iter().all(plain)
        && parts[..2].iter().all(|p| p.starts_with("eyJ"))
        && !parts[2].is_empty()
}

/// A pattern from a recording. Its classes are ASCII: the Unicode tables are not compiled in.
pub(crate) fn pattern(text: &str) -> Regex {
    let text = text.replace(r"\d", "[0-9]").replace(r"\w", "[0-9A-Za-z_]");
    Regex::new(&text).unwrap_or_else(|e| panic!("{e}"))
}

/// Parts of messages that differ between servers: a text that precedes the part, the pattern, and the
/// replacement.
static MESSAGES: LazyLock<Vec<(&str, Regex, &str)>> = LazyLock::new(|| {
    [
        (
            "ResourceVersion in ",
            r"(ResourceVersion in (?:the precondition|record)) \(\d+\)",
            "$1 (<rv>)",
        ),
        ("ResourceVersion in ", r"(ResourceVersion in object meta:) \d+", "$1 <rv>"),
        (
            "Too large resource version",
            r"(Too large resource version:) \d+, current: \d+",
            "$1 <rv>, current: <rv>",
        ),
        (
            "too old resource version",
            r"(too old resource version:) \d+ \(\d+\)",
            "$1 <rv> (<rv>)",
        ),
        // A whole object, quoted.
        (
            "Invalid value: \"{",
            r#"Invalid value: "\{(?:[^"\\]|\\.)*""#,
            "Invalid value: <patched object>",
        ),
        (
            "failed calling webhook",
            r#"(?s)(failed calling webhook "[^"]*": failed to call webhook: Post "[^"]*": )(?:dial tcp|tls:|x509:|context deadline|EOF|read tcp).*"#,
            "$1<transport error>",
        ),
    ]
    .map(|(announced, text, new)| (announced, pattern(text), new))
    .into()
});

/// The replacements in texts.
#[derive(Clone, Default)]
pub(crate) struct Texts {
    /// Known values and their names, the longest first.
    names: Vec<(String, String)>,
    /// Addresses of services, and the names they got.
    pub addresses: HashMap<String, String>,
    /// Texts that the case itself sent.
    pub literals: BTreeSet<String>,
    /// Beginnings of generated names, as they appear after normalisation.
    pub prefixes: BTreeSet<String>,
    /// Patterns of the current step.
    pub masks: Vec<(Regex, String)>,
}

impl Texts {
    /// From now on, `value` appears as `name`, even inside texts.
    pub(crate) fn call(&mut self, value: &str, name: String) {
        if !self.knows(value) {
            let at = self.names.partition_point(|(known, _)| known.len() >= value.len());
            self.names.insert(at, (value.to_owned(), name));
        }
    }

    pub(crate) fn knows(&self, value: &str) -> bool {
        self.names.iter().any(|(known, _)| known == value)
    }

    /// The text with the names of known values.
    pub(crate) fn with_names(&self, s: &str) -> String {
        let mut s = s.to_owned();
        for (value, name) in &self.names {
            if value.len() <= s.len() && s.contains(value) {
                s = s.replace(value, name);
            }
        }
        s
    }

    pub(crate) fn normalise(&mut self, s: &str, label: &str) -> String {
        let mut s = self.with_names(s);
        if s.len() >= 36 {
            s = self.uids(&s, label);
        }
        if s.len() >= 20 && s.contains("T") {
            s = self.times(&s);
        }
        if s.contains("10.0.0.") {
            s = self.service_addresses(&s);
        }
        for (mask, new) in &self.masks {
            s = mask.replace_all(&s, new).into_owned();
        }
        if s.contains("kube-api-access-") {
            s = generated(&s, "kube-api-access-", |_| true);
        }
        for (announced, message, new) in MESSAGES.iter() {
            if s.contains(announced) {
                s = message.replace_all(&s, *new).into_owned();
            }
        }
        for prefix in &self.prefixes {
            if s.contains(prefix) {
                s = generated(&s, prefix, |before| before.is_none_or(|c| c == '"' || c == ' '));
            }
        }
        s
    }

    /// A uid that is a whole value gets a name; others only become `<uuid>`.
    fn uids(&mut self, s: &str, label: &str) -> String {
        let is_uid = |b: &[u8]| {
            b.iter().enumerate().all(|(i, b)| match i {
                8 | 13 | 18 | 23 => *b == b'-',
                _ => b.is_ascii_digit() || (b'a'..=b'f').contains(b),
            })
        };
        if s.len() == 36 && is_uid(s.as_bytes()) && !self.literals.contains(s) {
            let name = format!("<uid:{label}>");
            self.call(s, name.clone());
            return name;
        }
        replace(s, |rest, _| {
            let found = rest.as_bytes().get(..36).is_some_and(is_uid);
            (found && !self.literals.contains(&rest[..36])).then(|| (36, "<uuid>".to_owned()))
        })
    }

    /// RFC 3339 times near now become their precision and how many half minutes they are ahead.
    fn times(&self, s: &str) -> String {
        replace(s, |rest, _| {
            let b = rest.as_bytes().get(..20)?;
            if b[4] != b'-' || b[10] != b'T' || !b[0].is_ascii_digit() {
                return None;
            }
            let end = rest.find('Z').filter(|e| *e < 36)?;
            let (text, fraction) = (&rest[..=end], end - 19);
            let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
            let at = at.unix_timestamp() as f64;
            if at < LONG_AGO || self.literals.contains(text) {
                return Some((text.len(), text.to_owned()));
            }
            let precision = match fraction {
                0 => "time",
                7 => "microtime",
                _ => "nanotime",
            };
            let ahead = ((at - now() + 15.0) / 30.0).floor() as i64 * 30;
            let ahead = if ahead > 0 { format!("+{ahead}s") } else { String::new() };
            Some((text.len(), format!("<{precision}{ahead}>")))
        })
    }

    fn service_addresses(&self, s: &str) -> String {
        replace(s, |rest, before| {
            let digits = rest.strip_prefix("10.0.0.")?;
            let n = digits.bytes().take_while(u8::is_ascii_digit).count();
            let after = digits[n..].chars().next();
            let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if !(1..=3).contains(&n) || word(after) || after == Some('/') || word(before) {
                return None;
            }
            let address = &rest[.."10.0.0.".len() + n];
            let name = match self.literals.contains(address) {
                true => address,
                false => self.addresses.get(address).map_or("<ip>", String::as_str),
            };
            Some((address.len(), name.to_owned()))
        })
    }
}

/// Replaces random ends after `prefix` where the character before it fits.
fn generated(s: &str, prefix: &str, fits: impl Fn(Option<char>) -> bool) -> String {
    replace(s, |rest, before| {
        let end = rest.strip_prefix(prefix).filter(|_| fits(before))?;
        let after = end.get(END..)?.chars().next();
        let alone = after.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        (alone && is_generated(&end[..END])).then(|| (prefix.len() + END, format!("{prefix}<generated>")))
    })
}

/// Copies a text. `found` gets the rest of it and the character before, and returns the length to replace and
/// the replacement.
fn replace(s: &str, mut found: impl FnMut(&str, Option<char>) -> Option<(usize, String)>) -> String {
    let mut out = String::with_capacity(s.len());
    let (mut at, mut before) = (0, None);
    while let Some(c) = s[at..].chars().next() {
        match found(&s[at..], before) {
            Some((len, new)) => {
                out += &new;
                before = s[at..at + len].chars().next_back();
                at += len;
            }
            None => {
                out.push(c);
                before = Some(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

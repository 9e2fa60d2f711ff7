//! Validation that all kinds share: names, labels, annotations and object metadata, with upstream's messages
//! (`k8s.io/apimachinery/pkg/util/validation` and `pkg/api/validation`).
//!
//! A check returns one message per violation; an empty list means the value is valid.
//! [`meta::validate_object_meta`] is the check of whole metadata. Patterns are matched by hand instead of
//! with a regex engine because names are checked on every write; the regular expressions only appear in
//! messages.

pub mod meta;
mod names;
pub mod net;
pub mod objects;

pub use meta::{MetaRules, validate_object_meta, validate_object_meta_update};
pub use names::{
    NameFn, NameForm, name_is_canonical_ip, name_is_declared_subdomain, name_is_dns_label, name_is_dns_subdomain,
    name_is_dns1035_label, name_is_path_segment,
};
pub use net::{cidr, ip, parse_ip};
pub use objects::{domain_prefixed_path, validate_conditions};

use crate::interrupt::pause;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// Maximum length of a DNS label.
pub(crate) const LABEL_MAX: usize = 63;
/// Maximum length of a DNS subdomain.
pub(crate) const SUBDOMAIN_MAX: usize = 253;

/// Formats a message with examples and the pattern, with upstream's wording (including its two spaces before
/// `or`).
pub(crate) fn pattern_error(message: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{pattern}')");
    }
    // Upstream joins quoted examples that end in a comma, hence the two spaces before `or`.
    let shown: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!(
        "{message} (e.g. {}regex used for validation is '{pattern}')",
        shown.join(" or ")
    )
}

/// The message for a value longer than `max` characters.
pub fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// The message for a number outside `low..=high`.
pub(crate) fn out_of_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// The message for an empty value.
pub(crate) const EMPTY: &str = "must be non-empty";

fn is_dns_char(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn matches_label(s: &str) -> bool {
    let b = s.as_bytes();
    // First and last byte are checked apart from the rest; an empty string has neither and does not match.
    matches!((b.first(), b.last()), (Some(f), Some(l)) if is_dns_char(*f) && is_dns_char(*l))
        && b.iter().all(|&c| is_dns_char(c) || c == b'-')
}

fn matches_subdomain(s: &str) -> bool {
    // Splitting gives an empty label for leading, trailing and doubled dots, which never matches.
    s.split('.').all(matches_label)
}

fn matches_qualified(s: &str) -> bool {
    let b = s.as_bytes();
    matches!((b.first(), b.last()), (Some(f), Some(l)) if f.is_ascii_alphanumeric() && l.is_ascii_alphanumeric())
        && b.iter()
            .all(|&c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

fn subdomain_error() -> String {
    pattern_error(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
        SUBDOMAIN,
        &["example.com"],
    )
}

/// Checks a DNS-1123 label: `my-name`.
pub fn dns1123_label(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    // Length and form are reported independently, as upstream's functions in `validation.go` do.
    if s.len() > LABEL_MAX {
        out.push(too_long(LABEL_MAX));
    }
    if !matches_label(s) {
        // A subdomain that is not a label contains dots.
        out.push(if matches_subdomain(s) {
            "must not contain dots".to_owned()
        } else {
            pattern_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    out
}

/// Checks a DNS-1123 subdomain: `example.com`.
pub fn dns1123_subdomain(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > SUBDOMAIN_MAX {
        out.push(too_long(SUBDOMAIN_MAX));
    }
    if !matches_subdomain(s) {
        out.push(subdomain_error());
    }
    out
}

/// Checks a DNS-1123 subdomain that may contain underscores, as DNS search lists do: `_tcp.example.com`.
pub fn dns1123_subdomain_with_underscore(s: &str) -> Vec<String> {
    const FORM: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
    let mut out = Vec::new();
    if s.len() > SUBDOMAIN_MAX {
        out.push(too_long(SUBDOMAIN_MAX));
    }
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |part: &str| {
        // One leading underscore per label is allowed; edges are checked behind it.
        let part = part.strip_prefix('_').unwrap_or(part);
        let edge = |c: Option<u8>| c.is_some_and(plain);
        edge(part.bytes().next())
            && edge(part.bytes().last())
            && part.bytes().all(|c| plain(c) || matches!(c, b'-' | b'_'))
    };
    if !s.split('.').all(label) {
        out.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            FORM,
            &["example.com"],
        ));
    }
    out
}

/// Checks a DNS-1123 subdomain whose first label is `*`.
pub fn wildcard_dns1123_subdomain(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > SUBDOMAIN_MAX {
        out.push(too_long(SUBDOMAIN_MAX));
    }
    if !s.strip_prefix("*.").is_some_and(matches_subdomain) {
        out.push(pattern_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    out
}

/// Checks a DNS-1035 label: a DNS-1123 label that starts with a letter.
pub fn dns1035_label(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > LABEL_MAX {
        out.push(too_long(LABEL_MAX));
    }
    // `matches_label` rejects the empty string, so the index is safe.
    if !(matches_label(s) && s.as_bytes()[0].is_ascii_lowercase()) {
        out.push(pattern_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    out
}

/// Checks a label key or other qualified name: `name` or `example.com/name`.
pub fn qualified_name(s: &str) -> Vec<String> {
    // Label maps and annotations have as many keys as a client sends.
    pause();
    const WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut out = Vec::new();
    let (prefix, name) = match s.split_once('/') {
        // More than one slash is a single error: upstream does not look at the parts.
        Some((_, rest)) if rest.contains('/') => {
            out.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern_error(WORDS, QUALIFIED, &EXAMPLES)
            ));
            return out;
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, s),
    };
    match prefix {
        Some("") => out.push(format!("prefix part {EMPTY}")),
        Some(p) => {
            if p.len() > SUBDOMAIN_MAX {
                out.push(format!("prefix part must be no more than {SUBDOMAIN_MAX} bytes"));
            }
            if !matches_subdomain(p) {
                out.push(format!("prefix part {}", subdomain_error()));
            }
        }
        None => {}
    }
    if name.is_empty() {
        out.push(format!("name part {EMPTY}"));
    } else if name.len() > LABEL_MAX {
        // Counts bytes and says so, unlike the messages for whole names.
        out.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    // An empty name causes this error, too, as upstream.
    if !matches_qualified(name) {
        out.push(format!("name part {}", pattern_error(WORDS, QUALIFIED, &EXAMPLES)));
    }
    out
}

/// Checks a label value: empty, or at most 63 bytes of name characters.
pub fn label_value(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > LABEL_MAX {
        out.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !s.is_empty() && !matches_qualified(s) {
        out.push(pattern_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    out
}

/// Checks a name that is used as a URL path segment.
pub fn path_segment_name(s: &str) -> Vec<String> {
    // Upstream's `path.IsValidPathSegmentName` returns at once for these.
    match s {
        "." | ".." => vec![format!("may not be '{s}'")],
        _ => path_segment_prefix(s),
    }
}

/// Checks a `generateName` whose result is used as a URL path segment.
pub(crate) fn path_segment_prefix(s: &str) -> Vec<String> {
    ["/", "%"]
        .into_iter()
        .filter(|c| s.contains(*c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

fn dot_dirs(s: &str) -> Option<String> {
    // Kubelet writes keys as files of a volume, where names starting with `..` are its own.
    match s {
        "." | ".." => Some(format!("must not be '{s}'")),
        s if s.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// Checks a key of a ConfigMap or Secret, which may become a file name when mounted.
pub fn config_map_key(s: &str) -> Vec<String> {
    // A ConfigMap may have tens of thousands of keys.
    pause();
    let mut out = Vec::new();
    if s.len() > SUBDOMAIN_MAX {
        out.push(too_long(SUBDOMAIN_MAX));
    }
    if s.is_empty()
        || !s
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
    {
        out.push(pattern_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    out.extend(dot_dirs(s));
    out
}

/// Checks the name of an environment variable: any printable ASCII except `=`.
pub fn env_var_name(s: &str) -> Vec<String> {
    if s.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if s.bytes().all(|c| (b' '..=b'~').contains(&c) && c != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// Checks a C identifier.
pub fn c_identifier(s: &str) -> Vec<String> {
    let fine = s.bytes().next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_')
        && s.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    if fine {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// Checks the name of an HTTP header.
pub fn http_header_name(s: &str) -> Vec<String> {
    if !s.is_empty() && s.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_subdomains_are_distinguished() {
        for ok in ["a", "a-b", "0a", "a0"] {
            assert!(dns1123_label(ok).is_empty() && dns1123_subdomain(ok).is_empty(), "{ok}");
        }
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert!(dns1123_subdomain("a.b").is_empty());
        for bad in ["", "-a", "a-", "A", "a..b", ".a", "a_b", "ä"] {
            assert_eq!(dns1123_subdomain(bad).len(), 1, "{bad}");
        }
        assert!(!dns1035_label("0a").is_empty() && dns1035_label("a0").is_empty());
        assert_eq!(
            dns1123_label("Bad"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
    }

    #[test]
    fn empty_label_key_yields_two_errors() {
        let e = qualified_name("");
        assert_eq!(e.len(), 2);
        assert_eq!(e[0], "name part must be non-empty");
        assert!(qualified_name("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert!(qualified_name("example.com/x_y.Z").is_empty());
        assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
        assert_eq!(
            qualified_name(&"k".repeat(64)),
            ["name part must be no more than 63 bytes"]
        );
    }

    #[test]
    fn keys_must_not_traverse_directories() {
        assert_eq!(config_map_key(".."), ["must not be '..'"]);
        assert_eq!(config_map_key("..a"), ["must not start with '..'"]);
        assert!(config_map_key("a..b_C-1").is_empty());
        assert_eq!(
            path_segment_name("a/b%c"),
            ["may not contain '/'", "may not contain '%'"]
        );
    }
}

//! Which messages are part of the API, and which only show how kube-apiserver is implemented.

/// Texts of Go's decoders, types and system calls, and of upstream's CEL compiler.
const MARKS: &[&str] = &[
    "&value.",
    "&{",
    "*v1",
    "ERROR: <input>",
    "Go struct field",
    "Go value of type",
    "ReadString",
    "cannot convert int64",
    "connection refused",
    "couldn't get version/kind",
    "dial tcp",
    "error converting YAML",
    "error unmarshal",
    "illegal base64",
    "into Go",
    "invalid character",
    "json: cannot unmarshal",
    "jsonpatch",
    "looking for beginning",
    "proto: ",
    "reflect.",
    "request did not complete",
    "scheme \"pkg/",
    "strconv.",
    "unable to decode",
    "unexpected EOF",
    "unexpected end of JSON",
    "yaml: ",
];

/// Whether a message shows an implementation detail. Only the presence of such messages is compared.
pub(crate) fn is_implementation(message: &str) -> bool {
    MARKS.iter().any(|mark| message.contains(mark))
        || message.match_indices("map[").any(|(i, _)| !ends_in_word(&message[..i]))
        || message
            .match_indices("v1.")
            .any(|(i, _)| is_go_literal(&message[i + 3..]))
        || message
            .split_once("no kind \"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .is_some_and(|(_, rest)| rest.starts_with(" is registered"))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_in_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(is_word)
}

/// `Pod{`, as Go prints a struct.
fn is_go_literal(text: &str) -> bool {
    let rest = text.trim_start_matches(is_word);
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.len() - rest.len() > 1 && rest.starts_with('{')
}

/// Whether two messages are equal except for the order of their errors: `prefix: [first, second]`.
pub(crate) fn are_same_errors(a: &str, b: &str) -> bool {
    fn parts(message: &str) -> Option<(&str, Vec<&str>)> {
        let (prefix, errors) = message.strip_suffix(']')?.split_once(": [")?;
        let mut errors: Vec<&str> = errors.split(", ").collect();
        errors.sort_unstable();
        Some((prefix, errors))
    }
    a == b || parts(a).is_some_and(|a| parts(b).as_ref() == Some(&a))
}

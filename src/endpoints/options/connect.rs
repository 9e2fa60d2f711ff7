//! Options of connect subresources (`PodExecOptions` and the like), decoded from the query into an object for
//! admission and the connector.
//!
//! Entry point: [`read`]. These kinds are not part of OpenAPI documents, so their fields are listed here.

use super::Query;
use crate::apimachinery::field::quote;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use std::num::IntErrorKind;

#[derive(Clone, Copy)]
enum OptionType {
    Text,
    Flag,
    Int,
    Time,
    Texts,
    Ints,
}

use OptionType::{Flag, Int, Ints, Text, Texts, Time};

type Fields = &'static [(&'static str, OptionType)];

const EXEC: Fields = &[
    ("stdin", Flag),
    ("stdout", Flag),
    ("stderr", Flag),
    ("tty", Flag),
    ("container", Text),
    ("command", Texts),
];
const ATTACH: Fields = &[
    ("stdin", Flag),
    ("stdout", Flag),
    ("stderr", Flag),
    ("tty", Flag),
    ("container", Text),
];
const LOG: Fields = &[
    ("container", Text),
    ("follow", Flag),
    ("previous", Flag),
    ("sinceSeconds", Int),
    ("sinceTime", Time),
    ("timestamps", Flag),
    ("tailLines", Int),
    ("limitBytes", Int),
    ("insecureSkipTLSVerifyBackend", Flag),
    ("stream", Text),
];

fn fields(kind: &str) -> Fields {
    match kind {
        "PodLogOptions" => LOG,
        "PodExecOptions" => EXEC,
        "PodAttachOptions" => ATTACH,
        "PodPortForwardOptions" => &[("ports", Ints)],
        "PodProxyOptions" | "ServiceProxyOptions" | "NodeProxyOptions" => &[("path", Text)],
        _ => &[],
    }
}

/// The options of a kind with their JSON types, for the parameters in OpenAPI.
pub(crate) fn described(kind: &str) -> Vec<(&'static str, &'static str)> {
    let named = |ty: OptionType| match ty {
        Flag => Some("boolean"),
        Int | Ints => Some("integer"),
        Text | Texts => Some("string"),
        // Upstream documents only parameters of simple types, which a time is not.
        Time => None,
    };
    fields(kind)
        .iter()
        .filter_map(|(name, ty)| Some((*name, named(*ty)?)))
        .collect()
}

/// Parses a port of a port-forward with the errors of Go's `ParseUint(s, 10, 16)`.
fn port(text: &str) -> Result<i64> {
    let why = match text.parse::<u16>() {
        // Rust accepts a leading plus sign, Go's `ParseUint` does not.
        Ok(port) if !text.starts_with('+') => return Ok(port.into()),
        Err(e) if *e.kind() == IntErrorKind::PosOverflow && !text.starts_with('+') => "value out of range",
        _ => "invalid syntax",
    };
    let why = format!("strconv.ParseUint: parsing {}: {why}", quote(text));
    Err(Status::bad_request(format!("cannot convert to []int32: {why}")))
}

fn int(text: &str) -> Result<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let bad = |why: &str| Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quote(text)));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad("invalid syntax"));
    }
    text.parse().map_err(|_| bad("value out of range"))
}

/// Builds the options object of `kind` (core/v1). `path` is the part of the URL after a proxy subresource; it
/// takes precedence over the query's `path`. Unset and zero values are omitted, except for pointer fields.
///
/// # Errors
/// 400 with Go's message for malformed numbers and times.
pub(crate) fn read(kind: &str, query: &Query, path: &str) -> Result<Value> {
    let mut out = Value::object();
    out.set(&["kind"], kind);
    out.set(&["apiVersion"], "v1");
    for (name, ty) in fields(kind) {
        let Some(text) = query.get(name) else { continue };
        match ty {
            Text if !text.is_empty() => out.set(&[name], text),
            Flag if query.flag(name) == Some(true) => out.set(&[name], true),
            Int if !text.is_empty() => out.set(&[name], int(text)?),
            Time if !text.is_empty() => {
                let read = time::parse(text).map_err(Status::bad_request)?;
                out.set(&[name], time::format(read));
            }
            // Set even if all values are empty: each value is an argument of the command.
            Texts => out.set(
                &[name],
                query.all(name).into_iter().map(Value::from).collect::<Vec<_>>(),
            ),
            Ints => {
                let all = query.all(name);
                // Upstream also splits each of the repeated values at commas.
                let all = all.iter().flat_map(|v| v.split(',')).map(port);
                let all: Vec<i64> = all.collect::<Result<_>>()?;
                out.set(&[name], all.into_iter().map(Value::from).collect::<Vec<_>>());
            }
            _ => {}
        }
    }
    if kind.ends_with("ProxyOptions") && !path.is_empty() {
        out.set(&["path"], path);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn queries_decode_into_options() {
        let of = |kind, query| read(kind, &Query::parse(query), "");
        assert_eq!(
            of("PodExecOptions", "command=ls&command=-l&stdout=true&stdin=false&x=y").unwrap(),
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls", "-l"], "stdout": true})
        );
        assert_eq!(
            of("PodPortForwardOptions", "ports=80&ports=81").unwrap(),
            json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80, 81]})
        );
        assert_eq!(
            of("PodLogOptions", "tailLines=x").unwrap_err().message,
            "strconv.ParseInt: parsing \"x\": invalid syntax"
        );
        for (bad, why) in [
            ("x", "invalid syntax"),
            ("-1", "invalid syntax"),
            (" 1", "invalid syntax"),
            ("", "invalid syntax"),
            ("65536", "value out of range"),
        ] {
            let query = format!("ports=80,{}", bad.replace(" ", "+"));
            assert_eq!(
                read("PodPortForwardOptions", &Query::parse(&query), "")
                    .unwrap_err()
                    .message,
                format!("cannot convert to []int32: strconv.ParseUint: parsing \"{bad}\": {why}")
            );
        }
        assert!(
            of("PodLogOptions", "sinceTime=x")
                .unwrap_err()
                .message
                .starts_with("parsing time \"x\"")
        );
    }

    #[test]
    fn proxy_path_is_taken_from_the_url() {
        let options = read("PodProxyOptions", &Query::parse("path=/other"), "/a/").unwrap();
        assert_eq!(options.str_at(&["path"]), "/a/");
    }
}

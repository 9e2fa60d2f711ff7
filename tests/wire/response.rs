//! Normalises the response of a step, in the form in which recordings hold it.

use crate::case::{Compare, Step};
use crate::http::{Headers, Response, header};
use crate::normalise::{Normaliser, sort_managed_fields};
use crate::request::{Environment, fill};
use crate::{paths, text, views};
use serde_json::{Map, Value, json};

/// Headers that are compared for every step.
const COMPARED: &[&str] = &[
    "Content-Type",
    "Warning",
    "Retry-After",
    "Location",
    "WWW-Authenticate",
    "Allow",
];

/// Headers that only the steps compare that name them. Any other header is a difference, whatever its value:
/// the recordings have none.
const ALLOWED: &[&str] = &[
    // OpenAPI documents have it; the recordings omit it.
    "Accept-Ranges",
    "Audit-Id",
    "Cache-Control",
    "Connection",
    "Content-Length",
    "Date",
    "Etag",
    "Last-Modified",
    // Set by Go's metrics handler.
    "Process-Start-Time-Unix",
    "Transfer-Encoding",
    "Vary",
    "X-Content-Type-Options",
    "X-Kubernetes-Pf-Flowschema-Uid",
    "X-Kubernetes-Pf-Prioritylevel-Uid",
    // Set by the extension server in `callback.rs` and forwarded.
    "X-Parity",
];

/// The status code, headers and body of a response.
pub(crate) fn normalise(
    step: &Step,
    response: &Response,
    document: &Value,
    environment: &Environment,
    normaliser: &mut Normaliser,
) -> Value {
    let mut out = json!({
        "status": response.status,
        "headers": headers(step, &response.headers, normaliser),
    });
    if step.compare != Compare::Everything {
        return out;
    }
    let view = step.view.as_deref().filter(|_| response.status < 300);
    set_masks(step, normaliser);
    let mut body = match view {
        // These have thousands of members, none of them made by the server except names of this run.
        Some(view) if view.starts_with("openapi") => {
            let text = views::apply(&fill(view, environment), document).to_string();
            let text = text.replace(&environment["x"], "${x}");
            serde_json::from_str(&text).expect("names have nothing to escape")
        }
        Some(view) => normaliser.document(&views::apply(&fill(view, environment), document), &step.id),
        None => normaliser.document(document, &step.id),
    };
    ignore(step, &mut body);
    for path in &step.unordered {
        if let Some(Value::Array(items)) = paths::get_mut(&mut body, path) {
            items.sort_by_cached_key(Value::to_string);
        }
    }
    out["body"] = body;
    out
}

/// Brings a recorded response into the order that [`normalise`] gives to sets.
pub(crate) fn in_order(step: &Step, recorded: &Value) -> Value {
    fn walk(value: &mut Value) {
        sort_managed_fields(value);
        match value {
            Value::Object(members) => members.values_mut().for_each(walk),
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    let mut out = recorded.clone();
    walk(&mut out);
    for path in &step.unordered {
        if let Some(Value::Array(items)) = out.get_mut("body").and_then(|b| paths::get_mut(b, path)) {
            items.sort_by_cached_key(Value::to_string);
        }
    }
    out
}

/// Uses the patterns of this step.
pub(crate) fn set_masks(step: &Step, normaliser: &mut Normaliser) {
    let masks = step.mask.iter().map(|(from, to)| (text::pattern(from), to.clone()));
    normaliser.texts.masks = masks.collect();
}

/// Blanks the values that the step ignores; their presence is still compared.
pub(crate) fn ignore(step: &Step, value: &mut Value) {
    for path in &step.ignore {
        if let Some(value) = paths::get_mut(value, path) {
            *value = json!("<ignored>");
        }
    }
}

/// The headers that are compared, and those that no response should have.
pub(crate) fn headers(step: &Step, headers: &Headers, normaliser: &mut Normaliser) -> Value {
    let mut out = Map::new();
    let is = |n: &str, name: &str| n.trim_end_matches('?').eq_ignore_ascii_case(name);
    let named = || {
        COMPARED
            .iter()
            .copied()
            .chain(step.check_headers.iter().map(String::as_str))
    };
    for name in named() {
        // With a question mark only the presence is compared.
        let (name, presence) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
        let all = headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut all: Vec<String> = all.map(|(_, v)| v.clone()).collect();
        if all.is_empty() || step.ignore_headers.iter().any(|n| n.eq_ignore_ascii_case(name)) {
            continue;
        }
        let value = if presence {
            json!("<present>")
        } else if name == "Content-Type" {
            let parts: Vec<&str> = all[0].split(';').map(str::trim).collect();
            json!(parts.join(";"))
        } else {
            all.iter_mut()
                .for_each(|v| *v = normaliser.texts.normalise(v, &step.id));
            all.sort();
            match &all[..] {
                [one] => json!(one),
                many => json!(many),
            }
        };
        out.insert(name.to_owned(), value);
    }
    for (name, value) in headers {
        if !named().chain(ALLOWED.iter().copied()).any(|n| is(n, name)) {
            out.insert(name.clone(), json!(value));
        }
    }
    Value::Object(out)
}

/// The entity tag, which steps can send back.
pub(crate) fn etag(headers: &Headers) -> Option<&str> {
    header(headers, "etag")
}

//! Builds the request of a step.

use crate::case::Step;
use crate::http::{Headers, Request};
use crate::normalise::Normaliser;
use crate::{paths, protobuf};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The manager names in the recordings come from this.
const USER_AGENT: &str = "parity/1.0";

/// The values of `${name}` in a run.
pub(crate) type Environment = BTreeMap<String, String>;

/// Replaces `${name}`. Unknown names stay.
pub(crate) fn fill(text: &str, environment: &Environment) -> String {
    substitute(text, environment, str::to_owned)
}

/// The same in JSON text, where `"${name:int}"` stands for a number.
pub(crate) fn fill_json(text: &str, environment: &Environment) -> String {
    let mut text = substitute(text, environment, |value| {
        let quoted = json!(value).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    });
    for (name, value) in environment {
        let number = format!("\"${{{name}:int}}\"");
        if text.contains(&number) {
            text = text.replace(&number, value);
        }
    }
    text
}

fn substitute(text: &str, environment: &Environment, write: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        out += before;
        let end = from.find('}').unwrap_or(from.len() - 1);
        match environment.get(&from[2..end.max(2)]) {
            Some(value) => out += &write(value),
            None => out += &from[..=end],
        }
        rest = &from[end + 1..];
    }
    out + rest
}

pub(crate) fn fill_value(value: &Value, environment: &Environment) -> Value {
    serde_json::from_str(&fill_json(&value.to_string(), environment)).expect("filled JSON is JSON")
}

fn patch_type(name: &str) -> &'static str {
    match name {
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "smp" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        other => panic!("unknown patch {other}"),
    }
}

/// A value that an earlier step captured. There is none if that step failed.
fn captured<'a>(name: &str, environment: &'a Environment) -> Result<&'a str, String> {
    let value = environment.get(name).map(String::as_str);
    value.ok_or_else(|| format!("{name} was not captured"))
}

/// The token of an identity, as in [`crate::gateway`].
fn token(identity: &str, environment: &Environment) -> Result<Option<String>, String> {
    Ok(match identity {
        "anonymous" => None,
        "bad" => Some("no-such-token".to_owned()),
        // Another server may have another administrator.
        "admin" => Some(environment["admin"].clone()),
        _ => Some(match identity.strip_prefix('$') {
            Some(name) => captured(name, environment)?.to_owned(),
            None => format!("{identity}token"),
        }),
    })
}

/// Makes the request of a step, and records its values in the normaliser.
///
/// # Errors
/// If the step needs something that an earlier step should have captured.
pub(crate) fn build(
    step: &Step,
    environment: &Environment,
    authority: &str,
    normaliser: &mut Normaliser,
) -> Result<Request, String> {
    let mut headers: Headers = vec![
        ("Host".to_owned(), authority.to_owned()),
        ("User-Agent".to_owned(), USER_AGENT.to_owned()),
        ("Accept".to_owned(), "application/json".to_owned()),
    ];
    if let Some(token) = token(step.identity.as_deref().unwrap_or("admin"), environment)? {
        headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    }
    let body = body(step, environment, normaliser)?;
    if body.is_some() {
        let of_type = match &step.patch {
            Some(patch) => patch_type(patch),
            None if step.proto.is_some() => "application/vnd.kubernetes.protobuf",
            None => "application/json",
        };
        headers.push(("Content-Type".to_owned(), of_type.to_owned()));
    }
    for (name, value) in &step.headers {
        headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        for value in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
            if let Some(value) = value.as_str() {
                headers.push((name.clone(), fill(value, environment)));
            }
        }
    }
    Ok(Request {
        method: step.method().to_owned(),
        path: fill(&step.path, environment),
        headers,
        body,
    })
}

fn body(step: &Step, environment: &Environment, normaliser: &mut Normaliser) -> Result<Option<Vec<u8>>, String> {
    let document = if let Some(name) = &step.body_from {
        let document = captured(name, environment)?;
        let mut document: Value = serde_json::from_str(document).map_err(|e| format!("{name}: {e}"))?;
        for edit in &step.edit {
            normaliser.sent(&json!(edit));
            let edit = fill_value(&json!(edit), environment);
            let value = edit.get(2).cloned().unwrap_or_default();
            let text = |i: usize| edit[i].as_str().expect("an edit is an operation and a path");
            paths::edit(&mut document, text(0), text(1), value)?;
        }
        Some(document.to_string())
    } else if let Some(body) = &step.body {
        normaliser.sent(&serde_json::from_str(body.get()).expect("it is JSON"));
        Some(fill_json(body.get(), environment))
    } else {
        None
    };
    if let Some(text) = document {
        expect_generated_name(&text, environment, normaliser);
        return Ok(Some(text.into_bytes()));
    }
    if let Some(raw) = &step.raw {
        normaliser.sent_text(raw);
        return Ok(Some(fill(raw, environment).into_bytes()));
    }
    if let Some(spec) = &step.proto {
        normaliser.sent(spec);
        return Ok(Some(protobuf::encode(&fill_value(spec, environment))));
    }
    if let Some((before, n, after)) = &step.huge {
        let text = fill(before, environment) + &"x".repeat(*n) + &fill(after, environment);
        return Ok(Some(text.into_bytes()));
    }
    let binary = step.b64.as_ref().map(|b| BASE64_STANDARD.decode(b));
    Ok(binary.map(|b| b.expect("it is base64")))
}

/// Messages may contain a name that the server made from this body's generateName.
fn expect_generated_name(body: &str, environment: &Environment, normaliser: &mut Normaliser) {
    if !body.contains("generateName") {
        return;
    }
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let prefix = paths::text(&body, "metadata.generateName");
    if prefix.len() > 1 && paths::text(&body, "metadata.name").is_empty() {
        let prefix = prefix.replace(&environment["x"], "${x}");
        normaliser.texts.prefixes.insert(prefix);
    }
}

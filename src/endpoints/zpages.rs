//! `/flagz` and `/statusz`: the flags, version and uptime of this process
//! (`k8s.io/apiserver/pkg/server/{flagz,statusz}`).
//!
//! Served as plain text by default, or in a structured form if `Accept` names its kind and version.

use crate::apimachinery::codec::{json, yaml};
use crate::apimachinery::status::Status;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::json;
use crate::request::accept::{accept_line, clauses};
use crate::request::{Request, Response};
use crate::server::mux::DynHandler;
use crate::server::respond::{self, FnHandler, TEXT};
use crate::telemetry::process::{GIT_VERSION, GO_VERSION};
use ::time::OffsetDateTime;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAME: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
const TYPES: [&str; 3] = ["application/json", "application/yaml", "text/plain"];
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// The representation of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    /// The structured form: its version, and one of the [`TYPES`].
    Structured(&'static str, &'static str),
}

/// Negotiates the representation; `None` if no clause can be served.
fn form(accept: &str, kind: &str) -> Option<Form> {
    clauses(accept).into_iter().find_map(|clause| {
        let asked = ["as", "g", "v"].map(|name| clause.param(name));
        if asked == [None; 3] {
            let plain = clause.takes("text/plain") && clause.param("stream").is_none();
            return plain.then_some(Form::Text);
        }
        let version = VERSIONS
            .into_iter()
            .find(|v| asked == [Some(kind), Some(GROUP), Some(v)])?;
        // The structured forms exclude plain text.
        let media = TYPES[..2].iter().find(|t| clause.takes(t))?;
        Some(Form::Structured(version, media))
    })
}

/// Builds the handler of a page from its plain text and the members of its structured form.
fn page(
    kind: &'static str,
    text: impl Fn() -> String + Send + Sync + 'static,
    members: impl Fn() -> Value + Send + Sync + 'static,
) -> DynHandler {
    let endpoint = kind.to_ascii_lowercase();
    Arc::new(FnHandler(move |req: &Request| -> Response {
        match form(accept_line(req.headers()), kind) {
            None => respond::status_without_protobuf(&Status::not_acceptable(&TYPES), req.headers()),
            Some(Form::Text) => respond::bytes(StatusCode::OK, TEXT, text().into_bytes()),
            Some(Form::Structured(version, media)) => {
                let mut v = members();
                v.set(&["kind"], kind);
                v.set(&["apiVersion"], format!("{GROUP}/{version}"));
                v.set(&["metadata", "name"], NAME);
                let body = match media {
                    "application/yaml" => yaml::to_vec(&v),
                    _ => json::to_vec(&v),
                };
                let content_type = format!("{media};g={GROUP};v={version};as={kind}");
                let mut response = respond::bytes(StatusCode::OK, TEXT, body);
                // Set afterwards: its parameters are not static.
                respond::set_header(response.headers_mut(), CONTENT_TYPE, &content_type);
                if version == "v1alpha1" {
                    let warning = format!(
                        "299 - \"This version of the {endpoint} endpoint is deprecated. Please use a newer version.\""
                    );
                    if let Ok(warning) = HeaderValue::from_str(&warning) {
                        response
                            .headers_mut()
                            .insert(HeaderName::from_static("warning"), warning);
                    }
                }
                response
            }
        }
    }))
}

fn header(endpoint: &str) -> String {
    format!(
        "\n{NAME} {endpoint}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
         compatibility guarantees and is for debugging purposes only.\n"
    )
}

/// The `/flagz` page: all flags with their values.
pub(crate) fn flagz(mut flags: Vec<(String, String)>) -> DynHandler {
    // Sorted once, at start: flags do not change while the process runs.
    flags.sort();
    let flags = Arc::new(flags);
    let shown = flags.clone();
    let text = move || {
        let lines = shown.iter().map(|(k, v)| format!("{k}={v}\n"));
        header("flagz") + &lines.collect::<String>()
    };
    page("Flagz", text, move || {
        let mut v = json!({"flags": {}});
        for (name, value) in flags.iter() {
            v.set(&["flags", name], value.as_str());
        }
        v
    })
}

/// The `/statusz` page: start time, version and paths.
pub(crate) fn statusz(
    started: OffsetDateTime,
    since: Instant,
    paths: impl Fn() -> Vec<String> + Send + Sync + 'static,
) -> DynHandler {
    let paths = Arc::new(move || top_level_paths(&paths()));
    let shown = paths.clone();
    let (start_time, start_date) = (time::format(started), time::format_unix_date(started));
    let binary = binary_version();
    let text = move || {
        format!(
            "{}\nStarted: {start_date}\nUp: {}\nGo version: {GO_VERSION}\nBinary version: {binary}\nEmulation version: 1.36\n\
             Paths: {}\n",
            header("statusz"),
            up(since.elapsed()),
            shown().join(" ")
        )
    };
    page("Statusz", text, move || {
        let mut v = json!({"startTime": start_time, "goVersion": GO_VERSION, "binaryVersion": binary,
            "emulationVersion": "1.36"});
        v.set(&["uptimeSeconds"], since.elapsed().as_secs() as i64);
        v.set(&["paths"], paths());
        v
    })
}

/// The first segments of paths, sorted, without those of the APIs, OpenAPI and the keys of service accounts.
fn top_level_paths(paths: &[String]) -> Vec<String> {
    const HIDDEN: [&str; 6] = ["", "apis", "api", "openid", "openapi", ".well-known"];
    let first = |path: &String| path.split('/').nth(1).map(str::to_owned);
    let all: BTreeSet<String> = paths.iter().filter_map(first).collect();
    let shown = all.into_iter().filter(|f| !HIDDEN.contains(&f.as_str()));
    shown.map(|f| format!("/{f}")).collect()
}

/// The numbers of the version, without the build.
fn binary_version() -> &'static str {
    let version = GIT_VERSION.trim_start_matches('v');
    version.split(['-', '+']).next().unwrap_or(version)
}

fn up(for_long: Duration) -> String {
    let s = for_long.as_secs();
    format!("{} hr {:02} min {:02} sec", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_listed_by_their_first_segment() {
        let paths = ["/", "/apis/apps", "/livez/ping", "/livez", "/version", "/.well-known/x"].map(str::to_owned);
        assert_eq!(top_level_paths(&paths), ["/livez", "/version"]);
        assert!(binary_version().bytes().all(|b| b == b'.' || b.is_ascii_digit()));
    }

    #[test]
    fn structured_form_requires_kind_and_version() {
        assert_eq!(form("", "Flagz"), Some(Form::Text));
        assert_eq!(form("application/json, */*", "Flagz"), Some(Form::Text));
        assert_eq!(form("application/json", "Flagz"), None);
        assert_eq!(
            form("application/json;as=Flagz;v=v1beta1;g=config.k8s.io", "Flagz"),
            Some(Form::Structured("v1beta1", "application/json"))
        );
        assert_eq!(
            form(
                "text/plain;q=0.1,application/*;as=Flagz;v=v1alpha1;g=config.k8s.io",
                "Flagz"
            ),
            Some(Form::Structured("v1alpha1", "application/json"))
        );
        assert_eq!(
            form("application/yaml;as=Flagz;v=v1beta1;g=config.k8s.io", "Flagz"),
            Some(Form::Structured("v1beta1", "application/yaml"))
        );
        assert_eq!(form("text/plain;as=Flagz", "Flagz"), None);
        assert_eq!(
            form("application/json;as=Flagz;v=v1beta1;g=config.k8s.io", "Statusz"),
            None
        );
    }
}

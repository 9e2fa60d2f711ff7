//! Validation of how webhooks are called, for admission and conversion (upstream's
//! `k8s.io/apiserver/pkg/util/webhook/validation.go`). The entry point is [`client_config`].

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_subdomain, net};
use crate::apimachinery::value::Value;

/// The errors of a client configuration: it has exactly one of a URL and a Service.
pub fn client_config(config: &Value, at: &FieldPath) -> ErrorList {
    let out = &mut ErrorList::new();
    let (url, service) = (config.get("url").as_str(), config.get("service"));
    match (url, service.is_null()) {
        (None, true) | (Some(_), false) => {
            out.push(FieldError::required(at, "exactly one of url or service is required"));
        }
        (Some(url), true) => webhook_url(out, url, &at.child("url")),
        (None, false) => {
            let at = at.child("service");
            // An upstream quirk: a missing name is reported at `namespace`, and vice versa.
            for (key, other) in [("name", "namespace"), ("namespace", "name")] {
                if service.str_at(&[key]).is_empty() {
                    out.push(FieldError::required(&at.child(other), ""));
                }
            }
            let port = service.get("port").as_i64().unwrap_or(443);
            for why in net::port(port) {
                out.push(FieldError::invalid(
                    &at.child("port"),
                    port,
                    format!("port is not valid: {why}"),
                ));
            }
            if let Some(path) = service.get("path").as_str() {
                webhook_path(out, path, &at.child("path"));
            }
        }
    }
    std::mem::take(out)
}

fn webhook_url(out: &mut ErrorList, url: &str, at: &FieldPath) {
    const FORM: &str = "; desired format: https://host[/path]";
    let Ok(uri) = url.parse::<http::Uri>() else {
        out.push(FieldError::required(
            at,
            format!("url must be a valid URL: parse {url:?}: invalid URI{FORM}"),
        ));
        return;
    };
    if uri.scheme_str() != Some("https") {
        let scheme = uri.scheme_str().unwrap_or("");
        out.push(FieldError::invalid(
            at,
            scheme,
            format!("'https' is the only allowed URL scheme{FORM}"),
        ));
    }
    if uri.host().unwrap_or("").is_empty() {
        out.push(FieldError::invalid(at, "", format!("host must be specified{FORM}")));
    }
    if let Some((user, _)) = uri.authority().and_then(|a| a.as_str().split_once('@')) {
        out.push(FieldError::invalid(
            at,
            user,
            "user information is not permitted in the URL",
        ));
    }
    if let Some((_, fragment)) = url.split_once('#') {
        out.push(FieldError::invalid(
            at,
            fragment,
            "fragments are not permitted in the URL",
        ));
    }
    if let Some(query) = uri.query() {
        out.push(FieldError::invalid(
            at,
            query,
            "query parameters are not permitted in the URL",
        ));
    }
}

fn webhook_path(out: &mut ErrorList, path: &str, at: &FieldPath) {
    if path.is_empty() || path == "/" {
        return;
    }
    if path == "//" {
        out.push(FieldError::invalid(at, path, "segment[0] may not be empty"));
        return;
    }
    if !path.starts_with('/') {
        out.push(FieldError::invalid(at, path, "must start with a '/'"));
    }
    // As upstream, drop the first character even if it is not a slash.
    let mut trimmed = path.chars();
    trimmed.next();
    let trimmed = trimmed.as_str();
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    for (i, segment) in trimmed.split('/').enumerate() {
        if segment.is_empty() {
            // Built lazily: each error repeats the whole path, so many bad segments would take quadratic space.
            out.push_with(|| FieldError::invalid(at, path, format!("segment[{i}] may not be empty")));
            continue;
        }
        for why in dns1123_subdomain(segment) {
            out.push_with(|| FieldError::invalid(at, path, format!("segment[{i}]: {why}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_without_a_name_reports_upstreams_order() {
        let config = crate::json!({"service": {"namespace": "n", "path": "a/b"}});
        let out = client_config(&config, &FieldPath::new("c"));
        let errors: Vec<String> = out.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "c.service.namespace: Required value",
                "c.service.path: Invalid value: \"a/b\": must start with a '/'",
                "c.service.path: Invalid value: \"a/b\": segment[0] may not be empty",
            ]
        );
    }
}

//! Validation of probes and lifecycle handlers (`validateProbe` and `validateHandler` upstream). Entry point:
//! [`handlers`].

use super::super::common::NOT_NEGATIVE;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{http_header_name, net};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, required_choice};

pub(super) const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Checks a container's lifecycle handlers and probes; `grace` is the pod's grace period in seconds.
pub(super) fn handlers(out: &mut ErrorList, c: &Value, at: &FieldPath, grace: Option<i64>) {
    for key in ["postStart", "preStop"] {
        let v = c.at(&["lifecycle", key]);
        if !v.is_null() {
            handler(out, v, &at.child("lifecycle").child(key), grace, true);
        }
    }
    for key in PROBES {
        let v = c.get(key);
        if !v.is_null() {
            probe(out, v, key, &at.child(key), grace);
        }
    }
}

fn probe(out: &mut ErrorList, v: &Value, key: &str, at: &FieldPath, grace: Option<i64>) {
    handler(out, v, at, grace, false);
    for name in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        if let Some(n) = v.get(name).as_i64().filter(|n| *n < 0) {
            out.push(FieldError::invalid(&at.child(name), n, NOT_NEGATIVE));
        }
    }
    if let Some(n) = v.get("terminationGracePeriodSeconds").as_i64() {
        let at = at.child("terminationGracePeriodSeconds");
        if n <= 0 {
            out.push(FieldError::invalid(&at, n, "must be greater than 0"));
        }
        // A failing readiness probe does not terminate the container.
        if key == "readinessProbe" {
            out.push(FieldError::invalid(&at, n, "must not be set for readinessProbes"));
        }
    }
    let success = v.get("successThreshold").as_i64().unwrap_or(0);
    // Liveness and startup probes act on the first success; several in a row have no meaning.
    if key != "readinessProbe" && success != 1 {
        out.push(FieldError::invalid(&at.child("successThreshold"), success, "must be 1"));
    }
}

fn handler(out: &mut ErrorList, v: &Value, path: &FieldPath, grace: Option<i64>, sleeps: bool) {
    let mut count = 0;
    // The order decides which of several handlers is reported as the excess one.
    for key in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let h = v.get(key);
        // Probes cannot sleep: the field exists only in lifecycle handlers.
        if h.is_null() || (key == "sleep" && !sleeps) {
            continue;
        }
        let at = path.child(key);
        count += 1;
        if count > 1 {
            out.push(FieldError::forbidden(&at, "may not specify more than 1 handler type"));
            continue;
        }
        match key {
            "exec" => {
                if h.get("command").items().is_empty() {
                    out.push(FieldError::required(&at.child("command"), ""));
                }
            }
            "httpGet" => http_get(out, h, &at),
            "sleep" => {
                let n = h.get("seconds").as_i64().unwrap_or(0);
                if let Some(grace) = grace
                    // Equal is accepted, despite the message.
                    && !(0..=grace).contains(&n)
                {
                    let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    out.push(FieldError::invalid(&at, n, why));
                }
            }
            _ => port(out, h.get("port"), &at.child("port")),
        }
    }
    if count == 0 {
        out.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(out: &mut ErrorList, h: &Value, at: &FieldPath) {
    if h.str_at(&["path"]).is_empty() {
        out.push(FieldError::required(&at.child("path"), ""));
    }
    port(out, h.get("port"), &at.child("port"));
    required_choice(out, h, "scheme", at, &["HTTP", "HTTPS"]);
    // As upstream, the path has no index.
    for header in h.get("httpHeaders").items() {
        let name = header.str_at(&["name"]);
        invalid_each(out, &at.child("httpHeaders"), name, http_header_name(name));
    }
}

fn port(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    match v {
        Value::String(s) => invalid_each(out, at, s.as_str(), net::port_name(s)),
        other => {
            let n = other.as_i64().unwrap_or(0);
            invalid_each(out, at, n, net::port(n));
        }
    }
}

//! Validation of the devices a claim requests. Entry point: [`devices`].

use super::{
    MAX_CONFIGS, MAX_REQUESTS, at_most, configuration, duplicates, full_attribute_name, label_name, selectors,
    tolerations,
};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, required_valid};
use crate::interrupt::checkpoint;
use std::collections::HashMap;

const MAX_CONSTRAINTS: usize = 32;
/// Alternatives of one request (`firstAvailable`): the scheduler tries them one after the other.
const MAX_ALTERNATIVES: usize = 8;
const EITHER: &str = "exactly one of `exactly` or `firstAvailable` is required";

/// Names of a claim's requests, each with the names of its subrequests (`firstAvailable`).
pub(super) struct Requests<'a>(HashMap<&'a str, Seen<&'a str>>);

impl<'a> Requests<'a> {
    pub(super) fn of(devices: &'a Value) -> Self {
        let alternatives = |r: &'a Value| r.get("firstAvailable").items().iter().map(|s| s.str_at(&["name"]));
        let requests = devices.get("requests").items().iter();
        // If several requests have the same name, the last one wins.
        Self(
            requests
                .map(|r| (r.str_at(&["name"]), alternatives(r).collect()))
                .collect(),
        )
    }

    fn has(&self, name: &str, alternative: Option<&str>) -> bool {
        let request = self.0.get(name);
        request.is_some_and(|others| alternative.is_none_or(|a| others.contains(&a)))
    }

    /// Checks a reference to a request: `request` or `request/subrequest`.
    pub(super) fn reference(&self, out: &mut ErrorList, text: &str, at: &FieldPath) {
        let why =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let parts: Vec<&str> = text.split('/').collect();
        if parts.len() > 2 {
            out.push(FieldError::invalid(at, text, why));
            return;
        }
        for part in &parts {
            label_name(out, part, at);
        }
        // Without a subrequest the whole request is meant, whichever alternative is allocated.
        if !self.has(parts[0], parts.get(1).copied()) {
            out.push(FieldError::invalid(at, text, why));
        }
    }

    /// Checks a list of references without duplicates.
    pub(super) fn references(&self, out: &mut ErrorList, v: &Value, at: &FieldPath) {
        let all = at_most(out, v, MAX_REQUESTS, at);
        let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
        for (i, name) in all.iter().enumerate() {
            self.reference(out, &text(name), &at.index(i));
        }
        duplicates(out, all.iter().map(text), at);
    }
}

/// Validates `spec.devices` of a claim.
pub(super) fn devices(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    // Indexed before the requests are validated: references to an invalid request are not errors of their
    // own.
    let known = Requests::of(v);
    let name = |r: &Value| r.str_at(&["name"]).to_owned();

    let at = path.child("requests");
    let all = at_most(out, v.get("requests"), MAX_REQUESTS, &at);
    for (i, r) in all.iter().enumerate() {
        request(out, r, &at.index(i));
    }
    duplicates(out, all.iter().map(name), &at);

    let at = path.child("constraints");
    for (i, c) in at_most(out, v.get("constraints"), MAX_CONSTRAINTS, &at)
        .iter()
        .enumerate()
    {
        constraint(out, c, &known, &at.index(i));
    }

    let at = path.child("config");
    for (i, c) in at_most(out, v.get("config"), MAX_CONFIGS, &at).iter().enumerate() {
        let at = at.index(i);
        known.references(out, c.get("requests"), &at.child("requests"));
        // A claim's spec is immutable, so there are no stored parameters to tolerate.
        configuration(out, c, false, &at);
    }
}

fn request(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    checkpoint();
    label_name(out, v.str_at(&["name"]), &at.child("name"));
    let others = v.get("firstAvailable");
    match (v.get("exactly").is_null(), others.items().is_empty()) {
        (true, true) => out.push(FieldError::required(at, EITHER)),
        (false, false) => {
            let why = format!("{EITHER}, but multiple fields are set");
            // Upstream passes nil as the value.
            out.push(FieldError::invalid(at, Value::Null, why));
        }
        (false, true) => device_request(out, v.get("exactly"), &at.child("exactly")),
        (true, false) => {
            let at = at.child("firstAvailable");
            let all = at_most(out, others, MAX_ALTERNATIVES, &at);
            for (i, s) in all.iter().enumerate() {
                let at = at.index(i);
                label_name(out, s.str_at(&["name"]), &at.child("name"));
                device_request(out, s, &at);
            }
            duplicates(out, all.iter().map(|s| s.str_at(&["name"]).to_owned()), &at);
        }
    }
}

/// Checks the fields that an exact request and a subrequest have in common.
fn device_request(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    required_valid(
        out,
        &at.child("deviceClassName"),
        v.str_at(&["deviceClassName"]),
        dns1123_subdomain,
    );
    selectors(out, v.get("selectors"), &at.child("selectors"));
    let count = v.get("count").as_i64().unwrap_or(0);
    match v.str_at(&["allocationMode"]) {
        // Defaulting sets a count of 1 only for `ExactCount`, so any count here is the client's.
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            out.push(FieldError::invalid(&at.child("count"), count, why));
        }
        "ExactCount" if count <= 0 => {
            out.push(FieldError::invalid(
                &at.child("count"),
                count,
                "must be greater than zero",
            ));
        }
        "All" | "ExactCount" => {}
        other => out.push(FieldError::not_supported(
            &at.child("allocationMode"),
            other,
            &["All", "ExactCount"],
        )),
    }
    tolerations(out, v, at);
}

fn constraint(out: &mut ErrorList, v: &Value, known: &Requests<'_>, at: &FieldPath) {
    known.references(out, v.get("requests"), &at.child("requests"));
    for key in ["matchAttribute", "distinctAttribute"] {
        if let Some(name) = v.get(key).as_str() {
            full_attribute_name(out, name, &at.child(key));
            // Both could be set, but upstream looks no further than the first.
            return;
        }
    }
    // Upstream's message complains about multiple fields, although none is set.
    let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
    out.push(FieldError::required(at, why));
}

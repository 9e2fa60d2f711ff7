//! What may not change about a Service.

use super::service;
use super::traffic::needs_health_check;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, strings};

/// A changed Service: upgrade and downgrade rules first, then everything a new one must be.
pub(crate) fn service_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let external = |v: &Value| v.str_at(&["spec", "type"]) == "ExternalName";
    if !external(new) && !external(old) {
        cluster_ips(&mut out, new, old);
        families(&mut out, new, old);
    }
    let path = FieldPath::new("spec");
    let balanced = |v: &Value| v.str_at(&["spec", "type"]) == "LoadBalancer";
    if balanced(new) && balanced(old) {
        let class = |v: &Value| v.at(&["spec", "loadBalancerClass"]).clone();
        if class(new) != class(old) {
            out.push(FieldError::invalid(
                &path.child("loadBalancerClass"),
                class(new),
                "may not change once set",
            ));
        }
    }
    if needs_health_check(new) && needs_health_check(old) {
        let port = |v: &Value| v.at(&["spec", "healthCheckNodePort"]).as_i64().unwrap_or(0);
        if port(new) != port(old) {
            out.push(FieldError::forbidden(&path.child("healthCheckNodePort"), IMMUTABLE));
        }
    }
    out.extend(service(new, Some(old)));
    out
}

fn cluster_ips(out: &mut ErrorList, new: &Value, old: &Value) {
    let at = FieldPath::new("spec").child("clusterIPs");
    let (now, was) = (
        strings(new.at(&["spec", "clusterIPs"])),
        strings(old.at(&["spec", "clusterIPs"])),
    );
    let shown = || new.at(&["spec", "clusterIPs"]).clone();
    match (was.first(), now.first()) {
        (Some(_), None) => out.push(FieldError::invalid(
            &at.index(0),
            shown(),
            "primary clusterIP can not be unset",
        )),
        (Some(a), Some(b)) if a != b => {
            out.push(FieldError::invalid(&at.index(0), shown(), "may not change once set"));
        }
        _ => {}
    }
    if was.len() == 2 && now.len() == 1 && policy(new) != "SingleStack" {
        out.push(FieldError::invalid(
            &FieldPath::new("spec").child("ipFamilyPolicy"),
            new.at(&["spec", "ipFamilyPolicy"]).clone(),
            "must be set to 'SingleStack' when releasing the secondary clusterIP",
        ));
    }
    if was.len() == 2 && now.len() == 2 && was[1] != now[1] {
        out.push(FieldError::invalid(&at.index(1), shown(), "may not change once set"));
    }
}

fn families(out: &mut ErrorList, new: &Value, old: &Value) {
    let at = FieldPath::new("spec").child("ipFamilies");
    let (now, was) = (
        strings(new.at(&["spec", "ipFamilies"])),
        strings(old.at(&["spec", "ipFamilies"])),
    );
    let shown = || new.at(&["spec", "ipFamilies"]).clone();
    match (was.first(), now.first()) {
        (Some(_), None) => out.push(FieldError::invalid(
            &at.index(0),
            shown(),
            "primary ipFamily can not be unset",
        )),
        (Some(a), Some(b)) if a != b => {
            out.push(FieldError::invalid(&at.index(0), shown(), "may not change once set"));
        }
        _ => {}
    }
    if was.len() == 2 && now.len() == 1 && policy(new) != "SingleStack" {
        out.push(FieldError::invalid(
            &FieldPath::new("spec").child("ipFamilyPolicy"),
            new.at(&["spec", "ipFamilyPolicy"]).clone(),
            "must be set to 'SingleStack' when releasing the secondary ipFamily",
        ));
    }
    if was.len() == 2 && now.len() == 2 && was[1] != now[1] {
        out.push(FieldError::invalid(&at.index(1), shown(), "may not change once set"));
    }
}

fn policy(v: &Value) -> &str {
    v.str_at(&["spec", "ipFamilyPolicy"])
}

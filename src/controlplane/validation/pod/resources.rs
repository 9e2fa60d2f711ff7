//! Requests and limits.

use super::super::common::{NOT_NEGATIVE, is_negative, is_whole, quantity};
use super::super::quota::container_name;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;

fn entries(v: &Value) -> impl Iterator<Item = (&str, &Value)> {
    v.as_object().into_iter().flat_map(|m| m.iter())
}

/// Resources of vendors: counted in whole, never more allowed than asked for.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Names and amounts of one list.
pub(super) fn list(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    for (name, q) in entries(v) {
        let at = path.key(name);
        container_name(out, name, &at);
        amount(out, name, q, &at);
    }
}

fn amount(out: &mut ErrorList, name: &str, q: &Value, at: &FieldPath) {
    let Some(n) = quantity(q) else { return };
    if is_negative(n) {
        out.push(FieldError::invalid(at, q.clone(), NOT_NEGATIVE));
    }
    if is_extended(name) && !is_whole(n) {
        out.push(FieldError::invalid(at, q.clone(), "must be an integer"));
    }
    if let Some(page) = name.strip_prefix("hugepages-").and_then(|p| quantity(&p.into()))
        && (n.value() <= 0 || page.value() <= 0 || n.value() % page.value() != 0)
    {
        let why = format!("{n} is not positive integer multiple of {name}");
        out.push(FieldError::invalid(at, q.clone(), why));
    }
}

/// A container's resources; `claims` are the pod's.
pub(in crate::controlplane::validation) fn container(
    out: &mut ErrorList,
    v: &Value,
    claims: &[&str],
    path: &FieldPath,
) {
    for side in ["limits", "requests"] {
        list(out, v.get(side), &path.child(side));
    }
    requests_within_limits(out, v, path);
    container_claims(out, v, claims, path);
}

fn requests_within_limits(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    for (name, q) in entries(v.get("requests")) {
        let firm = is_extended(name) || is_huge_pages(name);
        let limit = v.at(&["limits", name]);
        match (quantity(q), quantity(limit)) {
            (Some(r), Some(l)) => {
                let why = match () {
                    () if firm && r != l => format!("must be equal to {name} limit of {l}"),
                    () if !firm && r > l => format!("must be less than or equal to {name} limit of {l}"),
                    () => continue,
                };
                out.push(FieldError::invalid(&path.child("requests"), q.clone(), why));
            }
            (Some(_), None) if firm => {
                // The spelling is upstream's.
                let why = "Limit must be set for non overcommitable resources";
                out.push(FieldError::required(&path.child("limits"), why));
            }
            _ => {}
        }
    }
    let all = || {
        ["limits", "requests"]
            .into_iter()
            .flat_map(|s| entries(v.get(s)).map(|(k, _)| k))
    };
    if all().any(is_huge_pages) && !all().any(|k| matches!(k, "cpu" | "memory")) {
        out.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

fn container_claims(out: &mut ErrorList, v: &Value, known: &[&str], path: &FieldPath) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, c) in v.get("claims").items().iter().enumerate() {
        let at = path.child("claims").index(i);
        let (name, request) = (c.str_at(&["name"]), c.str_at(&["request"]));
        if name.is_empty() {
            out.push(FieldError::required(&at, ""));
            continue;
        }
        if seen.contains(&(name, request)) {
            out.push(FieldError::duplicate(&at, name));
        }
        seen.push((name, request));
        if !known.contains(&name) {
            let mut e = FieldError::not_found(&at, name);
            e.detail = if known.is_empty() {
                "must be one of the names in pod.spec.resourceClaims which is empty".to_owned()
            } else {
                format!(
                    "must be one of the names in pod.spec.resourceClaims: {}",
                    known.join(", ")
                )
            };
            out.push(e);
        }
    }
}

/// Resources of the whole pod.
pub(super) fn pod_level(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let (v, at) = (spec.get("resources"), path.child("resources"));
    if v.is_null() {
        return;
    }
    if spec.str_at(&["os", "name"]) == "windows" {
        out.push(FieldError::forbidden(&at, "may not be set for a windows pod"));
    }
    if !v.get("claims").is_empty_value() {
        let why = "claims may not be set for Resources at pod-level";
        out.push(FieldError::forbidden(&at.child("claims"), why));
    }
    for side in ["limits", "requests"] {
        for (name, q) in entries(v.get(side)) {
            let at = at.child(side).key(name);
            if !matches!(name, "cpu" | "memory") && !is_huge_pages(name) {
                out.push(FieldError::not_supported(&at, name, &["cpu", "hugepages-", "memory"]));
            }
            amount(out, name, q, &at);
        }
    }
    requests_within_limits(out, v, &at);
    for (name, q) in entries(v.get("requests")) {
        let together = spec
            .get("containers")
            .items()
            .iter()
            .filter_map(|c| quantity(c.at(&["resources", "requests", name])))
            .reduce(|a, b| a.plus(b));
        if let (Some(own), Some(sum)) = (quantity(q), together)
            && own < sum
        {
            let why = format!("must be greater than or equal to aggregate container requests of {sum}");
            out.push(FieldError::invalid(&at.child("requests").key(name), q.clone(), why));
        }
    }
    for (name, q) in entries(v.get("limits")).filter(|(name, _)| is_huge_pages(name)) {
        let limits = spec.get("containers").items().iter();
        let together = limits
            .filter_map(|c| quantity(c.at(&["resources", "limits", name])))
            .reduce(|a, b| a.plus(b));
        if let (Some(own), Some(sum)) = (quantity(q), together)
            && own < sum
        {
            let why = format!("must be greater than or equal to aggregate container limits of {sum}");
            out.push(FieldError::invalid(&at.child("limits").key(name), q.clone(), why));
        }
    }
    for (i, c) in spec.get("containers").items().iter().enumerate() {
        for (name, q) in entries(c.at(&["resources", "limits"])) {
            if let (Some(own), Some(most)) = (quantity(q), quantity(v.at(&["limits", name])))
                && own > most
            {
                // The path is upstream's.
                let at = at.child("containers").index(i).key(name).child("limits");
                let why = format!("must be less than or equal to pod limits of {most}");
                out.push(FieldError::invalid(&at, q.clone(), why));
            }
        }
    }
}

//! Requests and limits.

use super::super::common::{is_whole, quantity};
use super::super::quota::{amount, container_name, is_overcommitted, resource_name};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::validation::dns1123_label;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each;

fn entries(v: &Value) -> impl Iterator<Item = (&str, &Value)> {
    v.as_object().into_iter().flat_map(|m| m.iter())
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// The rule of a resource's name.
type Names = fn(&mut ErrorList, &str, &FieldPath);

/// Names and amounts of one list of a container's resources.
pub(super) fn list(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let mut limits = Value::object();
    limits.set(&["limits"], v.clone());
    requirements(out, &limits, container_name, path);
}

fn huge_pages(out: &mut ErrorList, name: &str, q: &Value, at: &FieldPath) {
    let Some(page) = name.strip_prefix("hugepages-") else {
        return;
    };
    let Some(n) = quantity(q) else { return };
    let page = quantity(&page.into()).filter(|p| p.value() > 0 && is_whole(*p));
    if page.is_none_or(|p| n.value() % p.value() != 0) {
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
    requirements(out, v, container_name, path);
    container_claims(out, v, claims, path);
}

fn requirements(out: &mut ErrorList, v: &Value, name_rule: Names, path: &FieldPath) {
    let limits_at = path.child("limits");
    for (name, q) in entries(v.get("limits")) {
        let at = limits_at.key(name);
        name_rule(out, name, &at);
        amount(out, name, q, &at);
        huge_pages(out, name, q, &at);
    }
    let requests_at = path.child("requests");
    for (name, q) in entries(v.get("requests")) {
        let at = requests_at.key(name);
        name_rule(out, name, &at);
        amount(out, name, q, &at);
        match (quantity(q), quantity(v.at(&["limits", name]))) {
            (Some(r), Some(l)) if r != l && !is_overcommitted(name) => {
                let why = format!("must be equal to {name} limit of {l}");
                out.push(FieldError::invalid(&requests_at, q.clone(), why));
            }
            (Some(r), Some(l)) if r > l => {
                let why = format!("must be less than or equal to {name} limit of {l}");
                out.push(FieldError::invalid(&requests_at, q.clone(), why));
            }
            (Some(_), None) if !is_overcommitted(name) => {
                // The spelling is upstream's.
                let why = "Limit must be set for non overcommitable resources";
                out.push(FieldError::required(&limits_at, why));
            }
            _ => {}
        }
        huge_pages(out, name, q, &at);
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
    let mut seen: Vec<String> = Vec::new();
    for (i, c) in v.get("claims").items().iter().enumerate() {
        let at = path.child("claims").index(i);
        let (name, request) = (c.str_at(&["name"]), c.str_at(&["request"]));
        if name.is_empty() {
            out.push(FieldError::required(&at, ""));
            continue;
        }
        if seen.iter().any(|s| s == name) {
            out.push(FieldError::duplicate(&at, name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                invalid_each(out, &at.child("request"), request, dns1123_label(request));
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                out.push(FieldError::duplicate(&at, key.as_str()));
            } else if request.is_empty() {
                let parts = seen
                    .iter()
                    .filter(|s| s.split_once('/').is_some_and(|(n, _)| n == name));
                for _ in parts {
                    out.push(FieldError::duplicate(&at, name));
                }
            }
            seen.push(key);
        }
        if !known.contains(&name) {
            let mut e = FieldError::not_found(&at, name);
            let mut known = known.to_vec();
            known.sort_unstable();
            known.dedup();
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

/// What a pod as a whole may ask for.
fn pod_name(out: &mut ErrorList, name: &str, at: &FieldPath) {
    let before = out.len();
    resource_name(out, name, at);
    if out.len() == before && !matches!(name, "cpu" | "memory") && !is_huge_pages(name) {
        out.push(FieldError::not_supported(at, name, &["cpu", "hugepages-", "memory"]));
    }
}

/// The most that containers need together at `side`: what runs at once, or what one of the first needs beside the
/// sidecars before it.
fn together(spec: &Value, side: &str, name: &str) -> Option<Quantity> {
    let of = |c: &Value| quantity(c.at(&["resources", side, name]));
    let plus = |a: Option<Quantity>, b: Option<Quantity>| match (a, b) {
        (Some(a), Some(b)) => Some(a.plus(b)),
        (a, b) => a.or(b),
    };
    let mut all = spec
        .get("containers")
        .items()
        .iter()
        .fold(None, |sum, c| plus(sum, of(c)));
    let (mut sidecars, mut most) = (None, None);
    for c in spec.get("initContainers").items() {
        let now = plus(sidecars, of(c));
        if c.str_at(&["restartPolicy"]) == "Always" {
            all = plus(all, of(c));
            sidecars = now;
        }
        most = most.max(now);
    }
    all.max(most)
}

/// Resources of the whole pod.
pub(super) fn pod_level(out: &mut ErrorList, spec: &Value, claims: &[&str], path: &FieldPath) {
    let (v, at) = (spec.get("resources"), path.child("resources"));
    if v.is_null() {
        return;
    }
    if spec.str_at(&["os", "name"]) == "windows" {
        out.push(FieldError::forbidden(&at, "may not be set for a windows pod"));
        return;
    }
    if !v.get("claims").is_empty_value() {
        let why = "claims may not be set for Resources at pod-level";
        out.push(FieldError::forbidden(&at.child("claims"), why));
    }
    requirements(out, v, pod_name, &at);
    container_claims(out, v, claims, &at);
    for (name, q) in entries(v.get("requests")) {
        if let (Some(own), Some(sum)) = (quantity(q), together(spec, "requests", name))
            && own < sum
        {
            let why = format!("must be greater than or equal to aggregate container requests of {sum}");
            out.push(FieldError::invalid(&at.child("requests").key(name), q.clone(), why));
        }
    }
    for (name, q) in entries(v.get("limits")).filter(|(name, _)| is_huge_pages(name)) {
        if let (Some(own), Some(sum)) = (quantity(q), together(spec, "limits", name))
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

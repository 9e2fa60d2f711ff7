//! Validation of requests, limits and resource claims of containers, and of pod-level resources.

use super::super::common::{is_whole, quantity};
use super::super::quota::{amount, container_name, is_overcommitted, resource_name};
use super::Tolerated;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, cut};
use crate::apimachinery::validation::dns1123_label;
use crate::apimachinery::value::Value;
use crate::controlplane::aggregate::together;
use crate::controlplane::fields::{Seen, invalid_each, regular_containers};
use crate::interrupt::checkpoint;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

fn entries(v: &Value) -> impl Iterator<Item = (&str, &Value)> {
    v.as_object().into_iter().flat_map(|m| m.iter())
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Checks a resource name at a path.
type Names = fn(&mut ErrorList, &str, &FieldPath);

/// Checks the names and quantities of a single resource list, as if it were a container's limits.
pub(super) fn list(out: &mut ErrorList, v: &Value, tolerated: Tolerated, path: &FieldPath) {
    let mut limits = Value::object();
    // Upstream validates an overhead as limits, so its error paths contain `limits`.
    limits.set(&["limits"], v.clone());
    requirements(out, &limits, container_name, tolerated, path);
}

fn huge_pages(out: &mut ErrorList, name: &str, q: &Value, at: &FieldPath) {
    let Some(page) = name.strip_prefix("hugepages-") else {
        return;
    };
    let Some(n) = quantity(q) else { return };
    // The page size is a part of the name, such as `hugepages-2Mi`; a size of zero or a fraction would break
    // the division.
    let page = quantity(&page.into()).filter(|p| p.value() > 0 && is_whole(*p));
    if page.is_none_or(|p| n.value() % p.value() != 0) {
        let why = format!("{n} is not positive integer multiple of {name}");
        out.push(FieldError::invalid(at, q.clone(), why));
    }
}

/// True if a container or the overhead has an amount of huge pages that is no multiple of the page size.
pub(super) fn has_partial_pages(spec: &Value) -> bool {
    let requirements = regular_containers(spec).map(|c| c.get("resources"));
    let lists = requirements.flat_map(|r| [r.get("limits"), r.get("requests")]);
    let mut errors = ErrorList::new();
    for (name, q) in lists.chain([spec.get("overhead")]).flat_map(entries) {
        huge_pages(&mut errors, name, q, &FieldPath::default());
    }
    !errors.is_empty()
}

/// Names of a pod's resource claims.
#[derive(Default)]
pub(in crate::controlplane::validation) struct Claims<'a> {
    names: HashSet<&'a str>,
    /// The names as listed in errors, formatted once, on first use.
    shown: OnceCell<String>,
}

impl<'a> Claims<'a> {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn insert(&mut self, name: &'a str) {
        self.names.insert(name);
    }

    fn shown(&self) -> &str {
        self.shown.get_or_init(|| {
            let mut names: Vec<&str> = self.names.iter().copied().collect();
            // The set has no order, but the message must be the same for the same pod.
            names.sort_unstable();
            cut(names.join(", "), MAX_NAMES)
        })
    }
}

/// Upper bound, in bytes, on the claim names listed in an error.
const MAX_NAMES: usize = 4096;

/// Checks a container's resources; `claims` are the pod's.
pub(in crate::controlplane::validation) fn container(
    out: &mut ErrorList,
    v: &Value,
    claims: &Claims<'_>,
    tolerated: Tolerated,
    path: &FieldPath,
) {
    requirements(out, v, container_name, tolerated, path);
    container_claims(out, v, claims, path);
}

fn requirements(out: &mut ErrorList, v: &Value, name_rule: Names, tolerated: Tolerated, path: &FieldPath) {
    let huge_pages = |out: &mut ErrorList, name: &str, q: &Value, at: &FieldPath| {
        if !tolerated.partial_pages {
            huge_pages(out, name, q, at);
        }
    };
    let limits_at = path.child("limits");
    for (name, q) in entries(v.get("limits")) {
        checkpoint();
        let at = limits_at.key(name);
        name_rule(out, name, &at);
        amount(out, name, q, &at);
        huge_pages(out, name, q, &at);
    }
    let requests_at = path.child("requests");
    for (name, q) in entries(v.get("requests")) {
        checkpoint();
        let at = requests_at.key(name);
        name_rule(out, name, &at);
        amount(out, name, q, &at);
        match (quantity(q), quantity(v.at(&["limits", name]))) {
            // Extended resources and huge pages are handed out whole.
            (Some(r), Some(l)) if r != l && !is_overcommitted(name) => {
                let why = format!("must be equal to {name} limit of {l}");
                out.push(FieldError::invalid(&requests_at, q.clone(), why));
            }
            (Some(r), Some(l)) if r > l => {
                let why = format!("must be less than or equal to {name} limit of {l}");
                out.push(FieldError::invalid(&requests_at, q.clone(), why));
            }
            (Some(_), None) if !is_overcommitted(name) => {
                // The misspelling is upstream's.
                let why = "Limit must be set for non overcommitable resources";
                out.push(FieldError::required(&limits_at, why));
            }
            _ => {}
        }
        // After the comparison with the limit, unlike above: upstream's order.
        huge_pages(out, name, q, &at);
    }
    let all = || {
        ["limits", "requests"]
            .into_iter()
            .flat_map(|s| entries(v.get(s)).map(|(k, _)| k))
    };
    // Huge pages alone would leave the pod in the class BestEffort while it holds pinned memory.
    if all().any(is_huge_pages) && !all().any(|k| matches!(k, "cpu" | "memory")) {
        out.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

fn container_claims(out: &mut ErrorList, v: &Value, known: &Claims<'_>, path: &FieldPath) {
    let mut seen: Seen<String> = Seen::new();
    // Number of distinct requests seen of each claim.
    let mut parts: HashMap<&str, usize> = HashMap::new();
    for (i, c) in v.get("claims").items().iter().enumerate() {
        let at = path.child("claims").index(i);
        let (name, request) = (c.str_at(&["name"]), c.str_at(&["request"]));
        if name.is_empty() {
            out.push(FieldError::required(&at, ""));
            continue;
        }
        if seen.contains(&name.to_owned()) {
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
                let parts = parts.get(name).copied().unwrap_or(0);
                // A claim as a whole overlaps with each of its requests seen before; upstream reports each
                // pair. `push_times` avoids quadratic time.
                out.push_times(parts, || FieldError::duplicate(&at, name));
            }
            if let Some((claim, _)) = key.split_once('/') {
                // A slice of `name` instead of `key`, which is moved into the set; both start with the same
                // bytes.
                *parts.entry(&name[..claim.len()]).or_default() += 1;
            }
            seen.insert(key);
        }
        if !known.contains(name) {
            // Formatted only if the list has room: the message repeats all names.
            out.push_with(|| {
                let mut e = FieldError::not_found(&at, name);
                e.detail = if known.names.is_empty() {
                    "must be one of the names in pod.spec.resourceClaims which is empty".to_owned()
                } else {
                    format!("must be one of the names in pod.spec.resourceClaims: {}", known.shown())
                };
                e
            });
        }
    }
}

/// Checks the name of a resource that may be set at pod level.
fn pod_name(out: &mut ErrorList, name: &str, at: &FieldPath) {
    // Only a valid name is compared with the supported ones.
    let before = out.len();
    resource_name(out, name, at);
    if out.len() == before && !matches!(name, "cpu" | "memory") && !is_huge_pages(name) {
        out.push(FieldError::not_supported(at, name, &["cpu", "hugepages-", "memory"]));
    }
}

/// Checks pod-level resources against those of the containers.
pub(super) fn pod_level(
    out: &mut ErrorList,
    spec: &Value,
    claims: &Claims<'_>,
    tolerated: Tolerated,
    path: &FieldPath,
) {
    let (v, at) = (spec.get("resources"), path.child("resources"));
    if v.is_null() {
        return;
    }
    if spec.str_at(&["os", "name"]) == "windows" {
        out.push(FieldError::forbidden(&at, "may not be set for a windows pod"));
        return;
    }
    // As upstream, also an empty list.
    if !v.get("claims").is_null() {
        let why = "claims may not be set for Resources at pod-level";
        out.push(FieldError::forbidden(&at.child("claims"), why));
    }
    requirements(out, v, pod_name, tolerated, &at);
    container_claims(out, v, claims, &at);
    let needs = together(spec, "requests");
    for (name, q) in entries(v.get("requests")) {
        if let (Some(own), Some(sum)) = (quantity(q), needs.get(name))
            && own < *sum
        {
            let why = format!("must be greater than or equal to aggregate container requests of {sum}");
            out.push(FieldError::invalid(&at.child("requests").key(name), q.clone(), why));
        }
    }
    let needs = together(spec, "limits");
    // Only huge pages: limits of cpu and memory may add up to more than the pod's limit, since containers
    // share it.
    for (name, q) in entries(v.get("limits")).filter(|(name, _)| is_huge_pages(name)) {
        if let (Some(own), Some(sum)) = (quantity(q), needs.get(name))
            && own < *sum
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
                // The misplaced path elements are upstream's.
                let at = at.child("containers").index(i).key(name).child("limits");
                let why = format!("must be less than or equal to pod limits of {most}");
                out.push(FieldError::invalid(&at, q.clone(), why));
            }
        }
    }
}

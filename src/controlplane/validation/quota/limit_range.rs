//! Validation of LimitRanges (`ValidateLimitRange` in upstream's `pkg/apis/core/validation`).

use super::{container_name, entries, is_overcommitted, resource_name};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::validation::qualified_name;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, duplicate_enum, invalid_each_enum};
use crate::controlplane::validation::common::quantity;
use crate::interrupt::checkpoint;

pub(crate) fn limit_range(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("spec").child("limits");
    let mut seen: Seen<&str> = Seen::new();
    for (i, item) in v.at(&["spec", "limits"]).items().iter().enumerate() {
        let at = path.index(i);
        let kind = item.str_at(&["type"]);
        invalid_each_enum(&mut out, &at.child("type"), kind, qualified_name(kind));
        // Custom types must have a domain; nothing in the server enforces them.
        let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if qualified_name(kind).is_empty() && !kind.contains('/') && !standard {
            let why = "must be a standard limit type or fully qualified";
            out.push(FieldError::invalid_enum(&at.child("type"), kind, why));
        }
        if !seen.insert(kind) {
            out.push(duplicate_enum(&at.child("type"), kind));
        }
        limit(&mut out, item, kind, &at);
    }
    out
}

/// Values below this one fit 64 bits in thousandths (`MaxMilliValue` upstream).
const MAX_MILLI: i64 = i64::MAX / 1000;

const PARTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

fn limit(out: &mut ErrorList, item: &Value, kind: &str, at: &FieldPath) {
    // Names of all parts come before any comparison: upstream collects the keys while it checks them.
    for part in ["max", "min"] {
        names(out, item, part, kind, at);
    }
    // A pod has no resources of its own that a default could fill in; its containers have.
    if kind == "Pod" {
        for part in ["default", "defaultRequest"] {
            if !item.get(part).is_empty_value() {
                out.push(FieldError::forbidden(
                    &at.child(part),
                    "may not be specified when `type` is 'Pod'",
                ));
            }
        }
    } else {
        for part in ["default", "defaultRequest"] {
            names(out, item, part, kind, at);
        }
    }
    if kind == "PersistentVolumeClaim"
        && item.at(&["min", "storage"]).is_null()
        && item.at(&["max", "storage"]).is_null()
    {
        out.push(FieldError::required(
            // The path is upstream's; there is no such field.
            &at.child("limits"),
            "either minimum or maximum storage value is required, but neither was provided",
        ));
    }
    names(out, item, "maxLimitRequestRatio", kind, at);
    let mut all: Vec<&str> = PARTS
        .iter()
        .flat_map(|p| entries(item.get(p)).map(|(k, _)| k))
        .collect();
    // Upstream iterates over a set in random order.
    all.sort_unstable();
    all.dedup();
    for k in all {
        compare(out, item, k, kind, at);
    }
}

fn names(out: &mut ErrorList, item: &Value, part: &str, kind: &str, at: &FieldPath) {
    for (name, _) in entries(item.get(part)) {
        let at = at.child(part).key(name);
        if matches!(kind, "Pod" | "Container") {
            container_name(out, name, &at);
        } else {
            resource_name(out, name, &at);
        }
    }
}

fn compare(out: &mut ErrorList, item: &Value, k: &str, kind: &str, at: &FieldPath) {
    checkpoint();
    let get = |part: &str| {
        let v = item.at(&[part, k]);
        // The value as written is kept beside the parsed one, for the bad value of the error.
        quantity(v).map(|q| (q, v.clone()))
    };
    let (max, min, default, request) = (get("max"), get("min"), get("default"), get("defaultRequest"));
    let mut refuse = |part: &str, shown: &Value, why: String| {
        out.push(FieldError::invalid(&at.child(part).key(k), shown.clone(), why));
    };
    // Some messages print the smaller value as bad, others the larger one; hence both are returned.
    let pair = |a: &Option<(Quantity, Value)>, b: &Option<(Quantity, Value)>| match (a, b) {
        (Some((a, x)), Some((b, y))) if a > b => Some((a.to_string(), b.to_string(), x.clone(), y.clone())),
        _ => None,
    };
    if let Some((a, b, x, _)) = pair(&min, &max) {
        refuse("min", &x, format!("min value {a} is greater than max value {b}"));
    }
    if kind != "Pod" {
        if let Some((a, b, _, y)) = pair(&min, &request) {
            let why = format!("min value {a} is greater than default request value {b}");
            refuse("defaultRequest", &y, why);
        }
        if let Some((a, b, x, _)) = pair(&request, &max) {
            let why = format!("default request value {a} is greater than max value {b}");
            refuse("defaultRequest", &x, why);
        }
        if let Some((a, b, x, _)) = pair(&request, &default) {
            let why = format!("default request value {a} is greater than default limit value {b}");
            refuse("defaultRequest", &x, why);
        }
        if let Some((a, b, x, _)) = pair(&min, &default) {
            refuse(
                "default",
                &x,
                format!("min value {a} is greater than default value {b}"),
            );
        }
        if let Some((a, b, _, y)) = pair(&default, &max) {
            refuse(
                "default",
                &y,
                format!("default value {a} is greater than max value {b}"),
            );
        }
    }
    if let Some((ratio, shown)) = get("maxLimitRequestRatio") {
        if ratio < Quantity::from_i64(1) {
            refuse("maxLimitRequestRatio", &shown, format!("ratio {ratio} is less than 1"));
        }
        if let (Some((max, _)), Some((min, _))) = (&max, &min) {
            // Floating point, as upstream: the ratio is printed with six decimals. A minimum of zero gives
            // infinity, which no ratio exceeds.
            let (ratio_value, max, min) = match [ratio, *max, *min].iter().all(|q| q.value() < MAX_MILLI) {
                true => (
                    ratio.milli_value() as f64 / 1000.0,
                    max.milli_value(),
                    min.milli_value(),
                ),
                false => (ratio.value() as f64, max.value(), min.value()),
            };
            let most = max as f64 / min as f64;
            if ratio_value > most {
                let why = format!("ratio {ratio} is greater than max/min = {most:.6}");
                refuse("maxLimitRequestRatio", &shown, why);
            }
        }
    }
    if kind != "Pod"
        && !is_overcommitted(k)
        && let (Some((d, _)), Some((r, shown))) = (&default, &request)
        && d != r
    {
        let why = format!("default value {d} must equal to defaultRequest value {r} in {k}");
        refuse("defaultRequest", shown, why);
    }
}

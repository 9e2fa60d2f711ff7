//! Validation of device capacities and their request policies (valid values or a range with a step).

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;
use crate::controlplane::validation::common::{is_positive, quantity};
use std::borrow::Cow;

/// Upstream's `CapacityRequestPolicyDiscreteMaxOptions`.
const MAX_VALUES: usize = 10;

/// Validates a capacity. Only a `shared` device, one that allows multiple allocations, may have a request
/// policy.
pub(super) fn capacity(out: &mut ErrorList, v: &Value, shared: bool, at: &FieldPath) {
    let (policy, at) = (v.get("requestPolicy"), at.child("requestPolicy"));
    if policy.is_null() {
        return;
    }
    // A device with a single consumer gives it all of its capacity: there is nothing to request.
    if !shared {
        out.push(FieldError::forbidden(&at, "allowMultipleAllocations must be true"));
        return;
    }
    let (values, range) = (policy.get("validValues").items(), policy.get("validRange"));
    let default = quantity(policy.get("default"));
    // An absent value is a zero quantity in Go.
    let most = quantity(v.get("value")).or_else(|| quantity(&Value::Int(0)));
    let Some(most) = most else { return };
    match (values.is_empty(), range.is_null(), default) {
        (false, false, _) => {
            let why = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            out.push(FieldError::forbidden(&at, why));
        }
        (false, true, Some(d)) => listed(out, values, d, most, &at.child("validValues")),
        (true, false, Some(d)) => ranged(out, range, d, most, &at.child("validRange")),
        (false, true, None) => {
            let why = "required when validValues is defined";
            out.push(FieldError::required(&at.child("default"), why));
        }
        (true, false, None) => {
            let why = "required when validRange is defined";
            out.push(FieldError::required(&at.child("default"), why));
        }
        (true, true, _) => {}
    }
}

/// Validates how a device uses resources of its node. New slices say nothing about it, because the feature gate is
/// disabled, but stored ones may.
pub(super) fn node_resources(out: &mut ErrorList, device: &Value, at: &FieldPath) {
    let path = at.child("nodeAllocatableResourceMappings");
    let capacities = device.get("capacity");
    for (name, v) in super::entries(device.get("nodeAllocatableResourceMappings")) {
        let at = path.key(name);
        if name.contains('/') && !name.contains("kubernetes.io/") {
            out.push(FieldError::invalid_enum(
                &at,
                name,
                "must be a node allocatable resource name",
            ));
        }
        let (multiplier, key) = (quantity(v.get("allocationMultiplier")), v.get("capacityKey").as_str());
        if multiplier.is_none() && key.is_none() {
            let why = "at least one of allocationMultiplier or capacityKey must be set";
            out.push(FieldError::invalid(&at, "", why));
        }
        if let Some(q) = multiplier.filter(|q| !is_positive(*q)) {
            wrong(out, q, "must be positive", &at.child("allocationMultiplier"));
        }
        let at = at.child("capacityKey");
        match key {
            Some("") => out.push(FieldError::invalid(&at, "", "capacityKey must not be an empty string")),
            Some(key) if capacities.get(key).is_null() => {
                let mut e = FieldError::not_found(&at, "");
                // A named string type, which prints as JSON.
                e.bad_value = Some(show_json(&Value::from(key)));
                out.push(e);
            }
            _ => {}
        }
    }
}

fn wrong<'a>(out: &mut ErrorList, q: Quantity, why: impl Into<Cow<'a, str>>, at: &FieldPath) {
    out.push(FieldError::invalid(at, q.to_string(), why));
}

fn listed(out: &mut ErrorList, values: &[Value], default: Quantity, most: Quantity, at: &FieldPath) {
    let values: Vec<Quantity> = values.iter().filter_map(quantity).collect();
    // Checked even if the list is too long; the other rules are not.
    for (i, pair) in values.windows(2).enumerate() {
        if pair[0] > pair[1] {
            wrong(
                out,
                pair[1],
                "values must be sorted in ascending order",
                &at.index(i + 1),
            );
        }
    }
    if values.len() > MAX_VALUES {
        out.push(FieldError::too_many(at, values.len(), MAX_VALUES));
    } else {
        for (i, q) in values.iter().enumerate().filter(|(_, q)| **q > most) {
            let why = format!("option is larger than capacity value: {most}");
            wrong(out, *q, why, &at.index(i));
        }
        super::duplicates(out, values.iter().map(|q| q.value().to_string()), at);
    }
    // For a list that is too long upstream never looks for the default and reports it as invalid.
    if values.len() > MAX_VALUES || !values.contains(&default) {
        wrong(
            out,
            default,
            "default value is not valid according to the requestPolicy",
            at,
        );
    }
}

fn ranged(out: &mut ErrorList, range: &Value, default: Quantity, capacity: Quantity, at: &FieldPath) {
    let Some(min) = quantity(range.get("min")) else {
        let why = "required when validRange is defined";
        out.push(FieldError::required(&at.child("min"), why));
        return;
    };
    let (max, step) = (quantity(range.get("max")), quantity(range.get("step")));
    if min > capacity {
        let why = format!("min is larger than capacity value: {capacity}");
        wrong(out, min, why, &at.child("min"));
    }
    if default < min {
        wrong(
            out,
            default,
            format!("default is less than min: {min}"),
            &at.child("min"),
        );
    }
    if let Some(max) = max {
        if min > max {
            wrong(out, min, format!("min is larger than max: {max}"), &at.child("max"));
        }
        if max > capacity {
            let why = format!("max is larger than capacity value: {capacity}");
            wrong(out, max, why, &at.child("max"));
        }
        if default > max {
            wrong(
                out,
                default,
                format!("default is more than max: {max}"),
                &at.child("max"),
            );
        }
    }
    let Some(step) = step else { return };
    let at = at.child("step");
    let one = min.plus(step);
    if one > capacity {
        let why = format!("one step {one} is larger than capacity value: {capacity}");
        wrong(out, step, why, &at);
    }
    // Avoids a division by zero below, which upstream does not guard against.
    if !is_positive(step) || step.value() == 0 {
        return;
    }
    // Integer arithmetic on the rounded values, as upstream.
    for q in [Some(default), max].into_iter().flatten() {
        // Wrapping, as in Go: the difference of two client values may exceed 64 bits.
        if q.value().wrapping_sub(min.value()).wrapping_rem(step.value()) != 0 {
            let why = format!("value is not a multiple of a given step ({step}) from ({min})");
            wrong(out, q, why, &at);
        }
    }
}

//! Validation of ResourceSlices, which drivers publish. Entry points: [`slice()`] and [`slice_update`].

use super::internal_form::{ATTRIBUTE, NODE_TERM};
use super::{
    EFFECTS, at_most, attribute_name, binding_conditions, capacity, duplicates, entries, label_name, pool_name,
};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_subdomain, label_value, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, invalid_each, required_choice, same};
use crate::controlplane::validation::common::csi_driver_name;
use crate::controlplane::validation::go_form::compact;
use crate::controlplane::validation::pod::node_selector;
use crate::interrupt::checkpoint;
use std::collections::HashMap;

// Limits of upstream's API (`pkg/apis/resource/types.go`), which bound the size of a stored slice.
const MAX_DEVICES: usize = 128;
const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMPTIONS: usize = 2;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_TAINTS: usize = 16;
const MAX_VALUE_LENGTH: usize = 64;
/// The lists among the values of attributes, in the order of their checks. New slices have none, because their feature
/// gate is disabled, but stored ones may.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Warns about uppercase characters in the driver's name.
pub(crate) fn slice_warnings(v: &Value) -> Vec<String> {
    let name = v.str_at(&["spec", "driver"]);
    let text = format!("spec.driver: driver names should be lowercase; {name:?} contains uppercase characters");
    (name != name.to_lowercase()).then_some(text).into_iter().collect()
}

/// Validates a new ResourceSlice.
pub(crate) fn slice(v: &Value) -> ErrorList {
    checked(v, None)
}

/// Validates an update, in which driver, pool name and node are immutable.
pub(crate) fn slice_update(new: &Value, old: &Value) -> ErrorList {
    checked(new, Some(old))
}

fn checked(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    // Driver names follow the rules of CSI: upstream shares the function.
    csi_driver_name(&mut out, spec.str_at(&["driver"]), &path.child("driver"));
    pool(&mut out, spec.get("pool"), &path.child("pool"));
    if let Some(old) = old {
        // They identify the pool that the slice belongs to, and the node that may write it.
        for keys in [&["pool", "name"][..], &["driver"]] {
            let now = spec.str_at(keys);
            if now != old.get("spec").str_at(keys) {
                let at = keys.iter().fold(path.clone(), |at, k| at.child(k));
                out.push(FieldError::invalid(&at, now, IMMUTABLE));
            }
        }
        let now = spec.get("nodeName");
        if !same(now, old.at(&["spec", "nodeName"])) {
            // A pointer upstream.
            out.push(FieldError::invalid_enum(
                &path.child("nodeName"),
                now.clone(),
                IMMUTABLE,
            ));
        }
    }
    places(&mut out, spec, &path);
    // Counter sets are published in slices of their own, so that both lists can be longer.
    if !spec.get("sharedCounters").is_null() && !spec.get("devices").is_null() {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        out.push(FieldError::invalid(&path, "", why));
    }
    let all = spec.get("devices").items();
    // These make devices larger, so fewer are allowed per object.
    let is_advanced = |d: &Value| {
        let of = d.get("attributes");
        ["taints", "consumesCounters"]
            .iter()
            .any(|k| !d.get(k).is_empty_value())
            || entries(of).any(|(_, a)| LISTS.iter().any(|k| !a.get(k).is_null()))
    };
    let most = if all.iter().any(is_advanced) {
        MAX_ADVANCED_DEVICES
    } else {
        MAX_DEVICES
    };
    let at = path.child("devices");
    let each = spec.get("perDeviceNodeSelection").as_bool() == Some(true);
    let all = at_most(&mut out, spec.get("devices"), most, &at);
    // If several devices have the same name, the first one wins.
    let mut was: HashMap<&str, &Value> = HashMap::new();
    for d in old.map_or(&[][..], |o| o.at(&["spec", "devices"]).items()) {
        was.entry(d.str_at(&["name"])).or_insert(d);
    }
    for (i, d) in all.iter().enumerate() {
        let was = was.get(d.str_at(&["name"])).copied();
        device(&mut out, d, was, each, &at.index(i));
    }
    duplicates(&mut out, all.iter().map(|d| d.str_at(&["name"]).to_owned()), &at);

    let at = path.child("sharedCounters");
    let sets = at_most(&mut out, spec.get("sharedCounters"), MAX_COUNTER_SETS, &at);
    for (i, s) in sets.iter().enumerate() {
        counters(&mut out, s, "name", &at.index(i));
    }
    duplicates(&mut out, sets.iter().map(|s| s.str_at(&["name"]).to_owned()), &at);
    out
}

fn pool(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    pool_name(out, v.str_at(&["name"]), &at.child("name"));
    let number = |key: &str| v.get(key).as_i64().unwrap_or(0);
    if number("resourceSliceCount") <= 0 {
        let at = at.child("resourceSliceCount");
        out.push(FieldError::invalid(
            &at,
            number("resourceSliceCount"),
            "must be greater than zero",
        ));
    }
    if number("generation") < 0 {
        let why = "must be greater than or equal to zero";
        out.push(FieldError::invalid(&at.child("generation"), number("generation"), why));
    }
}

/// Checks that exactly one of `nodeName`, `nodeSelector`, `allNodes` and `perDeviceNodeSelection` is set.
fn places(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let mut set: Vec<&str> = Vec::new();
    if let Some(name) = spec.get("nodeName").as_str() {
        let at = path.child("nodeName");
        if name.is_empty() {
            out.push(FieldError::invalid(
                &at,
                "",
                "must be either unset or set to a non-empty string",
            ));
        } else {
            // An empty name does not count as set, but is an error of its own.
            set.push("`nodeName`");
            invalid_each(out, &at, name, dns1123_subdomain(name));
        }
    }
    let selector = spec.get("nodeSelector");
    if !selector.is_null() {
        let at = path.child("nodeSelector");
        set.push("`nodeSelector`");
        node_selector(out, selector, &at);
        let terms = selector.get("nodeSelectorTerms");
        // A single term lets the scheduler combine selectors of several slices by joining requirements.
        if terms.items().len() != 1 {
            let shown: Vec<String> = terms.items().iter().map(|t| compact(t, NODE_TERM)).collect();
            let shown = if terms.is_null() {
                "null".to_owned()
            } else {
                format!("[{}]", shown.join(","))
            };
            let why = "must have exactly one node selector term";
            out.push(FieldError::invalid_raw(&at.child("nodeSelectorTerms"), shown, why));
        }
    }
    for (key, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match spec.get(key).as_bool() {
            Some(true) => set.push(shown),
            Some(false) => out.push(FieldError::invalid(
                &path.child(key),
                false,
                "must be either unset or set to true",
            )),
            None => {}
        }
    }
    let why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => out.push(FieldError::required(path, why)),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            out.push(FieldError::invalid(
                path,
                shown,
                format!("{why}, but multiple fields are set"),
            ));
        }
    }
}

fn device(out: &mut ErrorList, v: &Value, was: Option<&Value>, each: bool, at: &FieldPath) {
    checkpoint();
    label_name(out, v.str_at(&["name"]), &at.child("name"));
    // One limit for both maps together (`ResourceSliceMaxAttributesAndCapacitiesPerDevice`).
    let count = entries(v.get("attributes")).count() + entries(v.get("capacity")).count();
    if count > MAX_ATTRIBUTES {
        let why = format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}");
        out.push(FieldError::invalid(at, count as i64, why));
    }
    // Scalar attributes count as one value.
    let size = |a: &Value| LISTS.iter().map(|k| a.get(k).items().len()).sum::<usize>().max(1);
    let values: usize = entries(v.get("attributes")).map(|(_, a)| size(a)).sum();
    if values > MAX_ATTRIBUTE_VALUES {
        let why = format!("the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}");
        out.push(FieldError::invalid(at, values as i64, why));
    }
    let path = at.child("attributes");
    for (key, a) in entries(v.get("attributes")) {
        // Names are reported at the map, values at their key.
        attribute_name(out, key, &path);
        attribute(out, a, &path.key(&cut(key)));
    }
    let path = at.child("capacity");
    let shared = v.get("allowMultipleAllocations").as_bool() == Some(true);
    for (key, c) in entries(v.get("capacity")) {
        attribute_name(out, key, &path);
        capacity::capacity(out, c, shared, &path.key(&cut(key)));
    }
    // Unchanged taints are not validated again, so that rules added later do not block updates.
    if was.is_none_or(|o| !same(o.get("taints"), v.get("taints"))) {
        let at = at.child("taints");
        for (i, t) in at_most(out, v.get("taints"), MAX_TAINTS, &at).iter().enumerate() {
            taint(out, t, &at.index(i));
        }
    }
    let path = at.child("consumesCounters");
    let all = at_most(out, v.get("consumesCounters"), MAX_CONSUMPTIONS, &path);
    for (i, c) in all.iter().enumerate() {
        counters(out, c, "counterSet", &path.index(i));
    }
    duplicates(out, all.iter().map(|c| c.str_at(&["counterSet"]).to_owned()), &path);
    place(out, v, each, at);
    binding_conditions(out, v, at);
    capacity::node_resources(out, v, at);
}

/// Shortens a map key for an error path: one longer than any valid key (domain of 63, slash, name of 32) is
/// cut in the middle.
fn cut(key: &str) -> String {
    const MAX_LENGTH: usize = 63 + 1 + 32;
    if key.len() <= MAX_LENGTH {
        return key.to_owned();
    }
    // Three bytes are taken by the dots; the parts are cut at bytes, as upstream, hence the lossy conversion.
    let (head, tail) = ((MAX_LENGTH - 2) / 2, (MAX_LENGTH - 3) / 2);
    let bytes = key.as_bytes();
    let part = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    format!("{}...{}", part(&bytes[..head]), part(&bytes[bytes.len() - tail..]))
}

fn attribute(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let given = ["bool", "int", "string", "version"]
        .iter()
        .chain(&LISTS)
        .filter(|k| !v.get(k).is_null())
        .count();
    if let Some(text) = v.get("string").as_str() {
        attribute_text(out, text, &at.child("string"));
    }
    if let Some(text) = v.get("version").as_str() {
        attribute_version(out, text, &at.child("version"));
    }
    for key in LISTS {
        let (list, at) = (v.get(key), at.child(key));
        if !list.is_null() && list.items().is_empty() {
            out.push(FieldError::invalid(&at, list.clone(), "must not be empty if specified"));
        }
        for (i, text) in list.items().iter().enumerate() {
            match (key, text.as_str()) {
                ("strings", Some(text)) => attribute_text(out, text, &at.index(i)),
                ("versions", Some(text)) => attribute_version(out, text, &at.index(i)),
                _ => {}
            }
        }
    }
    let why = "exactly one value must be specified";
    match given {
        0 => out.push(FieldError::invalid(at, "", why)),
        1 => {}
        _ => out.push(FieldError::invalid_raw(at, compact(v, ATTRIBUTE), why)),
    }
}

fn attribute_text(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.len() > MAX_VALUE_LENGTH {
        out.push(FieldError::too_long(at, MAX_VALUE_LENGTH as i64));
    }
}

fn attribute_version(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if !is_version(text) {
        let why = "must be a string compatible with semver.org spec 2.0.0";
        out.push(FieldError::invalid(at, text, why));
    }
    // In addition to the syntax: a long version may be well-formed.
    attribute_text(out, text, at);
}

/// True for a semantic version (semver.org 2.0.0).
fn is_version(text: &str) -> bool {
    let word = |s: &str| !s.is_empty() && s.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|c| c.is_ascii_digit());
    // The specification forbids leading zeros in numeric parts.
    let number = |s: &str| digits(s) && (s == "0" || !s.starts_with('0'));
    // The build is split off first: it may contain hyphens, and the pre-release may too.
    let (rest, build) = match text.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (text, None),
    };
    let (core, pre) = match rest.split_once('-') {
        Some((core, pre)) => (core, Some(pre)),
        None => (rest, None),
    };
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|p| p.split('.').all(|s| word(s) && (!digits(s) || number(s))))
        && build.is_none_or(|b| b.split('.').all(word))
}

fn taint(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let (key, value) = (v.str_at(&["key"]), v.str_at(&["value"]));
    invalid_each(out, &at.child("key"), key, qualified_name(key));
    if !value.is_empty() {
        invalid_each(out, &at.child("value"), value, label_value(value));
    }
    required_choice(out, v, "effect", at, EFFECTS);
}

/// Checks a counter set, or the consumption of one; `name` is the key of the member with the set's name.
fn counters(out: &mut ErrorList, v: &Value, name: &str, at: &FieldPath) {
    match v.str_at(&[name]) {
        "" => out.push(FieldError::required(&at.child(name), "")),
        text => label_name(out, text, &at.child(name)),
    }
    let at = at.child("counters");
    let count = entries(v.get("counters")).count();
    if count == 0 {
        out.push(FieldError::required(&at, ""));
    } else if count > MAX_COUNTERS {
        out.push(FieldError::too_many(&at, count, MAX_COUNTERS));
    } else {
        for (key, _) in entries(v.get("counters")) {
            label_name(out, key, &at);
        }
    }
}

/// Checks a device's node selection: exactly one field if the slice has `perDeviceNodeSelection` (`each`),
/// else none.
fn place(out: &mut ErrorList, v: &Value, each: bool, at: &FieldPath) {
    let is_set = |key: &str| !v.get(key).is_null();
    // Without per-device selection the slice decides for all of its devices.
    if !each {
        if ["nodeName", "nodeSelector", "allNodes"].into_iter().any(is_set) {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            out.push(FieldError::invalid(at, Value::Null, why));
        }
        return;
    }
    let mut set: Vec<&str> = Vec::new();
    if let Some(name) = v.get("nodeName").as_str() {
        if name.is_empty() {
            out.push(FieldError::invalid(&at.child("nodeName"), "", "must not be empty"));
        } else {
            set.push("`nodeName`");
            invalid_each(out, &at.child("nodeName"), name, dns1123_subdomain(name));
        }
    }
    if is_set("nodeSelector") {
        set.push("`nodeSelector`");
        node_selector(out, v.get("nodeSelector"), &at.child("nodeSelector"));
    }
    match v.get("allNodes").as_bool() {
        Some(true) => set.push("`allNodes`"),
        Some(false) => out.push(FieldError::invalid(
            &at.child("allNodes"),
            false,
            "must be either unset or set to true",
        )),
        None => {}
    }
    let why = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match set.len() {
        0 => out.push(FieldError::required(at, why)),
        1 => {}
        _ => out.push(FieldError::invalid(at, format!("{{{}}}", set.join(", ")), why)),
    }
}

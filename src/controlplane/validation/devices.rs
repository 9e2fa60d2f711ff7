//! Validation of the resource.k8s.io kinds (upstream's `pkg/apis/resource/validation`). This file has the entry
//! points for DeviceClasses, claims and templates, and helpers for the submodules: `claim` (claim specs),
//! `status` (claim status), `slice` (ResourceSlices) and `selectors` (CEL expressions that choose devices).

mod capacity;
mod claim;
mod internal_form;
mod selectors;
mod slice;
mod status;

use super::common::csi_driver_name;
use super::sources::claim_metadata;
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{c_identifier, dns1123_label, dns1123_subdomain, label_value, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, Seen, invalid_each, required_choice, same};
use internal_form::CLAIM_SPEC;
use selectors::selectors;

pub(crate) use slice::{slice, slice_update, slice_warnings};
pub(crate) use status::claim_status;

// Limits are constants of upstream's API (`pkg/apis/resource/types.go`): they bound the size of an object, and the
// work of the scheduler, which tries combinations of devices.
const MAX_REQUESTS: usize = 32;
const MAX_CONFIGS: usize = 32;
/// Bytes of a driver's opaque parameters, encoded as JSON.
const MAX_PARAMETERS_LENGTH: usize = 10 * 1024;
const MAX_IDENTIFIER_LENGTH: usize = 32;
const MAX_POOL_LENGTH: usize = 253;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Returns the elements of a list. If there are more than `most`, reports only that and returns none, so that
/// an oversized list is not validated element by element.
fn at_most<'a>(out: &mut ErrorList, v: &'a Value, most: usize, at: &FieldPath) -> &'a [Value] {
    let all = v.items();
    if all.len() > most {
        out.push(FieldError::too_many(at, all.len(), most));
        // Nor are later checks of the list run: its error alone makes the object invalid.
        return &[];
    }
    all
}

/// Reports elements with the key of an earlier one.
fn duplicates(out: &mut ErrorList, keys: impl Iterator<Item = String>, at: &FieldPath) {
    let mut seen: Seen<String> = Seen::new();
    for (i, key) in keys.enumerate() {
        // Asked before inserting, so that the key is moved into either the error or the set.
        if seen.contains(&key) {
            out.push(FieldError::duplicate(&at.index(i), key));
        } else {
            seen.insert(key);
        }
    }
}

fn entries(v: &Value) -> impl Iterator<Item = (&str, &Value)> {
    v.as_object().into_iter().flat_map(|m| m.iter())
}

fn label_name(out: &mut ErrorList, text: &str, at: &FieldPath) {
    invalid_each(out, at, text, dns1123_label(text));
}

/// Checks a pool name: one or more DNS subdomains separated by slashes.
fn pool_name(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.is_empty() {
        out.push(FieldError::required(at, ""));
        return;
    }
    if text.len() > MAX_POOL_LENGTH {
        out.push(FieldError::too_long(at, MAX_POOL_LENGTH as i64));
    }
    for part in text.split('/') {
        invalid_each(out, at, part, dns1123_subdomain(part));
    }
}

fn identifier(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.len() > MAX_IDENTIFIER_LENGTH {
        out.push(FieldError::too_long(at, MAX_IDENTIFIER_LENGTH as i64));
    }
    invalid_each(out, at, text, c_identifier(text));
}

/// Checks an attribute name, `name` or `domain/name`. As upstream, names with more slashes pass unchecked.
fn attribute_name(out: &mut ErrorList, text: &str, at: &FieldPath) {
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        [name] => identifier(out, name, at),
        [domain, name] => {
            if domain.is_empty() {
                out.push(FieldError::invalid(at, "", "the domain must not be empty"));
            } else {
                csi_driver_name(out, domain, at);
            }
            if name.is_empty() {
                out.push(FieldError::invalid(at, "", "the name must not be empty"));
            } else {
                identifier(out, name, at);
            }
        }
        // Upstream's switch on the number of parts has no default.
        _ => {}
    }
}

fn full_attribute_name(out: &mut ErrorList, text: &str, at: &FieldPath) {
    // Both errors may apply: a short name is also checked as an identifier.
    attribute_name(out, text, at);
    if !text.contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        // A named string type, unlike what the checks above are about.
        out.push(FieldError::invalid_enum(at, text, why));
    }
}

/// Checks the configuration passed to a driver. Parameters that are already `stored` have no length limit.
fn configuration(out: &mut ErrorList, v: &Value, stored: bool, at: &FieldPath) {
    let (opaque, at) = (v.get("opaque"), at.child("opaque"));
    if opaque.is_null() {
        out.push(FieldError::required(&at, ""));
        return;
    }
    csi_driver_name(out, opaque.str_at(&["driver"]), &at.child("driver"));
    // The limit came later than the field, so stored parameters may exceed it.
    let longest = if stored { usize::MAX } else { MAX_PARAMETERS_LENGTH };
    raw_object(out, opaque.get("parameters"), longest, &at.child("parameters"));
}

/// Checks an opaque JSON object (`RawExtension`).
fn raw_object(out: &mut ErrorList, v: &Value, longest: usize, at: &FieldPath) {
    if v.is_null() {
        out.push(FieldError::required(at, ""));
    // Before the type: the size of the encoding is checked even if it is not an object.
    } else if json::to_string(v).len() > longest {
        out.push(FieldError::too_long(at, longest as i64));
    } else if v.as_object().is_none() {
        out.push(FieldError::invalid(
            at,
            "<value omitted>",
            "must be a valid JSON object",
        ));
    }
}

fn toleration(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let (key, value, effect) = (v.str_at(&["key"]), v.str_at(&["value"]), v.str_at(&["effect"]));
    if !key.is_empty() {
        invalid_each(out, &at.child("key"), key, qualified_name(key));
    }
    match v.str_at(&["operator"]) {
        "Exists" if !value.is_empty() => {
            let why = "must be empty for operator `Exists`";
            out.push(FieldError::invalid(&at.child("value"), value, why));
        }
        // An empty value is a valid label value, so it passes.
        "Equal" => invalid_each(out, &at.child("value"), value, label_value(value)),
        _ => required_choice(out, v, "operator", at, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        out.push(FieldError::not_supported(&at.child("effect"), effect, EFFECTS));
    }
}

fn tolerations(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    for (i, t) in v.get("tolerations").items().iter().enumerate() {
        toleration(out, t, &at.child("tolerations").index(i));
    }
}

/// Checks `bindingConditions` and `bindingFailureConditions`, which are required together and must not
/// overlap.
fn binding_conditions(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    const MAX: usize = 4;
    let (good, bad) = ("bindingConditions", "bindingFailureConditions");
    let names = |key: &str| crate::controlplane::fields::strings(v.get(key));
    for key in [good, bad] {
        let at = at.child(key);
        for (i, c) in at_most(out, v.get(key), MAX, &at).iter().enumerate() {
            let name = c.as_str().unwrap_or("");
            invalid_each(out, &at.index(i), name, qualified_name(name));
        }
    }
    // After the syntax of both lists: the order of upstream's errors.
    duplicates(out, names(good).into_iter().map(str::to_owned), &at.child(good));
    let mut seen: Seen<&str> = Seen::new();
    let wanted: Seen<&str> = names(good).into_iter().collect();
    for (i, name) in names(bad).into_iter().enumerate() {
        let at = at.child(bad).index(i);
        if !seen.insert(name) {
            out.push(FieldError::duplicate(&at, name));
        }
        if wanted.contains(&name) {
            let why = "bindingFailureConditions must not overlap with bindingConditions";
            out.push(FieldError::invalid(&at, name, why));
        }
    }
    // One without the other could never resolve a binding: neither success nor failure would be noticed.
    for (missing, there) in [(good, bad), (bad, good)] {
        if names(missing).is_empty() && !names(there).is_empty() {
            let why = format!("{missing} are required to use {there}");
            out.push(FieldError::invalid(&at.child(missing), v.get(missing).clone(), why));
        }
    }
}

/// Validates a new ResourceClaim.
pub(crate) fn claim(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    claim::devices(&mut out, v.at(&["spec", "devices"]), &spec().child("devices"));
    out
}

/// Validates an update of a ResourceClaim, whose spec is immutable.
pub(crate) fn claim_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    fixed_spec(&mut out, new, old, CLAIM_SPEC);
    out
}

fn spec() -> FieldPath {
    FieldPath::new("spec")
}

fn fixed_spec(out: &mut ErrorList, new: &Value, old: &Value, fields: &'static [super::go_form::Field]) {
    if !same(new.get("spec"), old.get("spec")) {
        let shown = super::go_form::compact(new.get("spec"), fields);
        out.push(FieldError::invalid_raw(&spec(), shown, IMMUTABLE));
    }
}

/// Validates a new ResourceClaimTemplate.
pub(crate) fn template(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    claim_metadata(&mut out, v.at(&["spec", "metadata"]), &spec().child("metadata"));
    let at = spec().child("spec").child("devices");
    claim::devices(&mut out, v.at(&["spec", "spec", "devices"]), &at);
    out
}

/// Validates an update of a ResourceClaimTemplate, whose spec is immutable.
pub(crate) fn template_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = template(new);
    if same(new.get("spec"), old.get("spec")) {
        return out;
    }
    let (metadata, claim) = (new.at(&["spec", "metadata"]), new.at(&["spec", "spec"]));
    let shown = super::go_form::template(metadata, claim, CLAIM_SPEC);
    out.push(FieldError::invalid_raw(&spec(), shown, IMMUTABLE));
    out
}

/// Validates a DeviceClass; `old` is the stored one on update.
pub(crate) fn class(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let of = v.get("spec");
    let kept = |key: &str| old.is_some_and(|o| same(o.at(&["spec", key]), of.get(key)));
    // Unchanged expressions are compiled too, as upstream, which lets them use what new ones may not yet; see
    // `selectors`.
    selectors(&mut out, of.get("selectors"), &spec().child("selectors"));
    let at = spec().child("config");
    let stored = kept("config");
    for (i, c) in at_most(&mut out, of.get("config"), MAX_CONFIGS, &at).iter().enumerate() {
        configuration(&mut out, c, stored, &at.index(i));
    }
    if let Some(name) = of.get("extendedResourceName").as_str()
        && !is_extended_resource(name)
    {
        let why = "must be a valid extended resource name";
        out.push(FieldError::invalid(&spec().child("extendedResourceName"), name, why));
    }
    out
}

/// True for a domain-qualified name outside `kubernetes.io` that is also valid as a quota key
/// (`requests.<name>`).
fn is_extended_resource(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        // The prefix is reserved for quotas, which count extended resources as `requests.<name>`.
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests;

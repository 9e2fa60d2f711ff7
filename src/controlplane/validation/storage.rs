//! Validation of the kinds of storage.k8s.io (upstream's `pkg/apis/storage/validation`).

use super::common::{NOT_NEGATIVE, csi_driver_name, go_struct, is_negative, not_negative, quantity};
use super::go_form;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::validation::{dns1123_subdomain, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, Seen, invalid_each, required_pointer, same, selector_check, strings};
use crate::interrupt::checkpoint;
use std::collections::{BTreeMap, HashMap};

fn root() -> FieldPath {
    FieldPath::default()
}

fn immutable(out: &mut ErrorList, new: &Value, old: &Value, path: &[&str], at: &FieldPath) {
    if !same(new.at(path), old.at(path)) {
        // None of these fields is a plain string upstream.
        out.push(FieldError::invalid_enum(at, new.at(path).clone(), IMMUTABLE));
    }
}

fn immutable_string(out: &mut ErrorList, new: &Value, old: &Value, key: &str) {
    let (now, was) = (new.str_at(&[key]), old.str_at(&[key]));
    if now != was {
        out.push(FieldError::invalid(&FieldPath::new(key), now, IMMUTABLE));
    }
}

/// Checks a provisioner or driver name: a qualified name, ignoring case.
fn provisioner(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.is_empty() {
        out.push(FieldError::required(at, ""));
    } else {
        // The bad value is the lowered name, as upstream.
        let text = text.to_lowercase();
        let messages = qualified_name(&text);
        invalid_each(out, at, text.as_str(), messages);
    }
}

fn parameters(out: &mut ErrorList, v: &Value, may_be_empty: bool) {
    let at = FieldPath::new("parameters");
    let map = v.get("parameters").as_object();
    let count = map.map_or(0, |m| m.len());
    // Limits of upstream's API: parameters are passed to the driver with every volume.
    if count > 512 {
        // `TooLong`, although it is a number of entries: upstream's choice.
        out.push(FieldError::too_long(&at, 512));
        return;
    }
    let mut size = 0;
    for (k, value) in map.into_iter().flat_map(|m| m.iter()) {
        if k.is_empty() {
            out.push(FieldError::invalid(&at, "", "field can not be empty."));
        }
        size += k.len() + value.as_str().map_or(0, str::len);
    }
    if size > 256 * 1024 {
        out.push(FieldError::too_long(&at, 256 * 1024));
    }
    if !may_be_empty && count == 0 {
        out.push(FieldError::required(&at, "must contain at least one key/value pair"));
    }
}

pub(crate) fn storage_class(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    provisioner(&mut out, v.str_at(&["provisioner"]), &FieldPath::new("provisioner"));
    parameters(&mut out, v, true);
    super::volumes::reclaim_policy(&mut out, v);
    required_pointer(
        &mut out,
        v,
        "volumeBindingMode",
        &root(),
        &["Immediate", "WaitForFirstConsumer"],
    );
    topologies(&mut out, v.get("allowedTopologies").items());
    out
}

/// Checks `allowedTopologies`: terms must be distinct, regardless of the order of keys and values.
fn topologies(out: &mut ErrorList, terms: &[Value]) {
    let path = FieldPath::new("allowedTopologies");
    let mut seen: HashMap<Vec<(&str, Vec<&str>)>, usize> = HashMap::new();
    for (i, term) in terms.iter().enumerate() {
        checkpoint();
        let at = path.index(i).child("matchLabelExpressions");
        // If several requirements have the same key, the last one wins.
        let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (j, e) in term.get("matchLabelExpressions").items().iter().enumerate() {
            let (at, key) = (at.index(j), e.str_at(&["key"]));
            let mut known = Seen::new();
            let mut values: Vec<&str> = Vec::new();
            if e.get("values").items().is_empty() {
                out.push(FieldError::required(&at.child("values"), ""));
            }
            for (k, value) in strings(e.get("values")).into_iter().enumerate() {
                if known.insert(value) {
                    values.push(value);
                } else {
                    out.push(FieldError::duplicate(&at.child("values").index(k), value));
                }
            }
            // Sorted, so that terms compare equal regardless of the order of their values.
            values.sort_unstable();
            invalid_each(out, &at.child("key"), key, qualified_name(key));
            if places.insert(key, values).is_some() {
                out.push(FieldError::duplicate(&at.child("key"), key));
            }
        }
        let places: Vec<(&str, Vec<&str>)> = places.into_iter().collect();
        // Upstream preallocates one empty term per term and compares with those too, so an empty term is
        // always a duplicate.
        let empty = if places.is_empty() { terms.len() } else { 0 };
        let before = seen.entry(places).or_default();
        // One error per equal term before this one, as upstream's pairwise comparison gives, in linear time.
        out.push_times(empty + *before, || FieldError::duplicate(&at, ""));
        *before += 1;
    }
}

pub(crate) fn storage_class_warnings(v: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for (i, term) in v.get("allowedTopologies").items().iter().enumerate() {
        for (j, e) in term.get("matchLabelExpressions").items().iter().enumerate() {
            if let Some(text) = super::pod::deprecated_label(e.str_at(&["key"])) {
                out.push(format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key: {text}"));
            }
        }
    }
    out
}

pub(crate) fn storage_class_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = storage_class(new);
    // Existing volumes were provisioned with these; a changed class would misdescribe them.
    immutable(&mut out, new, old, &["parameters"], &FieldPath::new("parameters"));
    immutable_string(&mut out, new, old, "provisioner");
    for key in ["reclaimPolicy", "volumeBindingMode"] {
        immutable(&mut out, new, old, &[key], &FieldPath::new(key));
    }
    out
}

pub(crate) fn attributes_class(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    provisioner(&mut out, v.str_at(&["driverName"]), &FieldPath::new("driverName"));
    parameters(&mut out, v, false);
    out
}

pub(crate) fn attributes_class_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    for key in ["driverName", "parameters"] {
        if !same(new.get(key), old.get(key)) {
            let why = format!("updates to {key} are forbidden.");
            out.push(FieldError::forbidden(&FieldPath::new(key), why));
        }
    }
    out.extend(attributes_class(new));
    out
}

pub(crate) fn csi_driver(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    for (key, shown) in [
        // The misspelt path is upstream's.
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if spec.get(key).is_null() {
            out.push(FieldError::required(&path.child(shown), ""));
        }
    }
    required_pointer(
        &mut out,
        spec,
        "fsGroupPolicy",
        &path,
        &["File", "None", "ReadWriteOnceWithFSType"],
    );
    let mut audiences = Seen::new();
    let at = path.child("tokenRequests");
    for (i, t) in spec.get("tokenRequests").items().iter().enumerate() {
        let (at, audience) = (at.index(i), t.str_at(&["audience"]));
        if !audiences.insert(audience) {
            out.push(FieldError::duplicate(&at.child("audience"), audience));
            // Upstream does not look at the rest of a duplicate.
            continue;
        }
        let at = at.child("expirationSeconds");
        match t.get("expirationSeconds").as_i64() {
            Some(n) if n < 600 => {
                out.push(FieldError::invalid(
                    &at,
                    n,
                    "may not specify a duration less than 10 minutes",
                ));
            }
            Some(n) if n > 1 << 32 => {
                let why = "may not specify a duration larger than 2^32 seconds";
                out.push(FieldError::invalid(&at, n, why));
            }
            _ => {}
        }
    }
    let at = path.child("volumeLifecycleModes");
    for mode in spec.get("volumeLifecycleModes").items() {
        let mode = mode.as_str().unwrap_or("");
        if !matches!(mode, "Persistent" | "Ephemeral") {
            // As upstream, the path has no index.
            out.push(FieldError::not_supported(&at, mode, &["Persistent", "Ephemeral"]));
        }
    }
    if let Some(n) = spec
        .get("nodeAllocatableUpdatePeriodSeconds")
        .as_i64()
        .filter(|n| *n < 10)
    {
        let at = path.child("nodeAllocatableUpdatePeriodSeconds");
        out.push(FieldError::invalid(
            &at,
            n,
            "must be greater than or equal to 10 seconds",
        ));
    }
    // A pointer upstream, so `false` counts as set.
    let in_secrets = spec.get("serviceAccountTokenInSecrets");
    if !in_secrets.is_null() && spec.get("tokenRequests").items().is_empty() {
        let at = path.child("serviceAccountTokenInSecrets");
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        out.push(FieldError::invalid(&at, in_secrets.clone(), why));
    }
    out
}

pub(crate) fn csi_driver_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = csi_driver(new);
    let path = FieldPath::new("spec");
    // The misspelt path is upstream's.
    immutable(
        &mut out,
        new,
        old,
        &["spec", "attachRequired"],
        &path.child("attachedRequired"),
    );
    let modes = "volumeLifecycleModes";
    immutable(&mut out, new, old, &["spec", modes], &path.child(modes));
    out
}

pub(crate) fn csi_driver_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let requests = new.at(&["spec", "tokenRequests"]);
    // Warns only about what this write decides, not about every update of the driver.
    let unchanged = old.is_some_and(|o| same(o.at(&["spec", "tokenRequests"]), requests));
    let unset = new.at(&["spec", "serviceAccountTokenInSecrets"]).is_null();
    let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
    (!requests.is_empty_value() && unset && !unchanged)
        .then(|| text.to_owned())
        .into_iter()
        .collect()
}

pub(crate) fn csi_node(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("spec").child("drivers");
    let mut names = Seen::new();
    for (i, d) in v.at(&["spec", "drivers"]).items().iter().enumerate() {
        let (at, name) = (path.index(i), d.str_at(&["name"]));
        csi_driver_name(&mut out, name, &at.child("name"));
        match d.str_at(&["nodeID"]) {
            "" => out.push(FieldError::required(&at.child("nodeID"), "")),
            id if id.len() > 256 => {
                out.push(FieldError::invalid(
                    &at.child("nodeID"),
                    id,
                    "must be 256 characters or less",
                ));
            }
            _ => {}
        }
        // Before the duplicate name, as upstream.
        not_negative(&mut out, d.get("allocatable"), "count", &at.child("allocatable"));
        if !names.insert(name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        }
        let mut keys = Seen::new();
        // All problems of keys are reported at the driver, as upstream.
        for key in d.get("topologyKeys").items() {
            let key = key.as_str().unwrap_or("");
            if key.is_empty() {
                out.push(FieldError::required(&at, ""));
            }
            if !keys.insert(key) {
                out.push(FieldError::duplicate(&at, key));
            }
            invalid_each(&mut out, &at, key, qualified_name(key));
        }
    }
    out
}

const DRIVER: &[(&str, &str, &str)] = &[
    ("Name", "name", "\"\""),
    ("NodeID", "nodeID", "\"\""),
    ("TopologyKeys", "topologyKeys", "null"),
    ("Allocatable", "allocatable", "null"),
];

pub(crate) fn csi_node_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = csi_node(new);
    let bare = |d: &Value| {
        let mut d = d.clone();
        // Drivers adjust it while they run (`MutableCSINodeAllocatableCount`).
        d.unset(&["allocatable"]);
        d
    };
    // A list per name: a refused update may have several drivers with one name.
    let mut now: HashMap<&str, Vec<&Value>> = HashMap::new();
    for d in new.at(&["spec", "drivers"]).items() {
        now.entry(d.str_at(&["name"])).or_default().push(d);
    }
    let at = FieldPath::new("spec").child("drivers");
    // In the order of the stored drivers, whose names are unique.
    for was in old.at(&["spec", "drivers"]).items() {
        let was_bare = bare(was);
        for d in now.get(was.str_at(&["name"])).into_iter().flatten().copied() {
            let d = bare(d);
            if !same(&was_bare, &d) {
                out.push(FieldError::invalid_raw(&at, go_struct(&d, DRIVER), IMMUTABLE));
            }
        }
    }
    out
}

pub(crate) fn csi_storage_capacity(v: &Value) -> ErrorList {
    checked_capacity(v, None)
}

fn checked_capacity(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let selector = selector_check(old.map(|old| old.get("nodeTopology")));
    selector(&mut out, v.get("nodeTopology"), &FieldPath::new("nodeTopology"));
    let class = v.str_at(&["storageClassName"]);
    // An empty name gets the message about subdomains, not `Required`.
    invalid_each(
        &mut out,
        &FieldPath::new("storageClassName"),
        class,
        dns1123_subdomain(class),
    );
    let capacity = v.get("capacity");
    if quantity(capacity).is_some_and(is_negative) {
        let at = FieldPath::new("capacity");
        out.push(FieldError::invalid(&at, capacity.clone(), NOT_NEGATIVE));
    }
    out
}

/// Warns about deprecated node labels in the topology.
pub(crate) fn csi_storage_capacity_warnings(v: &Value) -> Vec<String> {
    let topology = v.get("nodeTopology");
    let mut out = Vec::new();
    for (i, e) in topology.get("matchExpressions").items().iter().enumerate() {
        let key = e.str_at(&["key"]);
        if let Some(text) = super::pod::deprecated_label(key) {
            out.push(format!("nodeTopology.matchExpressions[{i}].key: {key} is {text}"));
        }
    }
    let labels = topology.get("matchLabels").as_object();
    for key in labels.into_iter().flat_map(|m| m.keys()) {
        if let Some(text) = super::pod::deprecated_label(key) {
            out.push(format!("nodeTopology.matchLabels.{key}: {text}"));
        }
    }
    out
}

pub(crate) fn csi_storage_capacity_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = checked_capacity(new, Some(old));
    let (topology, was) = (new.get("nodeTopology"), old.get("nodeTopology"));
    // A pointer: an empty selector, which selects every node, is not the same as none.
    if !same(topology, was) || topology.is_null() != was.is_null() {
        let at = FieldPath::new("nodeTopology");
        out.push(FieldError::invalid_raw(&at, go_form::selector(topology), IMMUTABLE));
    }
    immutable_string(&mut out, new, old, "storageClassName");
    out
}

pub(crate) fn volume_attachment(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    csi_driver_name(&mut out, spec.str_at(&["attacher"]), &path.child("attacher"));
    let (source, at) = (spec.get("source"), path.child("source"));
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.get("inlineVolumeSpec"), source.get("persistentVolumeName")) {
        (Value::Null, Value::Null) => out.push(FieldError::required(&at, why)),
        (Value::Null, name) if name.as_str() == Some("") => out.push(FieldError::required(
            &at.child("persistentVolumeName"),
            "must specify non empty persistentVolumeName",
        )),
        // Both: neither is validated in depth.
        (inline, name) if !inline.is_null() && !name.is_null() => out.push(FieldError::forbidden(&at, why)),
        (Value::Null, _) => {}
        (inline, _) => super::volumes::inline_volume(&mut out, inline, &at.child("inlineVolumeSpec")),
    }
    let node = spec.str_at(&["nodeName"]);
    invalid_each(&mut out, &path.child("nodeName"), node, dns1123_subdomain(node));
    // On create the strategy has cleared it; on update it is validated with the rest.
    attachment_status(&mut out, v.get("status"));
    if let Some(name) = source.get("persistentVolumeName").as_str() {
        let at = at.child("persistentVolumeName");
        invalid_each(&mut out, &at, name, dns1123_subdomain(name));
    }
    out
}

/// Checks the status that an external attacher writes.
fn attachment_status(out: &mut ErrorList, status: &Value) {
    const MAX: i64 = 256 * 1024;
    let path = FieldPath::new("status");
    let metadata = status.get("attachmentMetadata").as_object();
    let size: usize = metadata
        .into_iter()
        .flat_map(|m| m.iter())
        .map(|(k, v)| k.len() + v.as_str().map_or(0, str::len))
        .sum();
    if size as i64 > MAX {
        out.push(FieldError::too_long(&path.child("attachmentMetadata"), MAX));
    }
    for key in ["attachError", "detachError"] {
        let (e, at) = (status.get(key), path.child(key));
        if e.str_at(&["message"]).len() > 1024 {
            // Upstream reports the limit of the metadata here instead of 1024.
            out.push(FieldError::too_long(&at.child("message"), MAX));
        }
        // The upper bound holds for any 32-bit integer, which decoding has ensured.
        if let Some(n) = e.get("errorCode").as_i64().filter(|n| *n < 0) {
            let why = "must be between 0 and 2147483647, inclusive";
            out.push(FieldError::invalid(&at.child("errorCode"), n, why));
        }
    }
}

pub(crate) fn volume_attachment_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = volume_attachment(new);
    if !same(new.get("spec"), old.get("spec")) {
        let spec = new.get("spec");
        let source = spec.get("source");
        let inline = match source.get("inlineVolumeSpec") {
            Value::Null => "null".to_owned(),
            inline => go_form::persistent_volume_spec(inline),
        };
        let quoted = |key: &str| show_json(&Value::from(spec.str_at(&[key])));
        let shown = format!(
            "{{\"Attacher\":{},\"Source\":{{\"PersistentVolumeName\":{},\"InlineVolumeSpec\":{inline}}},\"NodeName\":{}}}",
            quoted("attacher"),
            show_json(source.get("persistentVolumeName")),
            quoted("nodeName")
        );
        out.push(FieldError::invalid_raw(&FieldPath::new("spec"), shown, IMMUTABLE));
    }
    out
}

#[cfg(test)]
mod tests;

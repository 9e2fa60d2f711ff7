//! Validation of a claim's status: allocation, reservations and device status. Entry point: [`claim_status`].
//! Whether the caller may change these is checked by the strategy.

use super::claim::Requests;
use super::internal_form::ALLOCATION;
use super::{MAX_CONFIGS, at_most, binding_conditions, configuration, duplicates, label_name, pool_name, raw_object};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldErrorKind, FieldPath, quote};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::{net, objects};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, Seen, duplicate_enum, invalid_each, required_choice, same};
use crate::controlplane::validation::common::csi_driver_name;
use crate::controlplane::validation::common::go_struct;
use crate::controlplane::validation::go_form::compact;
use crate::controlplane::validation::pod::node_selector;

// Limits of upstream's API (`pkg/apis/resource/types.go`).
const MAX_CONSUMERS: usize = 256;
const MAX_RESULTS: usize = 32;
const MAX_CONDITIONS: usize = 8;
const MAX_ADDRESSES: usize = 16;
const MAX_DATA_LENGTH: usize = 10 * 1024;
const MAX_INTERFACE_LENGTH: usize = 256;
const MAX_HARDWARE_ADDRESS_LENGTH: usize = 128;

/// A device's identity, formatted like upstream's internal struct. Used both as key and as bad value.
fn device_id(v: &Value) -> String {
    const ID: &[(&str, &str, &str)] = &[
        ("Driver", "driver", "\"\""),
        ("Pool", "pool", "\"\""),
        ("Device", "device", "\"\""),
        ("ShareID", "shareID", "\"\""),
    ];
    go_struct(v, ID)
}

/// Validates a status update. An allocation can be set and cleared, but not changed.
pub(crate) fn claim_status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, was, path) = (new.get("status"), old.get("status"), FieldPath::new("status"));
    let (allocation, before) = (status.get("allocation"), was.get("allocation"));

    let at = path.child("reservedFor");
    let consumers = at_most(&mut out, status.get("reservedFor"), MAX_CONSUMERS, &at);
    for (i, c) in consumers.iter().enumerate() {
        for key in ["resource", "name", "uid"] {
            if c.str_at(&[key]).is_empty() {
                out.push(FieldError::required(&at.index(i).child(key), ""));
            }
        }
    }
    let mut seen: Seen<&str> = Seen::new();
    for (i, c) in consumers.iter().enumerate() {
        let uid = c.str_at(&["uid"]);
        if !seen.insert(uid) {
            out.push(duplicate_enum(&at.index(i), uid));
        }
    }

    let results = allocation.at(&["devices", "results"]).items();
    // Devices of the new allocation: device status may be written together with it.
    let allocated: Seen<String> = results.iter().map(device_id).collect();
    let at = path.child("devices");
    let devices = status.get("devices").items();
    for (i, d) in devices.iter().enumerate() {
        device(&mut out, d, &allocated, &at.index(i));
    }
    let mut seen: Seen<String> = Seen::new();
    // A second pass: upstream checks the uniqueness of a list after its elements.
    for (i, d) in devices.iter().enumerate() {
        if !seen.insert(device_id(d)) {
            let mut e = FieldError::duplicate(&at.index(i), "");
            e.bad_value = Some(device_id(d));
            out.push(e);
        }
    }

    // Rules across fields follow the checks of single fields, as upstream.
    reservations(&mut out, new, old, &path.child("reservedFor"));
    let at = path.child("allocation");
    match (allocation.is_null(), before.is_null()) {
        // Deallocation: always allowed.
        (true, _) => {}
        (false, true) => allocated_as(&mut out, allocation, &Requests::of(new.at(&["spec", "devices"])), &at),
        (false, false) if !same(allocation, before) => {
            out.push(FieldError::invalid_raw(&at, compact(allocation, ALLOCATION), IMMUTABLE));
        }
        _ => {}
    }
    out
}

fn reservations(out: &mut ErrorList, new: &Value, old: &Value, at: &FieldPath) {
    let list = |v: &Value| -> Vec<String> {
        let all = v.at(&["status", "reservedFor"]).items();
        all.iter().map(json::to_string).collect()
    };
    let (now, was) = (list(new), list(old).into_iter().collect::<Seen<String>>());
    if now.is_empty() {
        return;
    }
    if new.at(&["status", "allocation"]).is_null() {
        out.push(FieldError::forbidden(
            at,
            "may not be specified when `allocated` is not set",
        ));
    // A new consumer would keep the claim, and thereby the device, from being released.
    } else if new.is_being_deleted() && now.iter().any(|c| !was.contains(c)) {
        let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        out.push(FieldError::forbidden(at, why));
    }
}

fn allocated_as(out: &mut ErrorList, v: &Value, known: &Requests<'_>, path: &FieldPath) {
    let devices = v.get("devices");
    let at = path.child("devices").child("results");
    for (i, r) in at_most(out, devices.get("results"), MAX_RESULTS, &at)
        .iter()
        .enumerate()
    {
        let at = at.index(i);
        known.reference(out, r.str_at(&["request"]), &at.child("request"));
        csi_driver_name(out, r.str_at(&["driver"]), &at.child("driver"));
        pool_name(out, r.str_at(&["pool"]), &at.child("pool"));
        label_name(out, r.str_at(&["device"]), &at.child("device"));
        binding_conditions(out, r, &at);
        // Tolerations are copies of the request's and not checked again.
        share(out, r, &at);
    }
    let at = path.child("devices").child("config");
    // Configurations come from the claim and from its classes, each with the same maximum.
    for (i, c) in at_most(out, devices.get("config"), 2 * MAX_CONFIGS, &at)
        .iter()
        .enumerate()
    {
        let at = at.index(i);
        required_choice(out, c, "source", &at, &["FromClaim", "FromClass"]);
        known.references(out, c.get("requests"), &at.child("requests"));
        configuration(out, c, false, &at);
    }
    if !v.get("nodeSelector").is_null() {
        node_selector(out, v.get("nodeSelector"), &path.child("nodeSelector"));
    }
}

/// Checks that `shareID` is a UUID in canonical lowercase form.
fn share(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let Some(text) = v.get("shareID").as_str() else { return };
    let why = match not_a_uuid(text) {
        Some(why) => format!("error validating uid: {why}"),
        None if text.len() == 36 && text == text.to_lowercase() => return,
        None => "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters".to_owned(),
    };
    out.push(FieldError::invalid(&at.child("shareID"), text, why));
}

/// Why a text is not a UUID in any of the forms that Go's `uuid.Validate` accepts, of which one is canonical.
fn not_a_uuid(text: &str) -> Option<String> {
    const URN: &str = "urn:uuid:";
    let bytes = text.as_bytes();
    let digits = match bytes.len() {
        32 | 36 => bytes,
        38 if bytes[0] == b'{' && bytes[37] == b'}' => &bytes[1..37],
        38 => return Some("invalid bracketed UUID format".to_owned()),
        45 if bytes[..URN.len()].eq_ignore_ascii_case(URN.as_bytes()) => &bytes[URN.len()..],
        45 => {
            let prefix = String::from_utf8_lossy(&bytes[..URN.len()]);
            return Some(format!("invalid urn prefix: {}", quote(&prefix)));
        }
        n => return Some(format!("invalid UUID length: {n}")),
    };
    let has_hyphen = |i: usize| bytes.len() != 32 && matches!(i, 8 | 13 | 18 | 23);
    let fits = |(i, c): (usize, &u8)| {
        if has_hyphen(i) {
            *c == b'-'
        } else {
            c.is_ascii_hexdigit()
        }
    };
    let is_well_formed = digits.iter().enumerate().all(fits);
    (!is_well_formed).then(|| "invalid UUID format".to_owned())
}

fn device(out: &mut ErrorList, v: &Value, allocated: &Seen<String>, at: &FieldPath) {
    csi_driver_name(out, v.str_at(&["driver"]), &at.child("driver"));
    pool_name(out, v.str_at(&["pool"]), &at.child("pool"));
    label_name(out, v.str_at(&["device"]), &at.child("device"));
    share(out, v, at);
    let id = device_id(v);
    if !allocated.contains(&id) {
        out.push(FieldError::invalid_raw(
            at,
            id,
            "must be an allocated device in the claim",
        ));
    }
    let conditions = v.get("conditions");
    // Reported, but the conditions are still validated one by one.
    if conditions.items().len() > MAX_CONDITIONS {
        out.push(FieldError::too_many(
            &at.child("conditions"),
            conditions.items().len(),
            MAX_CONDITIONS,
        ));
    }
    let mut found = ErrorList::new();
    objects::validate_conditions(conditions, &at.child("conditions"), &mut found);
    // Upstream declares required fields in the schema here, whose errors have no detail.
    let missing = found.iter_mut().filter(|e| e.kind == FieldErrorKind::Required);
    missing.for_each(|e| e.detail.clear());
    out.extend(found);
    if !v.get("data").is_null() {
        raw_object(out, v.get("data"), MAX_DATA_LENGTH, &at.child("data"));
    }
    network(out, v.get("networkData"), &at.child("networkData"));
}

fn network(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    for (key, longest) in [
        ("interfaceName", MAX_INTERFACE_LENGTH),
        ("hardwareAddress", MAX_HARDWARE_ADDRESS_LENGTH),
    ] {
        if v.str_at(&[key]).len() > longest {
            out.push(FieldError::too_long(&at.child(key), longest as i64));
        }
    }
    let at = at.child("ips");
    let all = at_most(out, v.get("ips"), MAX_ADDRESSES, &at);
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    for (i, ip) in all.iter().enumerate() {
        let ip = text(ip);
        invalid_each(out, &at.index(i), ip.as_str(), interface_address(&ip));
    }
    duplicates(out, all.iter().map(text), &at);
}

/// Checks an interface address with prefix length, such as `10.9.8.7/24`, in canonical form.
fn interface_address(text: &str) -> Vec<String> {
    // The host part is kept: this is the address of an interface, not a network.
    let plain = net::parse_cidr(text).map(|(address, bits)| format!("{address}/{bits}"));
    match plain {
        None => vec!["must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)".to_owned()],
        Some(plain) if plain != text => vec![format!("must be in canonical form (\"{plain}\")")],
        Some(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_ids_are_lowercase_uuids() {
        let errors = |id: &str| {
            let mut out = ErrorList::new();
            share(&mut out, &crate::json!({"shareID": (id)}), &FieldPath::new("d"));
            out.iter().map(ToString::to_string).collect::<String>()
        };
        let id = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        assert_eq!(errors(id), "");
        let other_form = "uid must be in RFC 4122 normalized form";
        let no_form = "error validating uid: invalid UUID format";
        for (text, why) in [
            (id.to_uppercase(), other_form),
            (id.replace('-', ""), other_form),
            (format!("{{{id}}}"), other_form),
            (format!("URN:uuid:{id}"), other_form),
            (id.replace('a', "g"), no_form),
            (id.replace('-', "0"), no_form),
            (id.replace('-', "").replace('a', "g"), no_form),
            (format!("({id})"), "error validating uid: invalid bracketed UUID format"),
            (
                format!("urn-uuid:{id}"),
                "error validating uid: invalid urn prefix: \"urn-uuid:\"",
            ),
            (format!("{id}0"), "error validating uid: invalid UUID length: 37"),
        ] {
            let found = errors(&text);
            assert!(
                found.starts_with("d.shareID: Invalid value: ") && found.contains(why),
                "{text}: {found}"
            );
        }
    }

    #[test]
    fn interface_addresses_are_in_canonical_form() {
        assert!(interface_address("10.9.8.7/24").is_empty() && interface_address("2001:db8::1/64").is_empty());
        assert_eq!(
            interface_address("10.9.8.7/024"),
            ["must be in canonical form (\"10.9.8.7/24\")"]
        );
        for wrong in ["10.9.8.7/+24", "10.9.8.7/33", "10.9.8.7/", "10.9.8.7"] {
            assert_eq!(
                interface_address(wrong),
                ["must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"],
                "{wrong}"
            );
        }
    }
}

//! Validation of the interdependent fields `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`
//! (`ValidateServiceClusterIPsRelatedFields` upstream).

use super::super::super::allocators::IpFamily;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{net, parse_ip};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, duplicate_enum, invalid_each, optional_choice, strings};

/// Validates the fields; ExternalName Services are exempt. The strategy also calls this before allocation.
pub(crate) fn related_fields(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    if spec.str_at(&["type"]) == "ExternalName" {
        return out;
    }
    first_address(spec, &mut out);
    let families = strings(spec.get("ipFamilies"));
    families_and_policy(spec, &families, &mut out);
    // Families of malformed addresses are unknown.
    if addresses(spec, old, &mut out) {
        families_of_addresses(spec, &families, &mut out);
    }
    out
}

fn cluster_ips() -> FieldPath {
    FieldPath::new("spec").child("clusterIPs")
}

/// `clusterIP` is the first of `clusterIPs`.
fn first_address(spec: &Value, out: &mut ErrorList) {
    let at = cluster_ips();
    let list = spec.get("clusterIPs");
    let single = spec.str_at(&["clusterIP"]);
    // The strategy has derived `clusterIPs` where that is unambiguous; what still differs is the client's
    // contradiction.
    match (single.is_empty(), strings(list).first()) {
        (false, None) => out.push(FieldError::required(&at, "")),
        (false, Some(first)) if *first != single => out.push(FieldError::invalid(
            &at,
            list.clone(),
            "first value must match `clusterIP`",
        )),
        (true, Some(_)) => out.push(FieldError::invalid(
            &at,
            list.clone(),
            "must be empty when `clusterIP` is not specified",
        )),
        _ => {}
    }
}

fn families_and_policy(spec: &Value, families: &[&str], out: &mut ErrorList) {
    let path = FieldPath::new("spec");
    let mut seen = Seen::new();
    for (i, f) in families.iter().enumerate() {
        let at = path.child("ipFamilies").index(i);
        if IpFamily::parse(f).is_none() {
            out.push(FieldError::not_supported(&at, *f, &["IPv4", "IPv6"]));
        }
        if !seen.insert(*f) {
            out.push(duplicate_enum(&at, f));
        }
    }
    optional_choice(
        out,
        spec,
        "ipFamilyPolicy",
        &path,
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
}

/// Each of `clusterIPs` on its own. True if all are well-formed.
fn addresses(spec: &Value, old: Option<&Value>, out: &mut ErrorList) -> bool {
    let at = cluster_ips();
    let list = spec.get("clusterIPs");
    let ips = strings(list);
    let mut all_fine = true;
    let had = old.map_or(&[][..], |o| o.at(&["spec", "clusterIPs"]).items());
    let had: Seen<&str> = had.iter().filter_map(Value::as_str).collect();
    for (i, ip) in ips.iter().enumerate() {
        // `None` anywhere else fails as a malformed address.
        if i == 0 && *ip == "None" {
            if ips.len() > 1 {
                all_fine = false;
                out.push(FieldError::invalid(
                    &at,
                    list.clone(),
                    "'None' must be the first and only value",
                ));
            }
            continue;
        }
        // Stored addresses may be in a form that is no longer valid.
        let messages = if had.contains(ip) {
            Vec::new()
        } else {
            net::ip_strict(ip)
        };
        all_fine &= messages.is_empty();
        invalid_each(out, &at.index(i), *ip, messages);
    }
    if ips.len() > 2 {
        out.push(FieldError::invalid(&at, list.clone(), "may only hold up to 2 values"));
    }
    all_fine
}

/// One address per family, each of the family at the same place in `ipFamilies`.
fn families_of_addresses(spec: &Value, families: &[&str], out: &mut ErrorList) {
    let at = cluster_ips();
    let list = spec.get("clusterIPs");
    let ips = strings(list);
    let of = |s: &str| parse_ip(s).map(IpFamily::of);
    // The closure runs only if there is an element, so the index is valid.
    let both = ips.iter().any(|ip| of(ip) != of(ips[0]));
    if ips.len() > 1 && !both {
        out.push(FieldError::invalid(
            &at,
            list.clone(),
            "may specify no more than one IP for each IP family",
        ));
    }
    // Fewer families than addresses, or the reverse, are completed by allocation.
    for (i, (ip, family)) in ips.iter().zip(families).enumerate() {
        if *ip == "None" {
            break;
        }
        if IpFamily::parse(family).is_some_and(|f| of(ip) != Some(f)) {
            out.push(FieldError::invalid(
                &at.index(i),
                *ip,
                format!("expected an {family} value as indicated by `ipFamilies[{i}]`"),
            ));
        }
    }
}

//! Validation of Service updates: immutable fields, and changes between single-stack and dual-stack.

use super::traffic::{balancer_class, needs_health_check};
use super::{is_headless, service};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, strings};

/// Validates an update: first the rules for changes of addresses and families, then those of a new Service.
pub(crate) fn service_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let addressed = |v: &Value| v.str_at(&["spec", "type"]) != "ExternalName";
    // Changing to or from ExternalName frees or assigns addresses, so there is nothing to keep.
    if addressed(new) && addressed(old) {
        cluster_ips(&mut out, new, old);
        families(&mut out, new, old);
    }
    let path = FieldPath::new("spec");
    // A controller adopts a load balancer by class, once.
    let balanced = |v: &Value| v.str_at(&["spec", "type"]) == "LoadBalancer";
    if balanced(new) && balanced(old) {
        let class = |v: &Value| v.at(&["spec", "loadBalancerClass"]).clone();
        if class(new) != class(old) {
            out.push(FieldError::invalid_enum(
                &path.child("loadBalancerClass"),
                class(new),
                "may not change once set",
            ));
        }
    }
    // As upstream, the syntax is checked here and again by `service`, so causes repeat.
    balancer_class(&mut out, new.get("spec"), balanced(new), &path);
    // External balancers have been configured with the port.
    if needs_health_check(new) && needs_health_check(old) {
        let port = |v: &Value| v.at(&["spec", "healthCheckNodePort"]).as_i64().unwrap_or(0);
        if port(new) != port(old) {
            out.push(FieldError::forbidden(&path.child("healthCheckNodePort"), IMMUTABLE));
        }
    }
    out.extend(service(new, Some(old)));
    out
}

/// Error messages of a list: primary entry cleared, and secondary entry released without a change of the policy.
struct UpdateMessages {
    key: &'static str,
    unset: &'static str,
    released: &'static str,
}

const IPS: UpdateMessages = UpdateMessages {
    key: "clusterIPs",
    unset: "primary clusterIP can not be unset",
    released: "must be set to 'SingleStack' when releasing the secondary clusterIP",
};

const FAMILIES: UpdateMessages = UpdateMessages {
    key: "ipFamilies",
    unset: "primary ipFamily can not be unset",
    released: "must be set to 'SingleStack' when releasing the secondary ipFamily",
};

fn cluster_ips(out: &mut ErrorList, new: &Value, old: &Value) {
    if is_headless(new) && is_headless(old) {
        return;
    }
    let at = FieldPath::new("spec").child(IPS.key);
    let shown = new.at(&["spec", IPS.key]);
    let (now, was) = (strings(shown), strings(old.at(&["spec", IPS.key])));
    if now.len() == was.len() {
        for (i, _) in was.iter().zip(&now).enumerate().filter(|(_, (a, b))| a != b) {
            // Each error clones the whole list, whose length is the client's; built only while the error list
            // has room.
            out.push_with(|| FieldError::invalid(&at.index(i), shown.clone(), CHANGED));
        }
    } else {
        resized(out, new, &IPS, (&now, &was), now.is_empty(), shown);
    }
}

fn families(out: &mut ErrorList, new: &Value, old: &Value) {
    // Headless Services may change their families: they have no address that clients rely on.
    if is_headless(new) || is_headless(old) {
        return;
    }
    let at = FieldPath::new("spec").child(FAMILIES.key).index(0);
    let shown = new.at(&["spec", FAMILIES.key]);
    let (now, was) = (strings(shown), strings(old.at(&["spec", FAMILIES.key])));
    let ips = new.at(&["spec", IPS.key]);
    if now.len() == was.len() {
        // As upstream, every change is reported at index 0.
        let changed = was.iter().zip(&now).filter(|(a, b)| a != b).count();
        out.push_times(changed, || FieldError::invalid(&at, shown.clone(), CHANGED));
    } else {
        // An upstream quirk: emptiness and bad value are those of `clusterIPs`.
        resized(out, new, &FAMILIES, (&now, &was), ips.items().is_empty(), ips);
    }
}

const CHANGED: &str = "may not change once set";

/// Checks a list whose length changed: the primary entry must remain, and the secondary may be released only
/// with `SingleStack`.
fn resized(
    out: &mut ErrorList,
    new: &Value,
    words: &UpdateMessages,
    (now, was): (&[&str], &[&str]),
    nothing: bool,
    shown: &Value,
) {
    let at = FieldPath::new("spec").child(words.key).index(0);
    let shrinks = was.len() > now.len();
    // Reported even if the primary also changed, as upstream.
    if shrinks && nothing {
        let list = new.at(&["spec", words.key]).clone();
        out.push(FieldError::invalid(&at, list, words.unset));
    }
    if let (Some(a), Some(b)) = (was.first(), now.first())
        && a != b
    {
        out.push(FieldError::invalid(&at, shown.clone(), CHANGED));
    }
    if shrinks && now.len() == 1 && new.str_at(&["spec", "ipFamilyPolicy"]) != "SingleStack" {
        out.push(FieldError::invalid_enum(
            &FieldPath::new("spec").child("ipFamilyPolicy"),
            new.at(&["spec", "ipFamilyPolicy"]).clone(),
            words.released,
        ));
    }
}

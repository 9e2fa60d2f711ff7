//! IP families of a Service: resolves `ipFamilies` and `ipFamilyPolicy` from the request, the stored Service
//! and the ranges of the cluster. Entry point: [`init_ip_family_fields`]. Allocating addresses is left to
//! `allocate`.

use super::ServiceAllocators;
use super::prepare::needs_cluster_ip;
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::parse_ip;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::IpFamily;
use crate::controlplane::fields::strings;
use crate::controlplane::validation::service::{cluster_ips, is_headless};

const SINGLE: &str = "SingleStack";
const REQUIRE: &str = "RequireDualStack";
const PREFER: &str = "PreferDualStack";

fn list<'a>(v: &'a Value, key: &str) -> Vec<&'a str> {
    strings(v.at(&["spec", key]))
}

fn policy(v: &Value) -> &str {
    v.str_at(&["spec", "ipFamilyPolicy"])
}

fn without_selector(v: &Value) -> bool {
    v.at(&["spec", "selector"]).is_empty_value()
}

/// Validates and defaults `ipFamilies` and `ipFamilyPolicy` (upstream's `initIPFamilyFields` in
/// `pkg/registry/core/service/storage/alloc.go`).
pub(super) fn init_ip_family_fields(
    allocators: &ServiceAllocators,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<()> {
    if new.str_at(&["spec", "type"]) == "ExternalName" {
        return Ok(());
    }
    // An unrelated update of a `PreferDualStack` Service must not change its families, even if the cluster
    // was upgraded or downgraded in the meantime.
    if let Some(old) = old
        && policy(new) == PREFER
        && policy(old) == PREFER
        && ["clusterIP", "clusterIPs", "ipFamilies"]
            .iter()
            .all(|k| list(new, k) == list(old, k) && new.str_at(&["spec", k]) == old.str_at(&["spec", k]))
    {
        return Ok(());
    }
    if let Some(old) = old {
        if new.at(&["spec", "ipFamilyPolicy"]).is_null() && !policy(old).is_empty() {
            let was = old.at(&["spec", "ipFamilyPolicy"]).clone();
            new.set(&["spec", "ipFamilyPolicy"], was);
        }
        trim_to_single_stack(new, old);
    }
    let mut errors = cluster_ips::related_fields(new, old);
    if !errors.is_empty() {
        return Err(invalid(new, &errors));
    }
    let at = |key: &str| FieldPath::new("spec").child(key);
    if matches!(policy(new), "" | SINGLE) {
        for (key, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if list(new, key).len() == 2 {
                errors.push(FieldError::invalid(
                    &at("ipFamilyPolicy"),
                    new.at(&["spec", "ipFamilyPolicy"]).clone(),
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"),
                ));
            }
        }
    } else if let Some(old) = old.filter(|o| needs_cluster_ip(o)) {
        for (key, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            if list(old, key).len() == 2 && list(new, key).len() == 1 {
                errors.push(FieldError::invalid(
                    &at("ipFamilyPolicy"),
                    new.at(&["spec", "ipFamilyPolicy"]).clone(),
                    format!("must be 'SingleStack' to release the secondary {what}"),
                ));
            }
        }
    }
    if !errors.is_empty() {
        return Err(invalid(new, &errors));
    }
    // Headless Services without a selector may use families the cluster does not have: their endpoints are
    // the user's.
    let headless_alone = is_headless(new) && without_selector(new);
    if policy(new).is_empty() {
        new.set(
            &["spec", "ipFamilyPolicy"],
            if headless_alone { REQUIRE } else { SINGLE },
        );
    }
    let mut families: Vec<IpFamily> = list(new, "ipFamilies")
        .iter()
        .filter_map(|f| IpFamily::parse(f))
        .collect();
    for (i, ip) in list(new, "clusterIPs").iter().enumerate() {
        let Some(ip) = parse_ip(ip) else { break };
        if i >= families.len() {
            families.push(IpFamily::of(ip));
        }
    }
    let configured = |f: IpFamily| allocators.ranges.iter().any(|r| r.family() == f);
    if !headless_alone {
        for (i, ip) in list(new, "clusterIPs").iter().enumerate() {
            let Some(ip) = parse_ip(ip) else { break };
            if !configured(IpFamily::of(ip)) {
                errors.push(FieldError::invalid(
                    &at("clusterIPs").index(i),
                    new.at(&["spec", "clusterIPs"]).clone(),
                    format!("{} is not configured on this cluster", IpFamily::of(ip).name()),
                ));
            }
        }
        for (i, f) in list(new, "ipFamilies").iter().enumerate() {
            if IpFamily::parse(f).is_some_and(|f| !configured(f)) {
                errors.push(FieldError::invalid(
                    &at("ipFamilies").index(i),
                    *f,
                    "not configured on this cluster",
                ));
            }
        }
    }
    if policy(new) == REQUIRE && !headless_alone && allocators.ranges.len() < 2 {
        errors.push(FieldError::invalid(
            &at("ipFamilyPolicy"),
            new.at(&["spec", "ipFamilyPolicy"]).clone(),
            "this cluster is not configured for dual-stack services",
        ));
    }
    if !errors.is_empty() {
        return Err(invalid(new, &errors));
    }
    if families.is_empty() {
        families.extend(allocators.ranges.first().map(|r| r.family()));
    }
    let dual = matches!(policy(new), REQUIRE | PREFER);
    if let [one] = families[..]
        && dual
        && (configured(one.other()) || (headless_alone && policy(new) == REQUIRE))
    {
        families.push(one.other());
    }
    let names: Vec<Value> = families.iter().map(|f| f.name().into()).collect();
    new.set(&["spec", "ipFamilies"], names);
    Ok(())
}

/// On a change to `SingleStack`, drops the second address and family, unless the update changed the lists
/// itself.
fn trim_to_single_stack(new: &mut Value, old: &Value) {
    if policy(new) != SINGLE || !needs_cluster_ip(old) {
        return;
    }
    for key in ["clusterIPs", "ipFamilies"] {
        if list(old, key).len() == 2 && list(new, key) == list(old, key) {
            let first = new.at(&["spec", key]).items()[0].clone();
            new.set(&["spec", key], vec![first]);
        }
    }
}

pub(super) fn invalid(service: &Value, errors: &[FieldError]) -> Status {
    Status::invalid("", "Service", service.name(), errors)
}

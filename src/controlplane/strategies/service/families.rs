//! IP families of a Service: resolves `ipFamilies` and `ipFamilyPolicy` from the request, the stored Service
//! and the ranges of the cluster. Entry point: [`init_ip_family_fields`]. Allocating addresses is left to
//! `allocate`.

use super::ServiceAllocators;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
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
    // It is a DNS alias: without an address, it has no families.
    if new.str_at(&["spec", "type"]) == "ExternalName" {
        return Ok(());
    }
    // An unrelated update of a `PreferDualStack` Service must not change its families, even if the cluster
    // was upgraded or downgraded in the meantime.
    if let Some(old) = old
        && policy(new) == PREFER
        && policy(old) == PREFER
        && new.str_at(&["spec", "type"]) == old.str_at(&["spec", "type"])
        && same_cluster_ips(new, old)
        && list(new, "ipFamilies") == list(old, "ipFamilies")
    {
        return Ok(());
    }
    // Headless Services without a selector may use families the cluster does not have: their endpoints are
    // the user's.
    let headless_alone = is_headless(new) && without_selector(new);
    if new.at(&["spec", "ipFamilyPolicy"]).is_null() {
        let policy = match old.map_or("", policy) {
            "" if headless_alone => REQUIRE,
            "" => SINGLE,
            was => was,
        };
        new.set(&["spec", "ipFamilyPolicy"], policy);
    }
    let errors = cluster_ips::related_fields(new, old);
    if !errors.is_empty() {
        // Upstream returns after each group of checks, since the later ones rely on the earlier.
        return Err(invalid(new, &errors));
    }
    let mut errors = ErrorList::new();
    if let Some(old) = old {
        trim_to_single_stack(new, old);
    }
    check_policy(new, old, &mut errors);
    let configured = |f: IpFamily| allocators.ranges.iter().any(|r| r.family() == f);
    let mut families = families(new, configured, &mut errors);
    if !errors.is_empty() {
        return Err(invalid(new, &errors));
    }
    if !headless_alone {
        let at = |key: &str| FieldPath::new("spec").child(key);
        if policy(new) == REQUIRE && allocators.ranges.len() < 2 {
            errors.push(FieldError::invalid(
                &at("ipFamilyPolicy"),
                REQUIRE,
                "this cluster is not configured for dual-stack services",
            ));
        }
        for (i, family) in families.iter().enumerate().filter(|(_, f)| !configured(**f)) {
            errors.push(FieldError::invalid(
                &at("ipFamilies").index(i),
                family.name(),
                "not configured on this cluster",
            ));
        }
        if !errors.is_empty() {
            return Err(invalid(new, &errors));
        }
    }
    if families.is_empty() {
        // The first range of the flag determines the default family.
        families.extend(allocators.ranges.first().map(|r| r.family()));
    }
    if let [one] = families[..]
        && policy(new) != SINGLE
        && (headless_alone || configured(one.other()))
    {
        families.push(one.other());
    }
    let names: Vec<Value> = families.iter().map(|f| f.name().into()).collect();
    new.set(&["spec", "ipFamilies"], names);
    Ok(())
}

fn same_cluster_ips(new: &Value, old: &Value) -> bool {
    new.str_at(&["spec", "clusterIP"]) == old.str_at(&["spec", "clusterIP"])
        && list(new, "clusterIPs") == list(old, "clusterIPs")
}

/// On a change to `SingleStack`, drops the second address and family, unless the update changed the lists
/// itself.
fn trim_to_single_stack(new: &mut Value, old: &Value) {
    if policy(new) != SINGLE {
        return;
    }
    let same_ips = same_cluster_ips(new, old);
    let same_families = list(new, "ipFamilies") == list(old, "ipFamilies");
    for (same, key) in [(same_ips, "clusterIPs"), (same_families, "ipFamilies")] {
        if same && let [first, _, ..] = new.at(&["spec", key]).items() {
            let first = first.clone();
            new.set(&["spec", key], vec![first]);
        }
    }
}

/// Checks that the policy permits the second address and family, or their release.
fn check_policy(new: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let single = policy(new) == SINGLE;
    for (key, one, many) in [
        ("clusterIPs", "cluster IP", "cluster IPs"),
        ("ipFamilies", "IP family", "IP families"),
    ] {
        let (had, has) = (old.map_or(0, |o| list(o, key).len()), list(new, key).len());
        let why = if single && has == 2 {
            format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {many} are specified")
        } else if !single && had == 2 && has == 1 {
            format!("must be 'SingleStack' to release the secondary {one}")
        } else {
            continue;
        };
        let at = FieldPath::new("spec").child("ipFamilyPolicy");
        errors.push(FieldError::invalid(&at, policy(new), why));
    }
}

/// The families of the Service: those it lists, then those of further addresses.
fn families(new: &Value, configured: impl Fn(IpFamily) -> bool, errors: &mut ErrorList) -> Vec<IpFamily> {
    let listed = list(new, "ipFamilies");
    let mut families: Vec<IpFamily> = listed.into_iter().filter_map(IpFamily::parse).collect();
    for (i, ip) in list(new, "clusterIPs").iter().enumerate() {
        // `None` is no address, and stands alone.
        let Some(family) = parse_ip(ip).map(IpFamily::of) else {
            break;
        };
        if i < families.len() {
            continue;
        }
        if configured(family) {
            families.push(family);
        } else {
            // Names the address, since the client listed no family. A listed one gets an error of its own.
            errors.push(FieldError::invalid(
                &FieldPath::new("spec").child("clusterIPs").index(i),
                new.at(&["spec", "clusterIPs"]).clone(),
                format!("{} is not configured on this cluster", family.name()),
            ));
        }
    }
    families
}

pub(super) fn invalid(service: &Value, errors: &[FieldError]) -> Status {
    Status::invalid("", "Service", service.name(), errors)
}

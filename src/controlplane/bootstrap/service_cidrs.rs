//! The default ServiceCIDR, and the repair of the IPAddress objects that record cluster IP allocations
//! (upstream's `pkg/controlplane/controller/defaultservicecidr` and
//! `pkg/registry/core/service/ipallocator/controller/repairip.go`). Start at [`ensure`] and
//! [`spawn_reconciler`].
//!
//! | a Service's cluster IP | repair |
//! |---|---|
//! | no IPAddress | created |
//! | IPAddress of another parent, or without the allocator's labels | recreated |
//! | IPAddress of another Service that has it too | kept; the conflict is logged |
//!
//! | an IPAddress created by the allocator | repair |
//! |---|---|
//! | its parent is not a Service | deleted |
//! | its Service does not exist | deleted after a minute: the Service may be about to be created |
//! | its Service does not use it | deleted after a few seconds; a minute if the Service is an ExternalName |

use super::super::ControlPlane;
use super::super::strategies::service::addresses::{
    ALLOCATOR, FAMILY_LABEL, MANAGED_BY_LABEL, belongs_to, delete_record, ip_address_for,
};
use super::{MANAGER, change, create_if_missing, find, report};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::validation::parse_ip;
use crate::apimachinery::value::Value;
use crate::client::Informer;
use crate::controlplane::fields::strings;
use crate::storage::Entry;
use crate::tasks::TaskGroup;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const NETWORKING: &str = "networking.k8s.io";
const DEFAULT: &str = "kubernetes";
const STATUS_MANAGER: &str = "kubernetes-service-cidr-controller";
const READY_MESSAGE: &str = "Kubernetes default Service CIDR is ready";
/// Interval between full repairs.
const RESYNC: Duration = Duration::from_secs(180);
/// Delay before a repair, so that a burst of deletions causes a single one.
const SETTLE: Duration = Duration::from_secs(1);
/// Seconds before an IPAddress without a Service is deleted.
const ORPHAN_GRACE_SECONDS: i64 = 60;
/// Seconds before an IPAddress that its Service does not use is deleted.
const UNUSED_GRACE_SECONDS: i64 = 5;

/// Creates the default ServiceCIDR, loads all ServiceCIDRs into the allocators, and repairs the IPAddresses
/// once.
pub(super) async fn ensure(plane: &ControlPlane) -> Result<()> {
    // A failing step does not keep the later ones from running; the first error is returned.
    let range = default_range(plane).await;
    let followed = apply_service_cidrs(plane).await;
    let repaired = repair(plane).await;
    range.and(followed).and(repaired)
}

async fn default_range(plane: &ControlPlane) -> Result<()> {
    let store = plane.store(NETWORKING, "servicecidrs");
    let cidrs: Vec<Value> = plane.allocators.ranges.iter().map(|r| r.to_string().into()).collect();
    let Some(live) = find(store, "", DEFAULT).await? else {
        let mut object = crate::json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": DEFAULT},
        });
        object.set(&["spec", "cidrs"], cidrs);
        create_if_missing(store, object, MANAGER).await?;
        return ready(plane).await;
    };
    let current = live.at(&["spec", "cidrs"]).items();
    if current != cidrs {
        // The only change that is applied is the upgrade from single-stack to dual-stack.
        if !(current.len() == 1 && cidrs.len() == 2 && current[0] == cidrs[0]) {
            // As upstream, the object is left alone: Services may hold addresses of its ranges.
            tracing::warn!("the default ServiceCIDR differs from --service-cluster-ip-range");
            return Ok(());
        }
        change(store, &live, MANAGER, |v| v.set(&["spec", "cidrs"], cidrs.clone())).await?;
    }
    // A Ready condition set by someone else is kept, even if it is false. Deletion is the controller manager's.
    let condition = super::super::columns::cells::condition(&live, "Ready");
    if condition.is_none_or(|c| c.str_at(&["status"]) == "Unknown") && !live.is_being_deleted() {
        return ready(plane).await;
    }
    Ok(())
}

/// Applies the condition `Ready`, without the `reason` that upstream leaves out and therefore does not own.
async fn ready(plane: &ControlPlane) -> Result<()> {
    let condition = crate::json!({"type": "Ready", "status": "True", "message": READY_MESSAGE});
    let store = plane.store(NETWORKING, "servicecidrs");
    store.apply_condition(STATUS_MANAGER, DEFAULT, condition).await
}

async fn all(plane: &ControlPlane, group: &str, plural: &str) -> Result<Vec<Value>> {
    let entries = plane.store(group, plural).list_entries("").await?;
    Ok(entries.iter().map(|e| e.decode()).collect())
}

/// The parent of an IPAddress, in the allocators' owner format `namespace/name`.
fn owner_of(address: &Value) -> String {
    let parent = address.at(&["spec", "parentRef"]);
    format!("{}/{}", parent.str_at(&["namespace"]), parent.str_at(&["name"]))
}

/// Reloads ServiceCIDRs and IPAddresses into the in-memory allocators.
async fn apply_service_cidrs(plane: &ControlPlane) -> Result<()> {
    let cidrs = all(plane, NETWORKING, "servicecidrs").await?;
    let listed = plane.store(NETWORKING, "ipaddresses").list_entries("").await?;
    apply_listed(plane, &cidrs, &listed).await
}

/// The address that an IPAddress object records, and its owner.
fn recorded(entry: &Entry) -> Option<(IpAddr, String)> {
    Some((parse_ip(&entry.key)?, owner_of(&entry.decode())))
}

/// Loads these ServiceCIDRs and IPAddresses, listed just before, into the in-memory allocators.
async fn apply_listed(plane: &ControlPlane, cidrs: &[Value], listed: &[Arc<Entry>]) -> Result<()> {
    let known: Vec<(IpAddr, String)> = listed.iter().filter_map(|e| recorded(e)).collect();
    // Existing ranges lack the IPAddresses that were created before this process watched them.
    for (ip, owner) in &known {
        plane.allocators.mark_allocated(*ip, owner);
    }
    plane.allocators.apply_service_cidrs(cidrs, &known);
    // The informer may have released an address after the list and before it was marked here; it would stay
    // allocated. The informer releases an address that is deleted after this second list.
    let current = plane.store(NETWORKING, "ipaddresses").list_entries("").await?;
    let current: HashMap<&str, &Arc<Entry>> = current.iter().map(|e| (&*e.key, e)).collect();
    for entry in listed {
        let now = current.get(&*entry.key).copied();
        if now.is_some_and(|e| e.revision == entry.revision) {
            continue;
        }
        let (was, now) = (recorded(entry), now.and_then(|e| recorded(e)));
        if was != now
            && let Some((ip, owner)) = was
        {
            plane.allocators.mark_deleted(ip, &owner);
        }
        if let Some((ip, owner)) = now {
            plane.allocators.mark_allocated(ip, &owner);
        }
    }
    Ok(())
}

/// Whether a Service uses this cluster IP; those of an ExternalName Service are stale.
fn uses_cluster_ip(service: &Value, ip: &str) -> bool {
    service.str_at(&["spec", "type"]) != "ExternalName" && strings(service.at(&["spec", "clusterIPs"])).contains(&ip)
}

async fn repair(plane: &ControlPlane) -> Result<()> {
    // Services first: an IPAddress is created before its Service, so the second list has one for each Service
    // of the first. IPAddresses of Services created in between are younger than the grace periods.
    let services = all(plane, "", "services").await?;
    let addresses: HashMap<String, Value> = all(plane, NETWORKING, "ipaddresses")
        .await?
        .into_iter()
        .map(|a| (a.name().to_owned(), a))
        .collect();
    let mut outcome = Ok(());
    for service in &services {
        for ip in strings(service.at(&["spec", "clusterIPs"])) {
            if uses_cluster_ip(service, ip)
                && let Some(ip) = parse_ip(ip)
            {
                outcome = outcome.and(ensure_ip_address(plane, service, ip, &addresses).await);
            }
        }
    }
    // Indexed, because a scan per IPAddress would be quadratic in the number of Services.
    let by_name: HashMap<(&str, &str), &Value> = services.iter().map(|s| ((s.namespace(), s.name()), s)).collect();
    for address in addresses.values() {
        let parent = address.at(&["spec", "parentRef"]);
        let service = by_name.get(&(parent.str_at(&["namespace"]), parent.str_at(&["name"])));
        if is_stray(address, service.copied()) {
            tracing::info!(ip = address.name(), "deleting an IPAddress that no Service uses");
            outcome = outcome.and(delete_record(plane.store(NETWORKING, "ipaddresses"), address).await);
        }
    }
    outcome
}

/// Creates or recreates the IPAddress of one cluster IP of a Service, by the first table above.
async fn ensure_ip_address(
    plane: &ControlPlane,
    service: &Value,
    ip: IpAddr,
    addresses: &HashMap<String, Value>,
) -> Result<()> {
    let (namespace, name, text) = (service.namespace(), service.name(), ip.to_string());
    let store = plane.store(NETWORKING, "ipaddresses");
    if let Some(address) = addresses.get(&text) {
        let want = ip_address_for(ip, namespace, name);
        let labels = [FAMILY_LABEL, MANAGED_BY_LABEL];
        let labelled = labels.iter().all(|k| address.label(k) == want.label(k));
        if belongs_to(address, namespace, name) && labelled {
            return Ok(());
        }
        let (other_namespace, other) = owner_of(address)
            .split_once('/')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap_or_default();
        // Deleting the record would only move the conflict to the other Service, and the two would take turns
        // at every repair.
        let other_has_it = (other_namespace.as_str(), other.as_str()) != (namespace, name)
            && find(plane.store("", "services"), &other_namespace, &other)
                .await?
                .is_some_and(|s| uses_cluster_ip(&s, &text));
        if other_has_it {
            tracing::warn!(%ip, namespace, name, "ClusterIPAlreadyAllocated: two services have the same cluster IP");
            return Ok(());
        }
        // `spec.parentRef` is immutable, so a wrong IPAddress is deleted and recreated.
        delete_record(store, address).await?;
    }
    // The Service may have been deleted since it was listed.
    let live = find(plane.store("", "services"), namespace, name).await?;
    if !live.is_some_and(|s| uses_cluster_ip(&s, &text)) {
        return Ok(());
    }
    tracing::info!(%ip, namespace, name, "creating the missing IPAddress of a cluster IP");
    create_if_missing(store, ip_address_for(ip, namespace, name), MANAGER).await
}

/// Whether an IPAddress is to be deleted, by the second table above.
fn is_stray(address: &Value, service: Option<&Value>) -> bool {
    if address.label(MANAGED_BY_LABEL) != Some(ALLOCATOR) {
        return false;
    }
    let parent = address.at(&["spec", "parentRef"]);
    if !parent.str_at(&["group"]).is_empty() || parent.str_at(&["resource"]) != "services" {
        return true;
    }
    // An unreadable time counts as old; the object would otherwise stay for ever.
    let age = time::parse(address.str_at(&["metadata", "creationTimestamp"]))
        .map_or(i64::MAX, |t| (::time::OffsetDateTime::now_utc() - t).whole_seconds());
    match service {
        None => age > ORPHAN_GRACE_SECONDS,
        Some(s) if uses_cluster_ip(s, address.name()) => false,
        Some(s) if s.str_at(&["spec", "type"]) == "ExternalName" => age > ORPHAN_GRACE_SECONDS,
        Some(_) => age > UNUSED_GRACE_SECONDS,
    }
}

/// Watches ServiceCIDRs and IPAddresses, feeds them to the allocators, and repairs after deletions and
/// periodically. The tasks belong to `group`.
pub(super) fn spawn_reconciler(group: &TaskGroup, plane: Arc<ControlPlane>) {
    let storage = |plural: &str| plane.store(NETWORKING, plural).storage().clone();
    let (cidrs, feed_cidrs) = Informer::new(storage("servicecidrs"), Entry::decode);
    let (addresses, feed_addresses) = Informer::new(storage("ipaddresses"), Entry::decode);
    // A `Notify` holds one permit: any number of changes during a repair cause a single further one.
    let (moved, stray) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    cidrs.subscribe({
        let moved = moved.clone();
        move |_| moved.notify_one()
    });
    addresses.subscribe({
        let (allocators, stray) = (plane.allocators.clone(), stray.clone());
        move |change| {
            let Some(ip) = parse_ip(change.key) else { return };
            match (change.old, change.new) {
                // Also runs for this process's own IPAddresses; marking an allocated address changes nothing.
                (_, Some(new)) => allocators.mark_allocated(ip, &owner_of(new)),
                (Some(old), None) => {
                    allocators.mark_deleted(ip, &owner_of(old));
                    stray.notify_one();
                }
                (None, None) => {}
            }
        }
    });
    group.spawn_until_stopped("service ranges", feed_cidrs.run());
    group.spawn_until_stopped("IP addresses", feed_addresses.run());
    let stop = group.stop_signal().clone();
    group.spawn("IP address repair", async move {
        loop {
            // Shutdown wins. New ranges take effect immediately; repairs wait for the burst to settle.
            tokio::select! {
                biased;
                () = stop.wait() => return,
                () = moved.notified() => {
                    report("following service ranges", apply_service_cidrs(&plane).await);
                    continue;
                }
                () = stray.notified() => {
                    tokio::select! {
                        biased;
                        () = stop.wait() => return,
                        () = tokio::time::sleep(SETTLE) => {}
                    }
                }
                () = tokio::time::sleep(RESYNC) => {}
            }
            report("repairing cluster IPs", ensure(&plane).await);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::tests::running;
    use crate::json;
    use crate::registry::strategy::Context;

    async fn serve(plane: &ControlPlane, name: &str, ip: &str) -> Value {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "ns"},
            "spec": {"ports": [{"port": 80}]},
        });
        if !ip.is_empty() {
            object.set(&["spec", "clusterIP"], ip);
        }
        let store = plane.store("", "services");
        store.create_value(&Context::system("ns"), object).await.unwrap()
    }

    async fn address(plane: &ControlPlane, ip: &str) -> Option<Value> {
        find(plane.store(NETWORKING, "ipaddresses"), "", ip).await.unwrap()
    }

    #[tokio::test]
    async fn a_cluster_ip_has_an_ip_address_until_its_service_is_deleted() {
        let r = running();
        serve(&r.plane, "a", "10.0.0.9").await;
        let found = address(&r.plane, "10.0.0.9").await.unwrap();
        assert!(belongs_to(&found, "ns", "a"));
        assert_eq!(found.label(FAMILY_LABEL), Some("IPv4"));
        let services = r.plane.store("", "services");
        services.delete_by_name(&Context::system("ns"), "a").await.unwrap();
        assert!(address(&r.plane, "10.0.0.9").await.is_none());
        serve(&r.plane, "b", "10.0.0.9").await;
    }

    #[tokio::test]
    async fn an_address_with_an_ip_address_of_another_parent_is_refused() {
        let r = running();
        let store = r.plane.store(NETWORKING, "ipaddresses");
        let held = ip_address_for("10.0.0.9".parse().unwrap(), "other", "x");
        store.create_value(&Context::system(""), held).await.unwrap();
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "ns"},
            "spec": {"clusterIP": "10.0.0.9", "ports": [{"port": 80}]}});
        let services = r.plane.store("", "services");
        let refused = services.create_value(&Context::system("ns"), object).await.unwrap_err();
        assert!(
            refused
                .message
                .ends_with("failed to allocate IP 10.0.0.9: provided IP is already allocated"),
            "{}",
            refused.message
        );
    }

    #[tokio::test]
    async fn the_default_service_cidr_is_created_ready() {
        let r = running();
        ensure(&r.plane).await.unwrap();
        let cidr = find(r.plane.store(NETWORKING, "servicecidrs"), "", DEFAULT)
            .await
            .unwrap()
            .unwrap();
        let condition = &cidr.at(&["status", "conditions"]).items()[0];
        assert_eq!(
            (condition.str_at(&["status"]), condition.str_at(&["message"])),
            ("True", READY_MESSAGE)
        );
        assert_eq!(condition.get("reason"), &"".into(), "always encoded");
        let entries = cidr.at(&["metadata", "managedFields"]).items();
        let applied = entries.iter().find(|e| e.str_at(&["subresource"]) == "status");
        let applied = applied.unwrap();
        assert_eq!(
            (applied.str_at(&["operation"]), applied.str_at(&["manager"])),
            ("Apply", STATUS_MANAGER)
        );
        let owned = applied.at(&["fieldsV1", "f:status", "f:conditions", "k:{\"type\":\"Ready\"}"]);
        let owned: Vec<&str> = owned.as_object().unwrap().keys().collect();
        assert_eq!(owned, [".", "f:lastTransitionTime", "f:message", "f:status", "f:type"]);
    }

    #[tokio::test]
    async fn missing_and_wrong_ip_addresses_are_recreated() {
        let r = running();
        serve(&r.plane, "a", "10.0.0.9").await;
        let store = r.plane.store(NETWORKING, "ipaddresses");
        store.delete_by_name(&Context::system(""), "10.0.0.9").await.unwrap();
        repair(&r.plane).await.unwrap();
        assert!(address(&r.plane, "10.0.0.9").await.is_some());
        store.delete_by_name(&Context::system(""), "10.0.0.9").await.unwrap();
        let wrong = ip_address_for("10.0.0.9".parse().unwrap(), "ns", "gone");
        store.create_value(&Context::system(""), wrong).await.unwrap();
        repair(&r.plane).await.unwrap();
        assert!(belongs_to(&address(&r.plane, "10.0.0.9").await.unwrap(), "ns", "a"));
    }

    #[tokio::test]
    async fn an_ip_address_deleted_while_it_is_loaded_does_not_stay_allocated() {
        let r = running();
        let store = r.plane.store(NETWORKING, "ipaddresses");
        let held = ip_address_for("10.0.0.9".parse().unwrap(), "ns", "gone");
        store.create_value(&Context::system(""), held).await.unwrap();
        let listed = store.list_entries("").await.unwrap();
        store.delete_by_name(&Context::system(""), "10.0.0.9").await.unwrap();
        apply_listed(&r.plane, &[], &listed).await.unwrap();
        serve(&r.plane, "a", "10.0.0.9").await;
    }

    #[tokio::test]
    async fn a_recreated_ip_address_is_not_deleted_in_place_of_the_old_one() {
        let r = running();
        let store = r.plane.store(NETWORKING, "ipaddresses");
        let of = |name: &str| ip_address_for("10.0.0.9".parse().unwrap(), "ns", name);
        let old = store.create_value(&Context::system(""), of("a")).await.unwrap();
        delete_record(store, &old).await.unwrap();
        store.create_value(&Context::system(""), of("b")).await.unwrap();
        delete_record(store, &old).await.unwrap();
        assert!(belongs_to(&address(&r.plane, "10.0.0.9").await.unwrap(), "ns", "b"));
    }

    #[test]
    fn only_aged_ip_addresses_of_the_allocator_are_strays() {
        let mut old = ip_address_for("10.0.0.9".parse().unwrap(), "ns", "a");
        old.set_meta("creationTimestamp", "2020-01-01T00:00:00Z");
        assert!(is_stray(&old, None));
        let service = json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": {"clusterIPs": ["10.0.0.9"]}});
        assert!(!is_stray(&old, Some(&service)));
        assert!(is_stray(&old, Some(&json!({"spec": {}}))));
        let mut young = old.clone();
        young.set_meta("creationTimestamp", time::now());
        assert!(!is_stray(&young, None));
        old.unset(&["metadata", "labels"]);
        assert!(!is_stray(&old, None));
    }
}

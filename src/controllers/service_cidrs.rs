//! ServiceCIDRs (`pkg/controller/servicecidrs`): gives each the finalizer that protects it and the condition
//! `Ready`, and lets a deleted one go once no IPAddress needs it.

use super::expiry::until;
use super::loopback::{APPLY, Failure, Loopback, MERGE_PATCH, Path, found};
use super::term::Term;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::validation::net::parse_cidr;
use crate::apimachinery::validation::parse_ip;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::json;
use crate::storage::Entry;
use crate::tasks::off_thread;
use ::time::OffsetDateTime;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const QUEUE: &str = "ipaddresses";
const GROUP: &str = "networking.k8s.io";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const READY: &str = "Kubernetes Service CIDR is ready";
const IN_USE: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
/// Time after the deletion in which allocators may still use the range.
const GRACE: Duration = Duration::from_secs(10);

/// An address range: its first address, the length of the prefix, and whether it is IPv6.
type Range = (u128, u8, bool);

/// The fields of a ServiceCIDR that the loop uses.
#[derive(Debug, PartialEq)]
struct Cidr {
    ranges: Vec<Range>,
    deleted: Option<OffsetDateTime>,
    parts: Value,
}

static PARTS: LazyLock<Mask> = LazyLock::new(|| {
    Mask::of(&[
        "metadata.{resourceVersion,finalizers,deletionTimestamp}",
        "spec.cidrs",
        "status.conditions",
    ])
});

fn bits(ip: IpAddr) -> (u128, bool) {
    match ip {
        // As the upper bits, so that the length of a prefix means the same.
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, false),
        IpAddr::V6(v6) => (v6.to_bits(), true),
    }
}

/// Whether a range contains another one. An address is a range with the longest prefix.
fn contains(range: &Range, (address, length, ipv6): Range) -> bool {
    // A shift by all 128 bits, of a range with the prefix /0, would overflow.
    let mask = u128::MAX.checked_shl(128 - u32::from(range.1)).unwrap_or(0);
    range.2 == ipv6 && range.1 <= length && (range.0 ^ address) & mask == 0
}

impl Cidr {
    fn from_entry(entry: &Entry) -> Self {
        Self::from_value(entry.decode_parts(&PARTS))
    }

    fn from_value(parts: Value) -> Self {
        let range = |text: &Value| {
            let (ip, length) = parse_cidr(text.as_str()?)?;
            let (address, ipv6) = bits(ip);
            Some((address, length, ipv6))
        };
        Self {
            ranges: parts.at(&["spec", "cidrs"]).items().iter().filter_map(range).collect(),
            deleted: time::parse(parts.meta("deletionTimestamp")).ok(),
            parts,
        }
    }

    fn contains(&self, other: Range) -> bool {
        self.ranges.iter().any(|r| contains(r, other))
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.ranges.iter().any(|r| other.contains(*r)) || other.ranges.iter().any(|r| self.contains(*r))
    }
}

/// An IPAddress; `None` if no allocator made it.
type Address = Option<Range>;

fn address(entry: &Entry) -> Address {
    let allocated = entry.label("ipaddress.kubernetes.io/managed-by") == Some("ipallocator.k8s.io");
    let (address, ipv6) = bits(parse_ip(entry.name())?);
    allocated.then_some((address, if ipv6 { 128 } else { 32 }, ipv6))
}

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let changed = queue.clone();
    let cidrs = term.inform((GROUP, "servicecidrs"), Cidr::from_entry, |cidrs| {
        cidrs.subscribe(move |change: &Change<'_, Cidr>| changed.add(change.key.into()));
    });
    let Some(cidrs) = cidrs else { return };
    let (changed, known) = (queue.clone(), cidrs.clone());
    let addresses = term.inform((GROUP, "ipaddresses"), address, |addresses| {
        addresses.subscribe(move |change: &Change<'_, Address>| {
            let Some(range) = change.new.or(change.old).and_then(|a| **a) else {
                return;
            };
            // Addresses only matter to ranges that wait for them; Services come and go all the time.
            let blocked = |(_, c): &(&Arc<str>, &Arc<Cidr>)| c.deleted.is_some() && c.contains(range);
            known
                .snapshot()
                .iter()
                .filter(blocked)
                .for_each(|(name, _)| changed.add((&**name).into()));
        });
    });
    let Some(addresses) = addresses else { return };
    let api = term.client("service-cidrs-controller");
    let later = queue.clone();
    term.process(QUEUE, &queue, 1, move |name: Str| {
        let (api, cidrs, addresses, later) = (api.clone(), cidrs.clone(), addresses.clone(), later.clone());
        async move {
            cidrs.synced().wait().await;
            // Without all addresses a range in use would look free.
            addresses.synced().wait().await;
            let cidr = cidrs.get(&name);
            if cidr.as_ref().is_none_or(|c| c.deleted.is_none()) {
                // A new range may take over the addresses of one that is being deleted; one that is gone
                // leaves them to it.
                let all = cidrs.snapshot();
                let deleted = all.iter().filter(|(_, c)| c.deleted.is_some());
                deleted.for_each(|(name, _)| later.add((&**name).into()));
            }
            let Some(cidr) = cidr else { return Ok::<_, Failure>(()) };
            let Some(deleted) = cidr.deleted else {
                if !cidr.parts.finalizers().contains(&FINALIZER) {
                    set_finalizers(&api, &name, &cidr, |all| all.push(FINALIZER.into())).await?;
                }
                return condition(&api, &name, &cidr, "True", "", READY).await;
            };
            let (of, looked_at) = (name.clone(), cidr.clone());
            let free = off_thread(0, move || is_free(&of, &looked_at, &cidrs, &addresses)).await;
            if !free.ok_or_else(|| Failure::unreadable("the gateway is shutting down"))? {
                return condition(&api, &name, &cidr, "False", "Terminating", IN_USE).await;
            }
            // Free, but an allocator that has not seen the deletion may still hand out an address of it.
            match until(deleted + GRACE) {
                Duration::ZERO => {
                    set_finalizers(&api, &name, &cidr, |all| all.retain(|f| f.as_str() != Some(FINALIZER))).await
                }
                rest => {
                    later.add_after(name.clone(), rest);
                    Ok(())
                }
            }
        }
    });
}

/// Whether no address depends on this ServiceCIDR alone.
fn is_free(name: &str, cidr: &Cidr, cidrs: &Informer<Cidr>, addresses: &Informer<Address>) -> bool {
    let all = cidrs.snapshot();
    let others: Vec<&Arc<Cidr>> = all
        .iter()
        .filter(|(other, c)| ***other != *name && c.overlaps(cidr))
        .map(|(_, c)| c)
        .collect();
    let elsewhere = |range: Range| others.iter().any(|c| c.contains(range));
    // Saves walking all addresses.
    if cidr.ranges.iter().all(|r| elsewhere(*r)) {
        return true;
    }
    let addresses = addresses.snapshot();
    let mut own = addresses.values().filter_map(|a| **a).filter(|a| cidr.contains(*a));
    own.all(elsewhere)
}

async fn set_finalizers(
    api: &Loopback,
    name: &str,
    cidr: &Cidr,
    change: impl FnOnce(&mut Vec<Value>),
) -> Result<(), Failure> {
    let mut all = cidr.parts.at(&["metadata", "finalizers"]).items().to_vec();
    change(&mut all);
    let version = cidr.parts.resource_version();
    // The list is replaced as a whole, so it must not be written over another client's change.
    let patch = json!({"metadata": {"finalizers": (all), "resourceVersion": version}});
    found(api.patch(path(name), MERGE_PATCH, &patch).await).map(drop)
}

async fn condition(
    api: &Loopback,
    name: &str,
    cidr: &Cidr,
    status: &str,
    reason: &str,
    message: &str,
) -> Result<(), Failure> {
    let current = conditions::find(&cidr.parts, "Ready");
    let has = |key: &str, value: &str| current.is_some_and(|c| c.str_at(&[key]) == value);
    if has("status", status) && has("reason", reason) && has("message", message) {
        return Ok(());
    }
    let condition = json!({"type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": (time::now())});
    let patch = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name},
        "status": {"conditions": [(condition)]}});
    let path = path(name).subresource("status");
    // Forced, as upstream: the condition is this loop's, whoever wrote it before.
    let path = format!("{path}?fieldManager=service-cidr-controller&force=true");
    found(api.patch(path, APPLY, &patch).await).map(drop)
}

fn path(name: &str) -> Path<'_> {
    Path::of(GROUP, "v1", "", "servicecidrs").name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(ranges: &[&str]) -> Cidr {
        let all: Vec<Value> = ranges.iter().map(|r| (*r).into()).collect();
        Cidr::from_value(json!({"spec": {"cidrs": (all)}}))
    }

    #[test]
    fn ranges_contain_narrower_ones_of_their_family() {
        let wide = cidr(&["10.0.0.0/16", "fd00::/64"]);
        let of = |range: &str| cidr(&[range]).ranges[0];
        assert!(wide.contains(of("10.0.3.0/24")) && wide.contains(of("10.0.0.0/16")));
        assert!(!wide.contains(of("10.0.0.0/8")) && !wide.contains(of("10.1.0.0/24")));
        assert!(wide.contains(of("fd00::1/128")) && !wide.contains(of("fd01::/64")));
        assert!(wide.overlaps(&cidr(&["10.0.0.0/8"])) && !wide.overlaps(&cidr(&["192.168.0.0/16"])));
        assert!(cidr(&["0.0.0.0/0"]).contains(of("10.0.0.0/16")));
    }
}

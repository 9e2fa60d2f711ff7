//! [`repack`]: the subsets of an Endpoints object in their canonical form (`pkg/api/v1/endpoints/util.go`):
//! addresses that offer the same ports share a subset. [`truncate`] bounds their number.
//!
//! Upstream sorts ports and subsets by a hash, which clients cannot rely on; here they are sorted by content.

use super::workloads::Port;
use crate::apimachinery::value::{Map, Str, Value};
use std::collections::BTreeMap;

/// Addresses of an Endpoints object; upstream's limit.
pub(crate) const MAX: usize = 1000;

/// An element of `subsets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subset {
    pub(crate) ready: Vec<Value>,
    pub(crate) unready: Vec<Value>,
    pub(crate) ports: Vec<Port>,
}

/// Addresses in all subsets together up to which [`repack`] continues. A subset for each of many ports can
/// repeat the addresses of the others, so that the canonical form is the square of what a client sent.
const MAX_PLACED: usize = 256 * 1024;

/// The canonical form of subsets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) subsets: Vec<Subset>,
    /// Addresses of the subsets that were left out because there were too many.
    pub(crate) left_out: usize,
}

/// Identifies an address: the IP and the target's UID.
type Key = (Str, Str);

impl Subset {
    pub(crate) fn from_value(subset: &Value) -> Self {
        Self {
            ready: subset.get("addresses").items().to_vec(),
            unready: subset.get("notReadyAddresses").items().to_vec(),
            ports: subset.get("ports").items().iter().map(Port::from_value).collect(),
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        // Empty members are left out, as by Go's `omitempty`.
        let mut subset = Map::new();
        for (key, addresses) in [("addresses", &self.ready), ("notReadyAddresses", &self.unready)] {
            if !addresses.is_empty() {
                subset.insert(key, addresses.clone());
            }
        }
        let port = |p: &Port| {
            let mut port = Map::new();
            port.insert("port", p.number);
            port.insert("protocol", p.protocol.as_str());
            for (key, value) in [("name", &p.name), ("appProtocol", &p.application)] {
                if !value.is_empty() {
                    port.insert(key, value.as_str());
                }
            }
            Value::Object(port)
        };
        if !self.ports.is_empty() {
            subset.insert("ports", self.ports.iter().map(port).collect::<Vec<_>>());
        }
        subset.into()
    }
}

/// The canonical form. An address that is ready and not ready under the same port is not ready.
pub(crate) fn repack(subsets: &[Subset]) -> Packed {
    let mut addresses: BTreeMap<Key, &Value> = BTreeMap::new();
    let mut keys_of: Vec<Vec<(Key, bool)>> = Vec::with_capacity(subsets.len());
    // The places of the subsets that have a port; `None` stands for no ports at all.
    let mut places: BTreeMap<Option<&Port>, Vec<usize>> = BTreeMap::new();
    for (place, subset) in subsets.iter().enumerate() {
        let ready = subset.ready.iter().map(|a| (a, true));
        let all = ready.chain(subset.unready.iter().map(|a| (a, false)));
        let keys = all.map(|(address, ready)| {
            let key: Key = (
                address.str_at(&["ip"]).into(),
                address.str_at(&["targetRef", "uid"]).into(),
            );
            addresses.entry(key.clone()).or_insert(address);
            (key, ready)
        });
        keys_of.push(keys.collect());
        let none = subset.ports.is_empty().then_some(None);
        for port in subset.ports.iter().map(Some).chain(none) {
            let of = places.entry(port).or_default();
            if of.last() != Some(&place) {
                of.push(place);
            }
        }
    }
    // Ports of the same subsets are looked at once: an object may have thousands of ports and of addresses.
    let mut by_places: BTreeMap<Vec<usize>, Vec<Port>> = BTreeMap::new();
    for (port, of) in places {
        by_places.entry(of).or_default().extend(port.cloned());
    }
    let mut by_addresses: BTreeMap<BTreeMap<Key, bool>, Vec<Port>> = BTreeMap::new();
    let (mut placed, mut left_out) = (0, 0);
    for (places, ports) in by_places {
        let size: usize = places.iter().map(|place| keys_of[*place].len()).sum();
        // The first one is always taken, so a single large subset is complete.
        if placed > 0 && placed + size > MAX_PLACED {
            left_out += size;
            continue;
        }
        placed += size;
        let mut of: BTreeMap<Key, bool> = BTreeMap::new();
        for (key, ready) in places.iter().flat_map(|place| &keys_of[*place]) {
            // Not ready wins, as upstream: an address must not get traffic while any of its entries says no.
            *of.entry(key.clone()).or_insert(true) &= *ready;
        }
        by_addresses.entry(of).or_default().extend(ports);
    }
    let pick = |of: &BTreeMap<Key, bool>, ready: bool| -> Vec<Value> {
        let keys = of.iter().filter(|(_, r)| **r == ready);
        keys.map(|(key, _)| addresses[key].clone()).collect()
    };
    let packed = by_addresses.into_iter().map(|(of, mut ports)| {
        ports.sort();
        Subset {
            ready: pick(&of, true),
            unready: pick(&of, false),
            ports,
        }
    });
    Packed {
        subsets: packed.collect(),
        left_out,
    }
}

/// Leaves at most [`MAX`] addresses, spread over the subsets by their size, ready ones first. Returns whether
/// any were left out.
pub(crate) fn truncate(subsets: &mut [Subset]) -> bool {
    let ready: usize = subsets.iter().map(|s| s.ready.len()).sum();
    let unready: usize = subsets.iter().map(|s| s.unready.len()).sum();
    if ready + unready <= MAX {
        return false;
    }
    let drop_ready = ready > MAX;
    let (total, room) = if drop_ready {
        (ready, MAX)
    } else {
        (unready, MAX - ready)
    };
    let mut left = room;
    for subset in subsets {
        let of = match drop_ready {
            true => {
                subset.unready.clear();
                &mut subset.ready
            }
            false => &mut subset.unready,
        };
        // Rounded up, hence the bound by what is left: the shares must not exceed the room together.
        let share = (of.len() * room).div_ceil(total).min(left);
        of.truncate(share);
        left -= of.len();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn addresses(ips: impl IntoIterator<Item = usize>) -> Vec<Value> {
        ips.into_iter()
            .map(|n| json!({"ip": (format!("10.0.{}.{}", n / 256, n % 256))}))
            .collect()
    }

    fn port(name: &str) -> Port {
        Port::from_value(&json!({"name": name, "port": 80}))
    }

    #[test]
    fn addresses_with_the_same_ports_share_a_subset() {
        let one = |ip, name| Subset {
            ready: addresses([ip]),
            unready: Vec::new(),
            ports: vec![port(name)],
        };
        let mut subsets = vec![one(1, "a"), one(2, "a"), one(2, "b"), one(1, "b"), one(3, "c")];
        subsets.push(Subset {
            unready: addresses([2]),
            ..one(9, "c")
        });
        subsets[5].ready.clear();
        let packed = repack(&subsets).subsets;
        let found: Vec<(usize, usize, usize)> = packed
            .iter()
            .map(|s| (s.ready.len(), s.unready.len(), s.ports.len()))
            .collect();
        assert_eq!(found, [(2, 0, 2), (1, 1, 1)]);
        assert_eq!(repack(&packed).subsets, packed);
        let again: Vec<Subset> = packed.iter().map(|s| Subset::from_value(&s.to_value())).collect();
        assert_eq!(again, packed);
    }

    #[test]
    fn cost_is_linear_in_addresses_and_ports() {
        let subset = Subset {
            ready: addresses(0..3_000),
            unready: Vec::new(),
            ports: (0..30_000).map(|n| port(&n.to_string())).collect(),
        };
        let packed = repack(&[subset]).subsets;
        assert_eq!(
            (packed[0].ready.len(), packed[0].ports.len(), packed.len()),
            (3_000, 30_000, 1)
        );
        assert!(packed[0].ports.is_sorted());
    }

    #[test]
    fn subsets_that_repeat_each_others_addresses_are_bounded() {
        // Each port is in the large subset and in a small one of its own, so each has a subset with all
        // addresses.
        let ports = 2_000;
        let mut subsets = vec![Subset {
            ready: addresses(0..1_000),
            unready: Vec::new(),
            ports: (0..ports).map(|n| port(&n.to_string())).collect(),
        }];
        subsets.extend((0..ports).map(|n| Subset {
            ready: addresses([10_000 + n]),
            unready: Vec::new(),
            ports: vec![port(&n.to_string())],
        }));
        let packed = repack(&subsets);
        let placed: usize = packed.subsets.iter().map(|s| s.ready.len()).sum();
        assert!(placed <= MAX_PLACED && placed > MAX_PLACED / 2, "{placed}");
        assert_eq!(placed + packed.left_out, ports * 1_001);
    }

    #[test]
    fn an_address_without_ports_is_kept() {
        let subset = Subset {
            ready: addresses([1]),
            ..Subset::default()
        };
        assert_eq!(repack(std::slice::from_ref(&subset)).subsets, [subset]);
    }

    #[test]
    fn too_many_addresses_are_left_out_unready_ones_first() {
        let subset = |ready, unready| Subset {
            ready: addresses(0..ready),
            unready: addresses(0..unready),
            ports: Vec::new(),
        };
        let lengths =
            |all: &[Subset]| -> Vec<(usize, usize)> { all.iter().map(|s| (s.ready.len(), s.unready.len())).collect() };
        let mut few = [subset(600, 400)];
        assert!(!truncate(&mut few));
        let mut unready = [subset(300, 400), subset(500, 400)];
        assert!(truncate(&mut unready));
        assert_eq!(lengths(&unready), [(300, 100), (500, 100)]);
        let mut ready = [subset(1000, 5), subset(1000, 5)];
        assert!(truncate(&mut ready));
        assert_eq!(lengths(&ready), [(500, 0), (500, 0)]);
    }
}

//! Choice of an endpoint for an explicit target: weighted power-of-two choice within the active failover
//! tier, which is the first tier with a healthy address. Entry point: [`choose`]. Unweighted addresses are
//! chosen in `balance`.

use super::balance::splitmix64;
use super::host::Host;
use crate::proxy::target::Target;
use std::collections::HashMap;
use std::sync::Arc;

/// Returns the index of the chosen endpoint. `not`, and endpoints that are ejected or on probation, are used
/// only if there is no other. Endpoints on probation get a background probe.
pub(super) fn choose(target: &Target, hosts: &HashMap<Arc<str>, Arc<Host>>, counter: u64, not: Option<&str>) -> usize {
    let host = |i: usize| hosts.get(&target.addresses[i]);
    let other = |i: &usize| not != Some(&*target.addresses[*i]);
    let healthy = |i: &usize| other(i) && host(*i).is_none_or(|h| !h.health.was_ejected());
    let drawn = splitmix64(counter);
    let found = target.tiers().find_map(|range| {
        // All of the tier, not only the drawn ones: a tier without a healthy endpoint is never drawn from.
        for unhealthy in range.clone().filter_map(host) {
            unhealthy.probe_if_due();
        }
        let a = draw(target, range.clone().filter(healthy), drawn)?;
        let Some(b) = draw(target, range.filter(|i| healthy(i) && *i != a), drawn >> 32) else {
            return Some(a);
        };
        let in_flight = |i: usize| host(i).map_or(0, |h| h.in_flight.now()) as u64;
        let weight = |i: usize| u64::from(target.endpoints[i].weight);
        // `a` stands unless `b`, with this request added, would be less loaded per weight.
        // Multiplied crosswise, since the quotients of small counts and weights would round to the same
        // number.
        let is_relief = (in_flight(b) + 1) * weight(a) < in_flight(a) * weight(b);
        Some(if is_relief { b } else { a })
    });
    // No endpoint is healthy: take the one with the fewest failures, breaking ties at random.
    let least_failing = || {
        let n = target.endpoints.len();
        let all = (0..n).map(|i| (i + drawn as usize % n) % n).filter(other);
        all.min_by_key(|i| host(*i).map_or(0, |h| h.health.failures()))
    };
    // Nothing is left only if `not` is the single endpoint.
    found.or_else(least_failing).unwrap_or(0)
}

/// Draws one index with a probability proportional to its weight.
fn draw(target: &Target, of: impl Iterator<Item = usize> + Clone, drawn: u64) -> Option<usize> {
    let weight = |i: usize| u64::from(target.endpoints[i].weight);
    let all: u64 = of.clone().map(weight).sum();
    // At least 1: without a candidate there is nothing to draw, and `% 0` would panic.
    let mut left = (drawn & 0xffff_ffff) % all.max(1);
    of.clone().find(|i| {
        let here = left < weight(*i);
        left = left.saturating_sub(weight(*i));
        here
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::proxy::target;

    fn target(urls: &str) -> Target {
        let object = json!({
            "metadata": {"annotations": {
                "torana.dev/backend-urls": (urls), "torana.dev/backend-server-name": "api.example.com"}},
            "spec": {"service": {"namespace": "n", "name": "s"}}});
        target::read(&object).unwrap().target.unwrap().as_ref().clone()
    }

    #[test]
    fn endpoints_are_drawn_by_weight_within_the_first_tier() {
        let t = target("https://a;weight=6, https://b;weight=3, https://c, https://d;failover=1;weight=1000");
        let mut seen = [0; 4];
        for counter in 0..10_000 {
            seen[choose(&t, &HashMap::new(), counter, None)] += 1;
        }
        for (endpoint, share) in [(0, 6000), (1, 3000), (2, 1000), (3, 0)] {
            assert!(
                seen[endpoint] >= share * 9 / 10 && seen[endpoint] <= share * 11 / 10,
                "{seen:?}"
            );
        }
    }

    #[test]
    fn a_failed_endpoint_is_replaced_within_its_tier_then_by_the_next() {
        let t = target("https://a, https://b, https://c;failover=1");
        assert!((0..100).all(|counter| choose(&t, &HashMap::new(), counter, Some("a:443")) == 1));
        let t = target("https://a, https://c;failover=1");
        assert!((0..100).all(|counter| choose(&t, &HashMap::new(), counter, Some("a:443")) == 1));
    }
}

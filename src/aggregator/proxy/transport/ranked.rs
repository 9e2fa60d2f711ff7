//! Which place of a target a request goes to: of those whose turn it is and which are well, two are drawn by weight, and the
//! first gets it unless it has more to do for its weight than the second would then have. While none of a turn is well, it is the next one's.

use super::balance::scatter;
use super::host::Host;
use crate::client::target::Target;
use std::collections::HashMap;
use std::sync::Arc;

/// The place, by its number. Places that are ejected, and `not`, count only where there are no others; one whose ejection is
/// over is asked how it does, and counts again once it has answered.
pub(super) fn choose(target: &Target, hosts: &HashMap<Arc<str>, Arc<Host>>, turn: u64, not: Option<&str>) -> usize {
    let host = |i: usize| hosts.get(&target.addresses[i]);
    let other = |i: &usize| not != Some(&*target.addresses[*i]);
    let well = |i: &usize| other(i) && host(*i).is_none_or(|h| !h.health.was_ejected());
    let drawn = scatter(turn);
    let found = target.turns().find_map(|range| {
        for ill in range.clone().filter_map(host) {
            ill.ask_again();
        }
        let a = draw(target, range.clone().filter(well), drawn)?;
        let Some(b) = draw(target, range.filter(|i| well(i) && *i != a), drawn >> 32) else {
            return Some(a);
        };
        let busy = |i: usize| host(i).map_or(0, |h| h.busy.now()) as u64;
        let weight = |i: usize| u64::from(target.places[i].weight);
        // The draw stands unless the other one, with this request, would still have less to do.
        let is_relief = (busy(b) + 1) * weight(a) < busy(a) * weight(b);
        Some(if is_relief { b } else { a })
    });
    // Nobody is well: whoever failed least bears it, from a place of its own each time.
    let bear = || {
        let n = target.places.len();
        let all = (0..n).map(|i| (i + drawn as usize % n) % n).filter(other);
        all.min_by_key(|i| host(*i).map_or(0, |h| h.health.failures()))
    };
    found.or_else(bear).unwrap_or(0)
}

/// One of these, each as often as it weighs.
fn draw(target: &Target, of: impl Iterator<Item = usize> + Clone, drawn: u64) -> Option<usize> {
    let weight = |i: usize| u64::from(target.places[i].weight);
    let all: u64 = of.clone().map(weight).sum();
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
    use crate::client::target;
    use crate::json;

    fn target(urls: &str) -> Target {
        let object = json!({
            "metadata": {"annotations": {
                "torana.dev/backend-urls": (urls), "torana.dev/backend-server-name": "api.example.com"}},
            "spec": {"service": {"namespace": "n", "name": "s"}}});
        target::read(&object).unwrap().target.unwrap().as_ref().clone()
    }

    #[test]
    fn each_place_is_drawn_as_often_as_it_weighs_and_later_turns_never() {
        let t = target("https://a;weight=6, https://b;weight=3, https://c, https://d;failover=1;weight=1000");
        let mut seen = [0; 4];
        for turn in 0..10_000 {
            seen[choose(&t, &HashMap::new(), turn, None)] += 1;
        }
        for (place, share) in [(0, 6000), (1, 3000), (2, 1000), (3, 0)] {
            assert!(
                seen[place] >= share * 9 / 10 && seen[place] <= share * 11 / 10,
                "{seen:?}"
            );
        }
    }

    #[test]
    fn where_a_place_failed_the_request_goes_to_another_of_its_turn_and_then_to_the_next() {
        let t = target("https://a, https://b, https://c;failover=1");
        assert!((0..100).all(|turn| choose(&t, &HashMap::new(), turn, Some("a:443")) == 1));
        let t = target("https://a, https://c;failover=1");
        assert!((0..100).all(|turn| choose(&t, &HashMap::new(), turn, Some("a:443")) == 1));
    }
}

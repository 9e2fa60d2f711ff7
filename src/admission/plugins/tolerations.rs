//! Merging of tolerations: one that is covered by another is dropped. As upstream's `pkg/util/tolerations`,
//! which compares all pairs; here the candidates are found by hash.

use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// Concatenates both lists, without tolerations covered by another one.
pub(crate) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<Toleration<'_>> = first.iter().chain(second).map(Toleration::of).collect();
    // Walk backwards, to find for each toleration whether a later one covers it.
    let mut later = Covered::default();
    let mut covered_later: Vec<bool> = all
        .iter()
        .rev()
        .map(|t| {
            let covered = later.covers_other(t);
            later.add(t);
            covered
        })
        .collect();
    covered_later.reverse();
    let mut kept = Covered::default();
    let mut merged = Vec::new();
    for (t, later) in all.iter().zip(covered_later) {
        // Of equal ones the first is kept: `covers_other` ignores a later equal one, `covers` does not.
        if !later && !kept.covers(t) {
            kept.add(t);
            merged.push(t.value.clone());
        }
    }
    merged
}

/// A toleration with the fields that upstream's comparison of them reads.
struct Toleration<'a> {
    value: &'a Value,
    key: &'a str,
    effect: &'a str,
    operator: &'a str,
    text: &'a str,
    seconds: Option<i64>,
    /// Its JSON, to compare for equality.
    id: String,
}

impl<'a> Toleration<'a> {
    fn of(value: &'a Value) -> Self {
        Self {
            value,
            key: value.str_at(&["key"]),
            effect: value.str_at(&["effect"]),
            operator: value.str_at(&["operator"]),
            text: value.str_at(&["value"]),
            seconds: value.get("tolerationSeconds").as_i64(),
            id: json::to_string(value),
        }
    }
}

/// Key and effect (empty matches any), and the value (`None` matches any).
type Class<'a> = (&'a str, &'a str, Option<&'a str>);

/// The longest toleration time in a class, and the toleration that has it.
#[derive(Clone)]
struct Longest {
    seconds: i64,
    id: String,
}

/// The tolerations covered by a set, indexed by class. A covers B if the key and effect of A are equal or
/// empty, its operator matches B's value, and it does not expire sooner.
#[derive(Default)]
pub(crate) struct Covered<'a> {
    ids: HashSet<String>,
    /// The longest in each class, and the longest of a different toleration, since none covers itself here.
    classes: HashMap<Class<'a>, (Longest, Option<Longest>)>,
}

impl<'a> Covered<'a> {
    /// The tolerations covered by `all`.
    pub(crate) fn by(all: &'a [Value]) -> Self {
        let mut out = Self::default();
        all.iter().for_each(|t| out.add(&Toleration::of(t)));
        out
    }

    /// True if one of them equals `t` or covers it.
    pub(crate) fn has(&self, t: &Value) -> bool {
        self.covers(&Toleration::of(t))
    }

    fn add(&mut self, t: &Toleration<'a>) {
        self.ids.insert(t.id.clone());
        let value = match t.operator {
            "" | "Equal" => Some(t.text),
            "Exists" => None,
            // An unknown operator covers only an equal toleration.
            _ => return,
        };
        let seconds = match t.effect {
            "NoExecute" => t.seconds.unwrap_or(i64::MAX),
            _ => i64::MAX,
        };
        let new = Longest {
            seconds,
            id: t.id.clone(),
        };
        match self.classes.entry((t.key, t.effect, value)) {
            Entry::Vacant(free) => drop(free.insert((new, None))),
            Entry::Occupied(mut known) => {
                let (first, second) = known.get_mut();
                // A duplicate must not become `second`, which stands for a different toleration.
                if new.id == first.id {
                } else if new.seconds > first.seconds {
                    *second = Some(std::mem::replace(first, new));
                } else if second.as_ref().is_none_or(|s| new.seconds > s.seconds) {
                    *second = Some(new);
                }
            }
        }
    }

    fn covers(&self, t: &Toleration<'_>) -> bool {
        self.ids.contains(&t.id) || self.covers_other(t)
    }

    /// True if a toleration that is not equal to `t` covers it.
    fn covers_other(&self, t: &Toleration<'_>) -> bool {
        // Upstream's quirk: an absent operator means `Equal` for the covering toleration only.
        let equal = (t.operator == "Equal").then_some(t.text);
        [t.key, ""].into_iter().enumerate().any(|(any_key, key)| {
            [t.effect, ""].into_iter().any(|effect| {
                // With an empty key, only the operator `Exists` matches every key.
                let values = [None, equal.filter(|_| any_key == 0 || t.key.is_empty())];
                values.into_iter().enumerate().any(|(i, value)| {
                    if i == 1 && value.is_none() {
                        return false;
                    }
                    let Some((first, second)) = self.classes.get(&(key, effect, value)) else {
                        return false;
                    };
                    let longest = if first.id == t.id { second.as_ref() } else { Some(first) };
                    // An absent time means that it never ends.
                    let needed = t.seconds.unwrap_or(i64::MAX);
                    longest.is_some_and(|l| effect != "NoExecute" || l.seconds >= needed)
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use proptest::prelude::*;

    /// Upstream's `isSuperset`, restated.
    fn covers(wide: &Value, t: &Value) -> bool {
        if wide == t {
            return true;
        }
        let text = |v: &Value, key: &str| v.str_at(&[key]).to_owned();
        let (key, effect, operator) = (text(wide, "key"), text(wide, "effect"), text(wide, "operator"));
        if text(t, "key") != key && !(key.is_empty() && operator == "Exists") {
            return false;
        }
        if text(t, "effect") != effect && !effect.is_empty() {
            return false;
        }
        let seconds = |v: &Value| v.get("tolerationSeconds").as_i64();
        if effect == "NoExecute"
            && let Some(limit) = seconds(wide)
            && seconds(t).is_none_or(|s| s > limit)
        {
            return false;
        }
        match operator.as_str() {
            "" | "Equal" => text(t, "operator") == "Equal" && text(t, "value") == text(wide, "value"),
            "Exists" => true,
            _ => false,
        }
    }

    fn toleration() -> impl Strategy<Value = Value> {
        let pick = |all: &'static [&'static str]| prop::sample::select(all);
        let seconds = prop::option::of(0..3i64);
        let parts = (
            pick(&["", "a", "b"]),
            pick(&["", "Equal", "Exists", "Odd"]),
            pick(&["", "x"]),
        );
        (parts, pick(&["", "NoExecute", "NoSchedule"]), seconds).prop_map(
            |((key, operator, value), effect, seconds)| {
                let mut v = Value::object();
                for (name, text) in [
                    ("key", key),
                    ("operator", operator),
                    ("value", value),
                    ("effect", effect),
                ] {
                    if !text.is_empty() {
                        v.set(&[name], text);
                    }
                }
                if let Some(n) = seconds {
                    v.set(&["tolerationSeconds"], n);
                }
                v
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
        #[test]
        fn covered_tolerations_equal_a_pairwise_comparison(
            first in prop::collection::vec(toleration(), 0..8),
            second in prop::collection::vec(toleration(), 0..8),
        ) {
            let all: Vec<&Value> = first.iter().chain(&second).collect();
            let mut plain: Vec<Value> = Vec::new();
            for (i, t) in all.iter().enumerate() {
                let before = plain.iter().any(|kept| covers(kept, t));
                let after = all[i + 1..].iter().any(|later| later != t && covers(later, t));
                if !before && !after {
                    plain.push((*t).clone());
                }
            }
            prop_assert_eq!(merge(&first, &second), plain);
            let covered = Covered::by(&first);
            for t in &second {
                prop_assert_eq!(covered.has(t), first.iter().any(|wide| covers(wide, t)));
            }
        }
    }

    #[test]
    fn the_wider_toleration_keeps_its_position() {
        let narrow = json!({"key": "a", "operator": "Equal", "value": "x", "effect": "NoExecute"});
        let wide = json!({"key": "a", "operator": "Exists"});
        let other = json!({"key": "b", "operator": "Exists"});
        let got = merge(&[narrow, other.clone()], &[wide.clone(), other.clone()]);
        assert_eq!(got, [other, wide]);
    }

    #[test]
    fn a_toleration_covers_only_shorter_times() {
        let of = |seconds: Value| json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": (seconds.as_i64())});
        assert!(covers(&of(10i64.into()), &of(5i64.into())));
        assert!(!covers(&of(10i64.into()), &of(20i64.into())));
        assert!(!covers(&of(10i64.into()), &of(Value::Null)));
        let all = json!({"operator": "Exists"});
        assert!(covers(&all, &of(5i64.into())));
    }
}

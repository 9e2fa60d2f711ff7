//! [`Amounts`]: how much of each resource of a quota, and the arithmetic on it.

use crate::admission::plugins::resources;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;
use std::collections::BTreeMap;

/// Quantities by quota resource name.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Formats as `a=1,b=2`.
pub(super) fn format_amounts(amounts: &Amounts) -> String {
    let each: Vec<String> = amounts.iter().map(|(k, v)| format!("{k}={v}")).collect();
    each.join(",")
}

pub(super) fn amounts(v: &Value) -> Amounts {
    let list = resources::list(v);
    list.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

/// The entries of `of` whose keys are also in `names`.
pub(super) fn masked<V>(of: &Amounts, names: &BTreeMap<String, V>) -> Amounts {
    let kept = of.iter().filter(|(k, _)| names.contains_key(*k));
    kept.map(|(k, v)| (k.clone(), *v)).collect()
}

/// The increase from `old` to `new`; a decrease counts as zero.
pub(super) fn growth(new: &Amounts, old: &Amounts) -> Amounts {
    let more = new.iter().map(|(name, quantity)| {
        let before = old.get(name).copied().unwrap_or(Quantity::ZERO);
        // Usage is never given back here: the update may still fail, and the recount notices a decrease.
        (name.clone(), quantity.minus(before).max(Quantity::ZERO))
    });
    more.collect()
}

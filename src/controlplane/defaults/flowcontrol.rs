//! Defaults of FlowSchemas and PriorityLevelConfigurations (`pkg/apis/flowcontrol/v1/defaults.go`).

use crate::apimachinery::value::Value;
use crate::controlplane::fields::set_default;

fn zero_is_unset(v: &mut Value, path: &[&str], value: i64) {
    if v.at(path).as_i64().unwrap_or(0) == 0 {
        v.set(path, value);
    }
}

pub(crate) fn flow_schema(v: &mut Value) {
    zero_is_unset(v, &["spec", "matchingPrecedence"], 1000);
}

pub(crate) fn priority_level(v: &mut Value) {
    if !v.at(&["spec", "limited"]).is_null() {
        // Pointers upstream, for which an explicit 0 counts, unlike for the integers of `queuing`.
        set_default(v, &["spec", "limited", "nominalConcurrencyShares"], 30i64);
        set_default(v, &["spec", "limited", "lendablePercent"], 0i64);
        const QUEUING: [&str; 4] = ["spec", "limited", "limitResponse", "queuing"];
        if !v.at(&QUEUING).is_null() {
            for (key, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                zero_is_unset(v, &[QUEUING[0], QUEUING[1], QUEUING[2], QUEUING[3], key], value);
            }
        }
    }
    if !v.at(&["spec", "exempt"]).is_null() {
        set_default(v, &["spec", "exempt", "nominalConcurrencyShares"], 0i64);
        set_default(v, &["spec", "exempt", "lendablePercent"], 0i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn queuing_is_completed_and_explicit_zero_shares_are_kept() {
        let mut v =
            json!({"spec": {"limited": {"nominalConcurrencyShares": 0, "limitResponse": {"queuing": {"queues": 4}}}}});
        priority_level(&mut v);
        assert_eq!(
            v,
            json!({"spec": {"limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0,
                   "limitResponse": {"queuing": {"handSize": 8, "queues": 4, "queueLengthLimit": 50}}}}})
        );
    }
}

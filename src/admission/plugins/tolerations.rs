//! Merging tolerations: of two that say the same, the wider one stays. As upstream's `pkg/util/tolerations`.

use crate::apimachinery::value::Value;

/// Both lists in one, in order, without those that another one covers.
pub fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::with_capacity(all.len());
    for (i, t) in all.iter().enumerate() {
        let before = merged.iter().any(|kept| covers(kept, t));
        // Of two equal ones the first stays.
        let after = || all[i + 1..].iter().any(|later| later != t && covers(later, t));
        if !before && !after() {
            merged.push((*t).clone());
        }
    }
    merged
}

/// True where `wide` tolerates everything that `t` does.
pub fn covers(wide: &Value, t: &Value) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_wider_of_two_stays_where_it_stood() {
        let narrow = json!({"key": "a", "operator": "Equal", "value": "x", "effect": "NoExecute"});
        let wide = json!({"key": "a", "operator": "Exists"});
        let other = json!({"key": "b", "operator": "Exists"});
        let got = merge(&[narrow, other.clone()], &[wide.clone(), other.clone()]);
        assert_eq!(got, [other, wide]);
    }

    #[test]
    fn seconds_limit_what_is_covered() {
        let of = |seconds: Value| json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": (seconds.as_i64())});
        assert!(covers(&of(10i64.into()), &of(5i64.into())));
        assert!(!covers(&of(10i64.into()), &of(20i64.into())));
        assert!(!covers(&of(10i64.into()), &of(Value::Null)));
        let all = json!({"operator": "Exists"});
        assert!(covers(&all, &of(5i64.into())));
    }
}

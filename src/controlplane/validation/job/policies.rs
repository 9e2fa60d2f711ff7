//! Validation of a Job's pod failure policy, success policy and pod replacement policy (`validatePodFailurePolicy`,
//! `validateSuccessPolicy` and `validatePodReplacementPolicy` upstream), and of the index lists that statuses share.

use super::super::go_form;
use super::choice;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::qualified_name;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, regular_containers};

pub(super) fn pod_failure(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let policy = spec.get("podFailurePolicy");
    if policy.is_null() {
        return;
    }
    let at = path.child("podFailurePolicy").child("rules");
    let rules = policy.get("rules").items();
    if rules.len() > 20 {
        out.push(FieldError::too_many(&at, rules.len(), 20));
    }
    // Not ephemeral ones: a pod template has none.
    let names: Seen<&str> = regular_containers(spec.at(&["template", "spec"]))
        .map(|c| c.str_at(&["name"]))
        .collect();
    for (i, rule) in rules.iter().enumerate() {
        self::rule(out, spec, rule, &names, &at.index(i));
    }
}

fn rule(out: &mut ErrorList, spec: &Value, rule: &Value, names: &Seen<&str>, at: &FieldPath) {
    choice(out, rule, "action", at, &["Count", "FailIndex", "FailJob", "Ignore"]);
    // The action fails one index, which only a limit per index makes possible.
    if rule.str_at(&["action"]) == "FailIndex" && spec.get("backoffLimitPerIndex").is_null() {
        out.push(FieldError::invalid(
            &at.child("action"),
            "FailIndex",
            "requires the backoffLimitPerIndex to be set",
        ));
    }
    let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions").items());
    if !codes.is_null() {
        exit_codes(out, codes, names, &at.child("onExitCodes"));
    }
    if conditions.len() > 20 {
        out.push(FieldError::too_many(&at.child("onPodConditions"), conditions.len(), 20));
    }
    for (i, c) in conditions.iter().enumerate() {
        let at = at.child("onPodConditions").index(i);
        let kind = c.str_at(&["type"]);
        invalid_each(out, &at.child("type"), kind, qualified_name(kind));
        choice(out, c, "status", &at, &["False", "True", "Unknown"]);
    }
    let why = match (!codes.is_null(), !conditions.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    let mut error = FieldError::invalid(at, "", why);
    // Upstream omits the value (`field.OmitValueType`).
    error.bad_value = None;
    out.push(error);
}

fn exit_codes(out: &mut ErrorList, v: &Value, names: &Seen<&str>, at: &FieldPath) {
    choice(out, v, "operator", at, &["In", "NotIn"]);
    if let Some(name) = v.get("containerName").as_str()
        && !names.contains(&name)
    {
        out.push(FieldError::invalid(
            &at.child("containerName"),
            name,
            "must be one of the container or initContainer names in the pod template",
        ));
    }
    let (at, values) = (at.child("values"), v.get("values").items());
    if values.is_empty() {
        out.push(FieldError::invalid(
            &at,
            v.get("values").clone(),
            "at least one value is required",
        ));
    } else if values.len() > 255 {
        out.push(FieldError::too_many(&at, values.len(), 255));
    }
    let allocators: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = Seen::new();
    for (i, n) in allocators.iter().enumerate() {
        // Exit code 0 is success, which a failure policy never sees.
        if *n == 0 && v.str_at(&["operator"]) == "In" {
            out.push(FieldError::invalid(
                &at.index(i),
                *n,
                "must not be 0 for the In operator",
            ));
        }
        if !seen.insert(*n) {
            out.push(FieldError::duplicate(&at.index(i), *n));
        }
    }
    if !allocators.is_sorted() {
        out.push(FieldError::invalid(&at, v.get("values").clone(), "must be ordered"));
    }
}

pub(super) fn replacement(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let Some(policy) = spec.get("podReplacementPolicy").as_str() else {
        return;
    };
    // With a failure policy a pod must have failed before its replacement can be decided on.
    let supported: &[&str] = if spec.get("podFailurePolicy").is_null() {
        &["Failed", "TerminatingOrFailed"]
    } else {
        &["Failed"]
    };
    if !supported.contains(&policy) {
        out.push(FieldError::not_supported(
            &path.child("podReplacementPolicy"),
            policy,
            supported,
        ));
    }
}

pub(super) fn success(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let policy = spec.get("successPolicy");
    if policy.is_null() {
        return;
    }
    let at = path.child("successPolicy");
    // The rules refer to indexes, so nothing else is validated without them.
    if spec.str_at(&["completionMode"]) != "Indexed" {
        let shown = go_form::compact(policy, go_form::SUCCESS_POLICY);
        let why = "requires indexed completion mode";
        out.push(FieldError::invalid_raw(&at, shown, why));
        return;
    }
    let (at, rules) = (at.child("rules"), policy.get("rules").items());
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        out.push(FieldError::required(&at, why));
    } else if rules.len() > 20 {
        out.push(FieldError::too_many(&at, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        success_rule(out, spec.get("completions").as_i64().unwrap_or(0), rule, &at.index(i));
    }
}

fn success_rule(out: &mut ErrorList, completions: i64, rule: &Value, at: &FieldPath) {
    let (count, indexes) = (
        rule.get("succeededCount").as_i64(),
        rule.get("succeededIndexes").as_str(),
    );
    if count.is_none() && indexes.is_none() {
        let why = "at least one of succeededCount or succeededIndexes must be specified";
        out.push(FieldError::required(at, why));
    }
    let mut listed = None;
    if let Some(text) = indexes {
        let at = at.child("succeededIndexes");
        // Parsed nevertheless: upstream reports both errors.
        if text.len() > 64 * 1024 {
            out.push(FieldError::too_long(&at, 64 * 1024));
        }
        // Malformed indexes count as none, so that the count below is still checked, as upstream.
        listed = Some(parse_indexes(text, completions).unwrap_or_else(|e| {
            let why = format!("error parsing succeededIndexes: {e}");
            out.push(FieldError::invalid(&at, text, why));
            0
        }));
    }
    let Some(count) = count else { return };
    let at = at.child("succeededCount");
    if count < 0 {
        out.push(FieldError::invalid(&at, count, super::super::common::NOT_NEGATIVE));
    }
    if count > completions {
        let why = format!("must be less than or equal to {completions} (the number of specified completions)");
        out.push(FieldError::invalid(&at, count, why));
    }
    if let Some(n) = listed.filter(|n| count > *n) {
        let why = format!(
            "must be less than or equal to {n} (the number of indexes in the specified succeededIndexes field)"
        );
        out.push(FieldError::invalid(&at, count, why));
    }
}

/// Why a list of indexes is invalid, with upstream's messages (`validateIndexesFormat`).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidIndexes {
    #[error(
        "the fragment {0:?} violates the requirement that an index interval can have at most two parts separated by '-'"
    )]
    Interval(String),
    #[error("cannot convert string to integer for index: {0:?}")]
    NotNumber(String),
    #[error("too large index: {0:?}")]
    TooLarge(String),
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order { previous: i64, current: i64 },
}

/// Counts the indexes in a list such as `1,3-5`.
pub(super) fn parse_indexes(text: &str, completions: i64) -> Result<i64, InvalidIndexes> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last): (i64, Option<i64>) = (0, None);
    for part in text.split(',') {
        let (first, end) = interval(part, completions)?;
        if let Some(previous) = last.filter(|l| *l >= first) {
            return Err(InvalidIndexes::Order {
                previous,
                current: first,
            });
        }
        last = Some(end);
        total += end - first + 1;
    }
    Ok(total)
}

/// Parses one part of a list: an index, or a range as its first and last index.
fn interval(part: &str, completions: i64) -> Result<(i64, i64), InvalidIndexes> {
    let index = |piece: &str| match piece.parse::<i64>() {
        Err(_) => Err(InvalidIndexes::NotNumber(piece.to_owned())),
        Ok(n) if n >= completions => Err(InvalidIndexes::TooLarge(piece.to_owned())),
        Ok(n) => Ok(n),
    };
    let (first, last) = match part.split_once('-') {
        None => (part, None),
        Some((_, rest)) if rest.contains('-') => return Err(InvalidIndexes::Interval(part.to_owned())),
        Some((first, last)) => (first, Some(last)),
    };
    let previous = index(first)?;
    let Some(last) = last else {
        return Ok((previous, previous));
    };
    let current = index(last)?;
    if previous >= current {
        return Err(InvalidIndexes::Order { previous, current });
    }
    Ok((previous, current))
}

/// The first index that is in both lists. Invalid parts are skipped: [`parse_indexes`] reports them.
pub(super) fn first_overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let mut lists = [completed, failed].map(|text| {
        let parts = text.split(',');
        parts.filter_map(move |part| interval(part, completions).ok())
    });
    let mut next = lists.each_mut().map(Iterator::next);
    // Both lists increase, so one pass over them suffices: of two disjoint intervals the one that starts first cannot
    // overlap anything that follows in the other list.
    while let [Some(a), Some(b)] = next {
        if a.0 <= b.1 && b.0 <= a.1 {
            return Some(a.0.max(b.0));
        }
        let behind = usize::from(a.0 > b.0);
        next[behind] = lists[behind].next();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_increasing_numbers_and_ranges() {
        assert_eq!(parse_indexes("0,2-4", 10), Ok(4));
        for (text, why) in [
            (
                "1-2-3",
                "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
            ("x", "cannot convert string to integer for index: \"x\""),
            ("9", "too large index: \"9\""),
            ("3,2", "non-increasing order, previous: 3, current: 2"),
            ("3-3", "non-increasing order, previous: 3, current: 3"),
            // The parts are parsed before their order is compared.
            ("3,2-x", "cannot convert string to integer for index: \"x\""),
        ] {
            assert_eq!(parse_indexes(text, 9).unwrap_err().to_string(), why);
        }
    }
}

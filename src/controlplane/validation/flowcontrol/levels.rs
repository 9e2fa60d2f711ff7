//! Validation of PriorityLevelConfigurations (`ValidatePriorityLevelConfiguration` upstream).

use super::mandatory;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;

/// Annotation of v1beta3 that distinguished zero shares from unset; forbidden in v1.
const MARKER: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

pub(crate) fn priority_level(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    if v.annotation(MARKER).is_some() {
        out.push(FieldError::forbidden(
            &FieldPath::new("metadata").child("annotations"),
            format!("annotation '{MARKER}' is forbidden"),
        ));
    }
    let kind = spec.str_at(&["type"]);
    // A second exempt level would take an unlimited share of the server.
    if (v.name() == "exempt") != (kind == "Exempt") {
        out.push(FieldError::invalid_enum(
            &path.child("type"),
            kind,
            "must be 'Exempt' if and only if `name` is 'exempt'",
        ));
    }
    let (limited, exempt) = (spec.get("limited"), spec.get("exempt"));
    match kind {
        "Exempt" => {
            if !limited.is_null() {
                out.push(FieldError::forbidden(
                    &path.child("limited"),
                    "must be nil if the type is not Limited",
                ));
            }
            shares(&mut out, exempt, &path.child("exempt"));
        }
        "Limited" => {
            if !exempt.is_null() {
                out.push(FieldError::forbidden(
                    &path.child("exempt"),
                    "must be nil if the type is Limited",
                ));
            }
            if limited.is_null() {
                out.push(FieldError::required(
                    &path.child("limited"),
                    "must not be empty when type is Limited",
                ));
            } else {
                limits(&mut out, limited, &path.child("limited"));
            }
        }
        other => out.push(FieldError::not_supported(
            &path.child("type"),
            other,
            &["Exempt", "Limited"],
        )),
    }
    mandatory::level(&mut out, v);
    out
}

fn shares(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    nominal(out, v, at);
    lendable(out, v, at);
}

fn nominal(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.get("nominalConcurrencyShares").as_i64().filter(|n| *n < 0) {
        out.push(FieldError::invalid(
            &at.child("nominalConcurrencyShares"),
            n,
            "must be a non-negative integer",
        ));
    }
}

fn lendable(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.get("lendablePercent").as_i64().filter(|n| !(0..=100).contains(n)) {
        out.push(FieldError::invalid(
            &at.child("lendablePercent"),
            n,
            "must be between 0 and 100, inclusive",
        ));
    }
}

fn limits(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    nominal(out, v, at);
    // Between the two checks of shares, as upstream.
    response(out, v.get("limitResponse"), &at.child("limitResponse"));
    lendable(out, v, at);
    if let Some(n) = v.get("borrowingLimitPercent").as_i64().filter(|n| *n < 0) {
        out.push(FieldError::invalid(
            &at.child("borrowingLimitPercent"),
            n,
            "if specified, must be a non-negative integer",
        ));
    }
}

fn response(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let queuing = v.get("queuing");
    match v.str_at(&["type"]) {
        "Reject" => {
            if !queuing.is_null() {
                out.push(FieldError::forbidden(
                    &at.child("queuing"),
                    // `Limited` instead of `Queue` is upstream's mistake, here and below.
                    "must be nil if limited.limitResponse.type is not Limited",
                ));
            }
        }
        "Queue" if queuing.is_null() => out.push(FieldError::required(
            &at.child("queuing"),
            "must not be empty if limited.limitResponse.type is Limited",
        )),
        "Queue" => queues(out, queuing, &at.child("queuing")),
        other => out.push(FieldError::not_supported(
            &at.child("type"),
            other,
            &["Queue", "Reject"],
        )),
    }
}

fn queues(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let number = |key: &str| v.get(key).as_i64().unwrap_or(0);
    for key in ["queueLengthLimit", "queues"] {
        if number(key) <= 0 {
            out.push(FieldError::invalid(&at.child(key), number(key), "must be positive"));
        }
    }
    let (decks, hand) = (number("queues"), number("handSize"));
    // Each queue is allocated in memory by the server.
    if decks > 10_000_000 {
        out.push(FieldError::invalid(
            &at.child("queues"),
            decks,
            "must not be greater than 10000000",
        ));
    }
    let at = at.child("handSize");
    if hand <= 0 {
        out.push(FieldError::invalid(&at, hand, "must be positive"));
    // A hand holds distinct queues.
    } else if hand > decks {
        out.push(FieldError::invalid(
            &at,
            hand,
            format!("should not be greater than queues ({decks})"),
        ));
    } else if entropy_bits(decks, hand) > 60 {
        out.push(FieldError::invalid(
            &at,
            hand,
            format!("required entropy bits of deckSize {decks} and handSize {hand} should not be greater than 60"),
        ));
    }
}

/// Random bits needed to deal a hand (`RequiredEntropyBits` in upstream's
/// `apiserver/pkg/util/shufflesharding`), which ignores that later cards have fewer choices. A
/// shuffle-sharding hash has 64 bits, hence the limit of 60.
fn entropy_bits(deck: i64, hand: i64) -> i64 {
    ((deck as f64).log2() * hand as f64).ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn hand_size_is_bounded_by_queues() {
        let errors = |q: Value| {
            let mut v = json!({"metadata": {"name": "x"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}}});
            v.set(&["spec", "limited", "limitResponse", "queuing"], q);
            aggregate(&priority_level(&v))
        };
        assert_eq!(
            errors(json!({"queues": 64, "handSize": 8, "queueLengthLimit": 50})),
            "[]"
        );
        assert!(
            errors(json!({"queues": 4, "handSize": 8, "queueLengthLimit": 50}))
                .ends_with("should not be greater than queues (4)")
        );
        assert!(
            errors(json!({"queues": 512, "handSize": 8, "queueLengthLimit": 50}))
                .contains("required entropy bits of deckSize 512")
        );
        assert_eq!(
            errors(json!({"queues": 16, "handSize": 15, "queueLengthLimit": 50})),
            "[]"
        );
        assert!(
            errors(json!({"queues": 16, "handSize": 16, "queueLengthLimit": 50}))
                .contains("required entropy bits of deckSize 16")
        );
    }
}

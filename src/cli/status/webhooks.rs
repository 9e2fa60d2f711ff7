//! The table of admission webhooks.

use super::{ago, aligned, sanitize};
use crate::apimachinery::value::Value;

/// The table, after an empty line; nothing if there are no webhooks.
pub(super) fn table(document: &Value) -> String {
    let webhooks = document.get("webhooks").items();
    if webhooks.is_empty() {
        return String::new();
    }
    let now = document.str_at(&["time"]);
    let head = [
        "WEBHOOK",
        "CONFIGURATION",
        "TYPE",
        "POLICY",
        "CALLS",
        "REFUSED",
        "FAILED-OPEN",
        "FAILED-CLOSED",
        "P50",
        "P99",
        "FAILING",
    ];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    let mut reasons = String::new();
    for v in webhooks {
        let text = |path: &[&str]| match v.str_at(path) {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        let number = |key: &str| v.get(key).as_i64().unwrap_or(0).to_string();
        rows.push(vec![
            text(&["name"]),
            text(&["configuration"]),
            text(&["type"]),
            text(&["failurePolicy"]),
            number("calls"),
            number("refused"),
            number("failedOpen"),
            number("failedClosed"),
            text(&["latency", "p50"]),
            text(&["latency", "p99"]),
            ago(v.str_at(&["failingSince"]), now),
        ]);
        // Present only while calls fail.
        if let Some(why) = v.get("message").as_str() {
            reasons += &sanitize(&format!("{}: {why}", v.str_at(&["name"])));
            reasons += &sanitize(&format!("    {}", v.str_at(&["hint"])));
        }
        if let Some(warning) = v.get("warning").as_str() {
            reasons += &sanitize(warning);
        }
        for e in v.at(&["connection", "endpoints"]).items() {
            if let Some(why) = e.get("lastFailure").as_str() {
                let (address, state) = (e.str_at(&["address"]), e.str_at(&["state"]));
                reasons += &sanitize(&format!("{}: {address} ({state}): {why}", v.str_at(&["name"])));
            }
        }
    }
    let separator = if reasons.is_empty() { "" } else { "\n" };
    format!("\n{}{separator}{reasons}", aligned(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn failing_webhooks_are_shown_with_the_reason_and_a_hint() {
        let document = json!({"time": "2026-01-02T10:01:00Z", "webhooks": [
            {"name": "a.x.io", "configuration": "c", "type": "Mutating", "failurePolicy": "Fail", "calls": 3, "refused": 1,
             "failedOpen": 0, "failedClosed": 2, "latency": {"p50": "1ms", "p99": "2ms"},
             "failingSince": "2026-01-02T10:00:00Z", "message": "no\u{1b}[2J", "hint": "look",
             "warning": "locks itself out", "connection": {"endpoints": [{"address": "10.0.0.1:443", "state": "Ejected", "lastFailure": "EOF"},
                {"address": "10.0.0.2:443", "state": "Good"}]}}]});
        let text = table(&document);
        let lines: Vec<&str> = text.lines().collect();
        let cells: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "a.x.io", "c", "Mutating", "Fail", "3", "1", "0", "2", "1ms", "2ms", "60s"
            ]
        );
        assert_eq!(
            lines[4..],
            [
                "a.x.io: no\u{fffd}[2J",
                "    look",
                "locks itself out",
                "a.x.io: 10.0.0.1:443 (Ejected): EOF"
            ]
        );
        assert_eq!(table(&json!({})), "");
    }
}

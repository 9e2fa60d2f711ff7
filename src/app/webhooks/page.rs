//! The HTML page of admission webhooks: those whose calls fail first, then a table of all. Entry point:
//! [`render`].

use crate::apimachinery::value::Value;
use crate::server::page::{STYLE, coloured};
use crate::server::respond::html_escape;
use std::fmt::Write;

/// Renders the page. Results of `write!` are ignored, since writing to a `String` cannot fail.
pub(super) fn render(document: &Value) -> String {
    let all = document.get("webhooks").items();
    let failing: Vec<&Value> = all.iter().filter(|v| v.get("message").as_str().is_some()).collect();
    let (mark, class) = match failing.is_empty() {
        true => ("", "good"),
        false => ("\u{26a0} ", "bad"),
    };
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <meta http-equiv=refresh content=5><title>{mark}Admission webhooks</title><style>{STYLE}</style>\
         <h1 class={class}>{} webhooks, {} fail</h1>\
         <p><small>{} · looks again every 5 s · the same as JSON: ?format=json, <code>torana status</code></small></p>",
        all.len(),
        failing.len(),
        html_escape(document.str_at(&["time"])),
    );
    if !failing.is_empty() {
        out.push_str("<ul>");
        // All text is escaped: names and messages come from users and webhooks, and an administrator's
        // browser renders the page.
        for v in failing {
            let _ = write!(
                out,
                "<li><b>{}</b> fails since {}: {}<br><small>{}</small>",
                html_escape(v.str_at(&["name"])),
                html_escape(v.str_at(&["failingSince"])),
                html_escape(v.str_at(&["message"])),
                html_escape(v.str_at(&["hint"])),
            );
        }
        out.push_str("</ul>");
    }
    for warning in all.iter().filter_map(|v| v.get("warning").as_str()) {
        let _ = write!(out, "<p>{}</p>", html_escape(warning));
    }
    if !all.is_empty() {
        out.push_str(
            "<table><tr><th>Webhook<th>Policy<th>Calls<th>Latency<br><small>50 / 99 of 100</small><th>Endpoints</tr>",
        );
        all.iter().for_each(|v| row(&mut out, v));
        out.push_str("</table>");
    }
    out.push_str("</html>");
    out
}

fn row(out: &mut String, v: &Value) {
    let connection = v.get("connection");
    let n = |v: &Value, key: &str| v.get(key).as_i64().unwrap_or(0);
    let _ = write!(
        out,
        "<tr><td><b>{}</b><br><small>{} {}</small><td>{}<td>{} calls, {} refused<br>{} failed open, {} failed closed<br>\
         <small>{} in a call, {} waiting</small><td>{} / {}<td>",
        html_escape(v.str_at(&["name"])),
        html_escape(v.str_at(&["type"])),
        html_escape(v.str_at(&["configuration"])),
        html_escape(v.str_at(&["failurePolicy"])),
        n(v, "calls"),
        n(v, "refused"),
        n(v, "failedOpen"),
        n(v, "failedClosed"),
        n(connection, "inCall"),
        n(connection, "waiting"),
        html_escape(v.str_at(&["latency", "p50"])),
        html_escape(v.str_at(&["latency", "p99"])),
    );
    if let Some(left) = connection.get("suspendedFor").as_str() {
        let _ = write!(out, "not called for another {}<br>", html_escape(left));
    }
    for e in connection.get("endpoints").items() {
        let _ = write!(
            out,
            "{} {} <small>{}</small><br>",
            coloured(e.str_at(&["state"])),
            html_escape(e.str_at(&["address"])),
            html_escape(e.str_at(&["lastFailure"])),
        );
    }
    out.push_str("</tr>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn failing_webhooks_come_first_and_foreign_text_is_escaped() {
        let document = json!({"time": "2026-01-02T10:00:00Z", "webhooks": [
            {"name": "fine.x.io", "configuration": "c", "type": "Mutating", "failurePolicy": "Fail", "calls": 3},
            {"name": "bad.x.io", "configuration": "c", "type": "Validating", "failurePolicy": "Ignore", "calls": 2,
             "failedOpen": 2, "failingSince": "2026-01-02T09:00:00Z", "message": "<script>", "hint": "look",
             "connection": {"inCall": 1, "waiting": 0, "suspendedFor": "2s",
                "endpoints": [{"address": "10.0.0.1:443", "state": "Ejected", "lastFailure": "EOF"}]}}]});
        let html = render(&document);
        assert!(
            html.contains("2 webhooks, 1 fail") && !html.contains("<script>"),
            "{html}"
        );
        let failing = html
            .find("<li><b>bad.x.io</b> fails since 2026-01-02T09:00:00Z: &lt;script&gt;")
            .unwrap();
        assert!(failing < html.find("fine.x.io").unwrap());
        assert!(html.contains("not called for another 2s"), "{html}");
        assert!(
            html.contains("<span class=Ejected>Ejected</span> 10.0.0.1:443 <small>EOF"),
            "{html}"
        );
    }
}

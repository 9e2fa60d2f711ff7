//! The HTML page: unavailable backends first, then a table of all backends. Entry point: [`render`].

use crate::apimachinery::value::Value;
use crate::server::page::{STYLE, coloured};
use crate::server::respond::html_escape;
use std::fmt::Write;

/// Renders the page. Results of `write!` are ignored, since writing to a `String` cannot fail.
pub(super) fn render(document: &Value) -> String {
    // Every text is escaped below: names, messages and errors come from authors of APIServices and from
    // backends.
    let items = document.get("items").items();
    let (remote, local): (Vec<&Value>, Vec<&Value>) = items.iter().partition(|v| v.str_at(&["service"]) != "Local");
    let (up, down): (Vec<&Value>, Vec<&Value>) = remote.iter().partition(|v| v.str_at(&["available"]) == "True");
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <meta http-equiv=refresh content=5><title>{}Aggregator</title><style>{STYLE}</style>{}\
         <p><small>{} · looks again every 5 s · the same as JSON: ?format=json, <code>torana status</code></small></p>",
        // The sign in the title is visible in a background tab.
        if down.is_empty() { "" } else { "\u{26a0} " },
        headline(remote.len(), down.len()),
        html_escape(document.str_at(&["time"])),
    );
    if !down.is_empty() {
        out.push_str("<ul>");
        for v in &down {
            let _ = write!(
                out,
                "<li><b>{}</b> {} {} since {}: {}<br><small>{}</small>",
                html_escape(v.str_at(&["name"])),
                coloured(v.str_at(&["available"])),
                html_escape(v.str_at(&["reason"])),
                html_escape(since(v)),
                html_escape(v.str_at(&["message"])),
                html_escape(v.str_at(&["hint"])),
            );
        }
        out.push_str("</ul>");
    }
    if !remote.is_empty() {
        out.push_str(
            "<table><tr><th>APIService<th>Verdict<th>Requests<th>Latency<br><small>50 / 90 / 99 of 100</small>\
             <th>Endpoints<th>Documents</tr>",
        );
        down.iter().chain(&up).for_each(|v| row(&mut out, v));
        out.push_str("</table>");
    }
    let names: Vec<String> = local.iter().map(|v| html_escape(v.str_at(&["name"]))).collect();
    let _ = write!(out, "<p><small>Served here: {}</small></p></html>", names.join(", "));
    out
}

fn headline(all: usize, down: usize) -> String {
    match (all, down) {
        (0, _) => "<h1>No APIService has a backend</h1>".to_owned(),
        (all, 0) => format!("<h1 class=good>All {all} backends are available</h1>"),
        (all, 1) => format!("<h1 class=bad>1 of {all} backends is unavailable</h1>"),
        (all, down) => format!("<h1 class=bad>{down} of {all} backends are unavailable</h1>"),
    }
}

fn since(v: &Value) -> &str {
    match v.str_at(&["since"]) {
        "" => "the start",
        since => since,
    }
}

fn row(out: &mut String, v: &Value) {
    let _ = write!(
        out,
        "<tr><td><b>{}</b><br><small>{}</small><td>{} {}<br><small>since {}</small><br>{}<td>{}<td>{}<td>{}",
        html_escape(v.str_at(&["name"])),
        html_escape(v.str_at(&["service"])),
        coloured(v.str_at(&["available"])),
        html_escape(v.str_at(&["reason"])),
        html_escape(since(v)),
        html_escape(v.str_at(&["configuration"])),
        counts(v.get("requests")),
        latency(v.get("requests")),
        match v.str_at(&["breaker"]) {
            "" => "–".to_owned(),
            state => format!("breaker {}<br>", coloured(state)),
        },
    );
    for e in v.get("endpoints").items() {
        endpoint(out, e);
    }
    out.push_str("<td>");
    for (key, name) in [
        ("discovery", "discovery"),
        ("openapiV2", "OpenAPI v2"),
        ("openapiV3", "OpenAPI v3"),
    ] {
        let d = v.at(&["documents", key]);
        let _ = write!(
            out,
            "{name}: {} <small>{} {}</small><br>",
            coloured(d.str_at(&["state"])),
            match d.get("keptOverRestart").as_bool() {
                Some(true) => "from before the last restart".to_owned(),
                _ => html_escape(d.str_at(&["age"])),
            },
            html_escape(d.str_at(&["error"])),
        );
    }
    out.push_str("</tr>");
}

fn endpoint(out: &mut String, e: &Value) {
    let n = |key: &str| e.get(key).as_i64().unwrap_or(0);
    let balancing = match (e.get("weight").as_i64(), n("failover")) {
        (Some(weight), 0) => format!(", weight {weight}"),
        (Some(weight), tier) => format!(", failover {tier}, weight {weight}"),
        (None, _) => String::new(),
    };
    let left = match e.str_at(&["ejectedFor"]) {
        "" => String::new(),
        left => format!(" for another {}", html_escape(left)),
    };
    let _ = write!(
        out,
        "{} {}{left} <small>{} under way, {} connections{balancing} {}</small><br>",
        coloured(e.str_at(&["state"])),
        html_escape(e.str_at(&["address"])),
        n("underWay"),
        n("http2Connections") + n("idleHTTP1Connections"),
        html_escape(e.str_at(&["lastFailure"])),
    );
}

fn counts(r: &Value) -> String {
    let n = |key: &str| r.get(key).as_i64().unwrap_or(0);
    let limit = r.get("limit").as_i64().map_or(String::new(), |l| format!(" of {l}"));
    let last = match r.at(&["lastFailure", "error"]).as_str() {
        Some(why) => format!(
            "<br><small>last failure {}: {}</small>",
            html_escape(r.str_at(&["lastFailure", "time"])),
            html_escape(why)
        ),
        None => String::new(),
    };
    format!(
        "{}{limit} under way, {} watches<br>{} answered, {} with 5xx, {} unreachable, {} never answered, {} turned away{last}",
        n("inFlight"),
        n("watching"),
        n("answered"),
        n("serverErrors"),
        n("unreachable"),
        n("unanswered"),
        n("turnedAway")
    )
}

fn latency(r: &Value) -> String {
    let l = r.get("latency");
    match l.str_at(&["p50"]) {
        "" => "–".to_owned(),
        p50 => format!("{p50} / {} / {}", l.str_at(&["p90"]), l.str_at(&["p99"])),
    }
}

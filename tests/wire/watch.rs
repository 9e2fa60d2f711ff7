//! A watch that a case opens, and the events it has delivered.

use crate::case::Step;
use crate::http::{Client, Headers, Request, Response, Streaming};
use crate::{paths, protobuf};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(crate) struct Watch(Streaming);

impl Watch {
    pub(crate) fn open(client: &Client, request: &Request) -> std::io::Result<Self> {
        client.watch(request).map(Self)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.head.status == 200
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended
    }

    pub(crate) fn headers(&self) -> &Headers {
        &self.0.head.headers
    }

    /// The whole response of a watch that was refused.
    pub(crate) fn whole(&mut self) -> Response {
        self.0.read(Instant::now() + Duration::from_secs(10), |_| false);
        self.0.head.clone()
    }

    /// The events so far. Waits for the expected number of them, and then a little for one too many.
    pub(crate) fn collect(&mut self, step: &Step, wait: Duration, grace: Duration) -> Vec<Value> {
        let is_protobuf = self.headers().iter().any(|(_, v)| v.contains("protobuf"));
        let events = |body: &[u8]| {
            let all = if is_protobuf { frames(body) } else { lines(body) };
            let wanted = all.into_iter().filter(|e| is_wanted(e, step));
            wanted.collect::<Vec<Value>>()
        };
        let until = Instant::now() + wait;
        self.0.read(until, |body| events(body).len() >= step.count);
        // One more event, or the end, which may come late.
        let more = if step.ended { wait } else { grace };
        self.0.read(Instant::now() + more, |_| false);
        let mut found = events(&self.0.head.body);
        for bookmark in found.iter_mut().filter(|e| e["type"] == "BOOKMARK") {
            bookmark["object"]["metadata"]["resourceVersion"] = json!("<rv>");
        }
        found
    }
}

/// Bookmarks come whenever the server likes, except the one that ends the initial state.
fn is_wanted(event: &Value, step: &Step) -> bool {
    let ends_initial = || paths::get(event, "object.metadata.annotations[\"k8s.io/initial-events-end\"]").is_some();
    event["type"] != "BOOKMARK" || step.bookmarks || ends_initial()
}

fn lines(body: &[u8]) -> Vec<Value> {
    let complete = body.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let lines = body[..complete]
        .split(|b| *b == b'\n')
        .filter(|l| !l.trim_ascii().is_empty());
    let decoded = lines.map(|l| {
        let text = || json!({"undecodable": String::from_utf8_lossy(l)});
        serde_json::from_slice(l).unwrap_or_else(|_| text())
    });
    decoded.collect()
}

/// Events in protobuf: a length of four bytes before each. Only type and envelope are compared.
fn frames(mut body: &[u8]) -> Vec<Value> {
    let mut out = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((frame, after)) = rest.split_at_checked(length) else {
            break;
        };
        body = after;
        out.push(match protobuf::enveloped(frame) {
            Ok(event) if event.get("magic").is_some() => {
                let of_type = paths::text(&event, "object.1[0]");
                json!({"type": of_type, "envelope": event["kind"]})
            }
            _ => json!({"raw": protobuf::bytes(frame)}),
        });
    }
    out
}

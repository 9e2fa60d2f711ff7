//! Decides by when a request must be answered: `?timeout=`, at most the server's own limit. Long-running requests have
//! no deadline.

use super::audit::{self, Seen};
use crate::apimachinery::status::Status;
use crate::audit::Audit;
use crate::request::info::first_value;
use crate::request::{Answering, Deadline, Handler, ReceivedAt, Request};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use std::sync::Arc;
use std::time::Duration;

struct RequestDeadline {
    inner: Arc<dyn Handler>,
    longest: Duration,
    audit: Option<Arc<Audit>>,
}

/// The filter; `longest` is `--request-timeout`. A refusal is told to `audit`.
pub fn filter(longest: Duration, audit: Option<Arc<Audit>>) -> Filter {
    Filter {
        name: "deadline",
        needs: &[Fact::AuditId, Fact::RequestInfo, Fact::ReceivedAt],
        leaves: &[Fact::Deadline],
        wrap: Box::new(move |inner| Arc::new(RequestDeadline { inner, longest, audit })),
    }
}

impl Handler for RequestDeadline {
    fn handle<'a, 't>(&'a self, mut req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        if !super::info(&req).is_long_running() {
            let wanted = match req.uri().query().and_then(|q| first_value(q, "timeout")) {
                None => None,
                Some(text) if text.is_empty() => None,
                Some(text) => match parse_duration(&text) {
                    Ok(d) => d,
                    Err(error) => {
                        let text = format!("invalid timeout specified in the request URL - {error}");
                        let status = Status::bad_request(text);
                        let refusal = respond::status(&status, req.headers());
                        let Some(audit) = self.audit.clone() else {
                            return Box::pin(std::future::ready(refusal));
                        };
                        let seen = Seen::of(&req, super::info(&req));
                        return Box::pin(async move {
                            audit::refused(&audit, seen, audit::refusal(&status)).await;
                            refusal
                        });
                    }
                },
            };
            let timeout = wanted.filter(|d| *d <= self.longest).unwrap_or(self.longest);
            if let Some(received) = req.extensions().get::<ReceivedAt>().copied() {
                req.extensions_mut().insert(Deadline(received.0 + timeout));
            }
        }
        self.inner.handle(req)
    }
}

/// Go's `time.ParseDuration`. `None`: zero or negative.
///
/// # Errors
/// Go's words.
pub fn parse_duration(text: &str) -> Result<Option<Duration>, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(None);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: f64 = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: f64 = match number {
            "" | "." => return Err(invalid()),
            n => n.parse().map_err(|_| invalid())?,
        };
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let factor = match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        };
        nanos += number * factor;
        if nanos > i64::MAX as f64 {
            return Err(invalid());
        }
        rest = tail;
    }
    Ok((!negative && nanos >= 1.0).then(|| Duration::from_nanos(nanos as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let s = Duration::from_secs;
        for (text, want) in [
            ("5s", Ok(Some(s(5)))),
            ("1h30m", Ok(Some(s(5400)))),
            ("1.5s", Ok(Some(Duration::from_millis(1500)))),
            ("100ms", Ok(Some(Duration::from_millis(100)))),
            ("0", Ok(None)),
            ("0s", Ok(None)),
            ("-3s", Ok(None)),
            ("zz", Err("time: invalid duration \"zz\"")),
            ("abc", Err("time: invalid duration \"abc\"")),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5x", Err("time: unknown unit \"x\" in duration \"5x\"")),
            ("", Err("time: invalid duration \"\"")),
            ("1.2.3s", Err("time: invalid duration \"1.2.3s\"")),
            ("9999999999h", Err("time: invalid duration \"9999999999h\"")),
        ] {
            assert_eq!(parse_duration(text), want.map_err(str::to_owned), "{text}");
        }
    }
}

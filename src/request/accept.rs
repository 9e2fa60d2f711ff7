//! The `Accept` header: its clauses in order of preference ([`clauses`]).

use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};

/// Clauses of a line that are read, and parameters of a clause. A line can hold a quarter of a million, and is read for
/// every response, also for the refusal of a request.
// Far above what clients send: kubectl's longest line has three clauses.
const MAX_CLAUSES: usize = 256;
const MAX_PARAMS: usize = 32;

/// A clause of an Accept header.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause<'a> {
    /// The type: `application`, or `*`.
    pub main: &'a str,
    /// The subtype: `json`, or `*`.
    pub sub: &'a str,
    /// The parameters except `q`.
    pub params: Vec<(&'a str, &'a str)>,
    /// From 0 to 1: the parameter `q`.
    quality: f64,
}

impl<'a> Clause<'a> {
    /// The value of a parameter; an empty value counts as absent.
    pub fn param(&self, name: &str) -> Option<&'a str> {
        let found = self.params.iter().find(|(k, _)| *k == name).map(|(_, v)| *v);
        found.filter(|v| !v.is_empty())
    }

    /// True if this clause matches `media_type`.
    pub fn takes(&self, media_type: &str) -> bool {
        let (main, sub) = media_type.split_once('/').unwrap_or((media_type, ""));
        (self.main == "*" || self.main == main) && (self.sub == "*" || self.sub == sub)
    }
}

/// The first `Accept` line; like upstream, further lines are ignored.
pub(crate) fn accept_line(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("")
}

/// The clauses of an Accept line in order of preference; those beyond the first 256 are ignored. An empty line accepts
/// anything.
pub fn clauses(line: &str) -> Vec<Clause<'_>> {
    let line = if line.is_empty() { "*/*" } else { line };
    let mut out: Vec<Clause<'_>> = Vec::new();
    for text in line.split(',').take(MAX_CLAUSES) {
        let mut parts = text.split(';').map(|p| p.trim_matches(' '));
        let range = parts.next().unwrap_or("");
        let (main, sub) = match range.split_once('/') {
            Some((main, sub)) if !sub.contains('/') => (main, sub),
            None if range == "*" => ("*", "*"),
            // A malformed clause is skipped, as by upstream's `goautoneg`; the others still count.
            _ => continue,
        };
        let mut clause = Clause {
            main,
            sub,
            params: Vec::new(),
            quality: 1.0,
        };
        for param in parts.take(MAX_PARAMS) {
            let Some((k, v)) = param.split_once('=').filter(|(_, v)| !v.contains('=')) else {
                continue;
            };
            let (k, v) = (k.trim_matches(' '), v.trim_matches(' '));
            match k {
                // Not filtered out if it is zero: upstream only sorts by it.
                "q" => clause.quality = v.parse().unwrap_or(0.0),
                _ => clause.params.push((k, v)),
            }
        }
        out.push(clause);
    }
    // The sort is stable: clauses of equal rank keep the order of the header.
    out.sort_by(|a, b| {
        // A specific type precedes a wildcard of the same quality.
        let rank = |c: &Clause<'_>| (c.main == "*", c.sub == "*");
        b.quality.total_cmp(&a.quality).then_with(|| rank(a).cmp(&rank(b)))
    });
    out
}

/// True for user agents that people read, for which JSON is indented, as upstream.
pub(crate) fn is_browser(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).map_or(&b""[..], |v| v.as_bytes());
    [&b"curl"[..], b"Wget", b"Mozilla/5.0"]
        .iter()
        .any(|start| agent.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_up_to_its_limits() {
        assert_eq!(clauses(&"a/b;q=0.1,".repeat(100_000)).len(), MAX_CLAUSES);
        let many = format!("a/b{}", ";x=1".repeat(100_000));
        assert_eq!(clauses(&many)[0].params.len(), MAX_PARAMS);
    }
}

//! Turns the warnings recorded by handlers into `Warning: 299` headers (upstream's
//! `k8s.io/apiserver/pkg/endpoints/filters/warning.go`).

use super::amend::amended;
use crate::request::{Request, RequestContext, Response, Warnings};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use http::header::{HeaderValue, WARNING};

const TOTAL: usize = Warnings::TOTAL;
const CUT: usize = Warnings::CUT;

/// The filter; wraps the inner one.
pub(crate) struct Recorder<F>(pub F);

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[],
    sets: &[ContextField::Warnings],
};

impl<F: Filter> Filter for Recorder<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let warnings = Warnings::default();
        RequestContext::of_mut(req).warnings = Some(warnings.clone());
        amended(self.0.handle(req), move |response| {
            for header in headers(warnings.take()) {
                response.headers_mut().append(WARNING, header);
            }
        })
    }
}

fn headers(texts: Vec<String>) -> Vec<HeaderValue> {
    let texts: Vec<String> = texts
        .into_iter()
        // A control character is invalid in a header, or would even split it.
        .filter(|t| !t.is_empty() && !t.chars().any(char::is_control))
        .collect();
    let length: usize = texts.iter().map(|t| t.chars().count()).sum();
    // As upstream: if the total is too long, each warning is truncated first; then warnings are sent until the total
    // is used up.
    let (mut left, cut) = (TOTAL, length > TOTAL);
    let mut out = Vec::with_capacity(texts.len());
    for text in texts {
        let text: String = if cut { text.chars().take(CUT).collect() } else { text };
        let Some(rest) = left.checked_sub(text.chars().count()) else {
            break;
        };
        left = rest;
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        out.extend(HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_quoted_and_those_with_control_characters_dropped() {
        let all = ["a \"b\" \\c", "with\nnewline", "ünïcode"].map(str::to_owned).to_vec();
        let got = headers(all);
        let want = ["299 - \"a \\\"b\\\" \\\\c\"", "299 - \"ünïcode\""].map(|s| s.as_bytes().to_vec());
        assert_eq!(got.iter().map(|h| h.as_bytes().to_vec()).collect::<Vec<_>>(), want);
    }

    #[test]
    fn long_warnings_are_truncated() {
        let got = headers((0..20).map(|i| format!("{i:02}{}", "x".repeat(998))).collect());
        assert_eq!(got.len(), 16);
        assert!(got.iter().all(|h| h.len() == CUT + "299 - \"\"".len()));
    }
}

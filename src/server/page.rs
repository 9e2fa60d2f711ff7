//! Pages for operators: a document as JSON for programs, and as HTML for browsers. Entry point: [`answer`].

use super::respond::{self, html_escape};
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::request::{Request, Response};
use http::{HeaderValue, StatusCode, header};

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Allows only this style sheet, whatever markup an object's message may contain.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'sha256-g84Bkf2tEoP7lGnxz73ovyPWEM7DDqOj/I6N2hHN4jY='; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The style sheet of the pages.
pub(crate) const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:1.5em auto;max-width:82em;padding:0 1em;\
color:#111;background:#fff}h1{font-size:1.3em;margin:.2em 0}h1.bad{color:#b00}h1.good{color:#060}h2{font-size:1.05em}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35em 1em .35em 0;border-bottom:1px solid #ddd;\
vertical-align:top}.True,.Good,.Current,.Closed{color:#060}.False,.Ejected,.Missing,.Open{color:#b00;font-weight:bold}\
.Unknown,.Failing,.Probation,.Stale,.Partial,.HalfOpen{color:#a60}small{color:#555}li{margin:.4em 0}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}th,td{border-color:#333}small{color:#999}\
h1.good,.True,.Good,.Current,.Closed{color:#6c6}h1.bad,.False,.Ejected,.Missing,.Open{color:#f77}\
.Unknown,.Failing,.Probation,.Stale,.Partial,.HalfOpen{color:#fb4}}";

/// Words with a class in the style sheet.
const COLOURED: [&str; 13] = [
    "True",
    "False",
    "Good",
    "Ejected",
    "Failing",
    "Probation",
    "Current",
    "Stale",
    "Missing",
    "Closed",
    "Open",
    "HalfOpen",
    "Partial",
];

/// The document: rendered as HTML by `?format=html` or the `Accept` header of browsers, as JSON otherwise.
pub(crate) fn answer(req: &Request, document: &Value, render: impl FnOnce(&Value) -> String) -> Response {
    let html = wants_html(req);
    let mut answer = match html {
        true => respond::bytes(StatusCode::OK, HTML, render(document).into_bytes()),
        false => respond::bytes(StatusCode::OK, respond::JSON, json::to_vec(document)),
    };
    let headers = answer.headers_mut();
    // The document quotes objects of other users; a browser must not interpret it as another type.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, respond::NOSNIFF);
    if html {
        headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    }
    answer
}

fn wants_html(req: &Request) -> bool {
    match req.uri().query() {
        // An explicit format wins over `Accept`, so that links in a browser can lead to the JSON.
        Some(q) if q.split('&').any(|p| p == "format=json") => false,
        Some(q) if q.split('&').any(|p| p == "format=html") => true,
        _ => {
            let accept = req.headers().get(header::ACCEPT).and_then(|a| a.to_str().ok());
            accept.is_some_and(|a| a.contains("text/html"))
        }
    }
}

/// A word in the colour of its class.
pub(crate) fn coloured(word: &str) -> String {
    // Only known words become a class: the value is not quoted in the markup.
    let class = COLOURED.into_iter().find(|k| *k == word).unwrap_or("Unknown");
    format!("<span class={class}>{}</span>", html_escape(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_exactly_the_style_sheet() {
        use base64::Engine as _;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, STYLE.as_bytes());
        let digest = base64::engine::general_purpose::STANDARD.encode(digest);
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        assert_eq!(POLICY.to_str().unwrap(), policy);
    }
}

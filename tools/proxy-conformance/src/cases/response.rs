//! Treatment of responses.

use crate::backend::Framing;
use crate::case::Expect::{Answer, Body, Header, HeaderHas, NoHeader, Status};
use crate::case::{Case, case};
use crate::environment::Need;

const REFUSED: &str = "the backend attempted to redirect this request, which is not permitted";

/// To a browser all backends share the gateway's origin, so headers that affect a whole origin must not pass.
fn origin() -> Vec<Case> {
    vec![
        case("3.4.10a", "a backend cannot set cookies for the gateway's origin")
            .beyond()
            .answer_headers(&[("Set-Cookie", "a=1"), ("X-A", "1")])
            .expect([NoHeader("set-cookie"), Header("x-a", &["1"])]),
        case(
            "3.4.10b",
            "a backend cannot request credentials for the gateway's origin",
        )
        .beyond()
        .answers(401)
        .answer_headers(&[("WWW-Authenticate", "Basic realm=x")])
        .expect([Status(401), NoHeader("www-authenticate")]),
        case(
            "3.4.10c",
            "a backend cannot set transport security for the gateway's origin",
        )
        .beyond()
        .answer_headers(&[
            ("Strict-Transport-Security", "max-age=9"),
            ("Alt-Svc", "h3=\":443\""),
            ("Clear-Site-Data", "\"*\""),
        ])
        .expect([
            NoHeader("strict-transport-security"),
            NoHeader("alt-svc"),
            NoHeader("clear-site-data"),
        ]),
        case("3.4.10d", "a page is sandboxed, in addition to its own policy")
            .beyond()
            .answer_headers(&[
                ("Content-Type", "image/svg+xml"),
                ("Content-Security-Policy", "default-src 'self'"),
            ])
            .answer_body("<svg/>")
            .expect([
                HeaderHas("content-security-policy", "default-src 'self'"),
                HeaderHas("content-security-policy", "sandbox"),
                HeaderHas("x-content-type-options", "nosniff"),
            ]),
        case("3.4.10e", "JSON is not sandboxed")
            .answer_headers(&[("Content-Type", "application/json")])
            .expect([NoHeader("content-security-policy")]),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("3.4.1l", "response headers are forwarded, repeated ones in order")
            .answer_headers(&[("X-B", "2"), ("X-C", "a=1"), ("X-A", "1"), ("X-C", "b=2")])
            .expect([
                Header("x-c", &["a=1", "b=2"]),
                Header("x-a", &["1"]),
                Header("x-b", &["2"]),
            ]),
        case("3.4.1m", "hop-by-hop response headers are not forwarded")
            .on(&["h1"])
            .answer_headers(&[
                ("Connection", "X-Mine"),
                ("X-Mine", "1"),
                ("Keep-Alive", "timeout=5"),
                ("Proxy-Authenticate", "Basic"),
                ("Upgrade", "h2c"),
                ("X-Other", "1"),
            ])
            .expect([
                NoHeader("x-mine"),
                NoHeader("keep-alive"),
                NoHeader("proxy-authenticate"),
                NoHeader("upgrade"),
                Header("x-other", &["1"]),
            ]),
        case("3.4.1n", "a response without Content-Type gets none")
            .answer_headers(&[])
            .expect([Body("{}")])
            .expect([Answer("the type is not JSON", |response| {
                !response.values("content-type").contains(&"application/json")
            })]),
        case("3.4.1o", "the backend's Date is forwarded, and there is only one")
            .answer_header("Date", "Sat, 01 Jan 2000 00:00:00 GMT")
            .expect([Header("date", &["Sat, 01 Jan 2000 00:00:00 GMT"])]),
        case("3.4.1r", "all warnings of a backend are forwarded")
            .answer_headers(&[("Warning", "299 - \"old\""), ("Warning", "299 - \"older\"")])
            .expect([Header("warning", &["299 - \"old\"", "299 - \"older\""])]),
        case("3.4.2a", "the backend's Cache-Control is added to the gateway's")
            .answer_header("Cache-Control", "max-age=7")
            .upstream()
            .expect([Header("cache-control", &["no-cache, private", "max-age=7"])]),
        case("3.4.2b", "the backend's Audit-Id is added to the gateway's")
            .with("Audit-ID", "one")
            .answer_header("Audit-Id", "two")
            .upstream()
            .expect([Header("audit-id", &["one", "two"])]),
        case("3.4.2c", "the backend's priority level is added to the gateway's")
            .answer_header("X-Kubernetes-PF-FlowSchema-UID", "theirs")
            .upstream()
            .expect([
                HeaderHas("x-kubernetes-pf-flowschema-uid", "theirs"),
                Answer("the gateway's own is there too", |response| {
                    response.values("x-kubernetes-pf-flowschema-uid").len() == 2
                }),
            ]),
        case("3.4.3", "a backend cannot grant cross-origin access")
            .answer_headers(&[
                ("Access-Control-Allow-Origin", "*"),
                ("Access-Control-Allow-Credentials", "true"),
                ("Access-Control-Allow-Headers", "a"),
                ("Access-Control-Allow-Methods", "GET"),
                ("Access-Control-Max-Age", "1"),
            ])
            .expect([
                NoHeader("access-control-allow-origin"),
                NoHeader("access-control-allow-credentials"),
                NoHeader("access-control-allow-headers"),
                NoHeader("access-control-allow-methods"),
                Header("access-control-max-age", &["1"]),
            ]),
        case(
            "3.4.5a",
            "links with absolute paths in an HTML page are rewritten to the backend",
        )
        .answer_headers(&[("Content-Type", "text/html; charset=utf-8")])
        .answer_body("<html><body><a href=\"/x\">x</a></body></html>")
        .upstream()
        .expect([Answer("the link is rewritten", |response| {
            response.text().contains("href=\"https://")
        })]),
        case("3.4.5b", "relative and foreign links in an HTML page are unchanged")
            .answer_headers(&[("Content-Type", "text/html")])
            .answer_body("<a href=\"x\"></a><a href=\"https://else.example/\"></a>")
            .expect([Answer("the links are there", |response| {
                response.text().contains("href=\"x\"") && response.text().contains("href=\"https://else.example/\"")
            })]),
        case("3.4.5c", "a body that only resembles HTML is unchanged")
            .answer_headers(&[("Content-Type", "text/plain")])
            .answer_body("<a href=\"/x\">")
            .expect([Body("<a href=\"/x\">")]),
        case(
            "3.4.6a",
            "a redirect is refused with this message, without a newline and without the backend's headers",
        )
        .needs(Need::RedirectsRefused)
        .answers(302)
        .answer_headers(&[("Location", "https://evil.example/"), ("X-Mine", "1")])
        .answer_parts([])
        .expect([Status(502), Body(REFUSED), NoHeader("location"), NoHeader("x-mine")]),
        case("3.4.6b", "a redirect without a Location is forwarded")
            .answers(302)
            .answer_headers(&[])
            .answer_body("nowhere")
            .expect([Status(302), Body("nowhere")]),
        case("3.4.6c", "a redirect with an empty Location is forwarded")
            .answers(302)
            .answer_headers(&[("Location", "")])
            .answer_parts([])
            .expect([Status(302)]),
        case("3.4.6d", "a redirect to the backend itself is refused too")
            .needs(Need::RedirectsRefused)
            .answers(301)
            .answer_headers(&[("Location", "https://{host}/x")])
            .answer_parts([])
            .expect([Status(502), Body(REFUSED)]),
        case("3.4.6e", "304 with a Location is refused like any other 3xx")
            .needs(Need::RedirectsRefused)
            .answers(304)
            .answer_headers(&[("Location", "/x")])
            .answer_parts([])
            .framed(Framing::Bodiless)
            .upstream()
            .expect([Status(502)]),
        case(
            "3.4.6f",
            "a Location with a path in a response other than 3xx is rewritten to the backend",
        )
        .answers(201)
        .answer_headers(&[("Location", "/x")])
        .upstream()
        .expect([Status(201), Header("location", &["https://{host}/x"])]),
        case(
            "3.4.6l",
            "a Location that leads elsewhere in a response other than 3xx is unchanged",
        )
        .answers(201)
        .answer_headers(&[("Location", "https://else.example/x")])
        .expect([Status(201), Header("location", &["https://else.example/x"])]),
        case("3.4.9a", "429 is forwarded with its Retry-After")
            .answers(429)
            .answer_headers(&[("Retry-After", "7"), ("Content-Type", "text/plain")])
            .answer_body("later")
            .expect([Status(429), Header("retry-after", &["7"]), Body("later")]),
        case("3.4.9b", "401 is forwarded").answers(401).expect([Status(401)]),
    ];
    cases.extend(origin());
    for (id, status) in [
        ("3.4.9c", 299),
        ("3.4.9d", 400),
        ("3.4.9e", 404),
        ("3.4.9f", 409),
        ("3.4.9g", 418),
        ("3.4.9h", 500),
        ("3.4.9i", 503),
        ("3.4.9j", 599),
    ] {
        let case = case(id, "a status passes with its body").answers(status);
        cases.push(case.answer_body("said so").expect([Status(status), Body("said so")]));
    }
    for (id, status) in [
        ("3.4.6g", 300),
        ("3.4.6h", 301),
        ("3.4.6i", 303),
        ("3.4.6j", 307),
        ("3.4.6k", 308),
    ] {
        let case = case(id, "every kind of redirect is refused").needs(Need::RedirectsRefused);
        let case = case.answers(status);
        let case = case.answer_headers(&[("Location", "/elsewhere")]).answer_parts([]);
        cases.push(case.expect([Status(502), Body(REFUSED)]));
    }
    cases.extend(passed_redirects());
    cases
}

/// For gateways configured to pass redirects on. They are never followed: each case reaches the backend once.
fn passed_redirects() -> impl Iterator<Item = Case> {
    let own = [
        ("3.4.6m", 302, "/x?a=1", "https://{host}/x?a=1"),
        ("3.4.6n", 307, "https://{host}/x", "https://{host}/x"),
    ]
    .map(|(id, status, said, read)| (id, "a redirect to the backend itself leads there", status, said, read));
    let others = [
        ("3.4.6o", 301, "https://evil.example/x"),
        ("3.4.6p", 303, "http://evil.example:8080/"),
        ("3.4.6q", 308, "x/y"),
        ("3.4.6r", 302, "../y?b=2"),
    ]
    .map(|(id, status, said)| {
        (
            id,
            "one that leads elsewhere, or is relative, is left alone",
            status,
            said,
            said,
        )
    });
    own.into_iter().chain(others).map(|(id, claim, status, said, read)| {
        case(id, claim)
            .needs(Need::RedirectsPassed)
            .answers(status)
            .answer_headers(&[("Location", said), ("X-Mine", "1")])
            .answer_body("over there")
            .expect([
                Status(status),
                HeaderHas("location", read),
                Header("x-mine", &["1"]),
                Body("over there"),
            ])
    })
}

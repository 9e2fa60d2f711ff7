//! Ambiguously framed requests: none of them may bring an unauthorized request to a backend.

use crate::backend::{CASE_HEADER, Event, ReceivedRequest, Script};
use crate::case::Expect::{Authority, NeverTarget, Reached, ReachedAtMost, SentBody, Status, StatusIn, Target};
use crate::case::{Case, ScenarioFuture, case, scenario};
use crate::client::Http;
use crate::client::frames::{self, Frames};
use crate::environment::{LIMITED, NAMESPACE, Scene};

/// The request to be smuggled, after the end of another one.
const INNER: &str = "POST {base}/smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

pub(super) fn cases() -> Vec<Case> {
    [lengths(), chunks(), lines(), targets(), sizes(), paths()].concat()
}

/// A POST with these headers, with the inner request as its body or after it.
fn inner(id: &'static str, claim: &'static str, headers: &str, before: &str) -> Case {
    let text =
        format!("POST {{base}}/things HTTP/1.1\r\nHost: {{gateway}}\r\n{{auth}}{{case}}{headers}\r\n{before}{INNER}");
    case(id, claim).raw(&text).on(&["f1", "f2"])
}

fn lengths() -> Vec<Case> {
    let refused = "a length that is not one number is refused";
    let mut cases = vec![
        inner("S.1a", "two different Content-Lengths are refused", "Content-Length: 0\r\nContent-Length: 67\r\n", "")
            .expect([Status(400), Reached(0)]),
        inner("S.1b", "a Content-Length before Transfer-Encoding smuggles nothing", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")
            .expect([ReachedAtMost(1), NeverTarget("{base}/smuggled")]),
        inner("S.1c", "a Content-Length after Transfer-Encoding smuggles nothing", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n")
            .expect([ReachedAtMost(1), NeverTarget("{base}/smuggled")]),
        case("S.1d", "the same Content-Length twice counts once, or is refused")
            .raw("POST {base}/things HTTP/1.1\r\nHost: {gateway}\r\n{auth}{case}Content-Length: 2\r\nContent-Length: 2\r\n\r\nok")
            .on(&["f1", "f2"])
            .expect([StatusIn(&[200, 400]), ReachedAtMost(1)]),
    ];
    for (id, value) in [
        ("S.1e", "+0"),
        ("S.1f", "-0"),
        ("S.1g", "0x0"),
        ("S.1h", "0 0"),
        ("S.1i", "0,67"),
        ("S.1j", "99999999999999999999999"),
        ("S.1k", "\""),
        ("S.1l", "0\u{b}"),
    ] {
        let case = inner(id, refused, &format!("Content-Length: {value}\r\n"), "");
        cases.push(case.expect([Status(400), Reached(0)]));
    }
    for (id, claim, line) in [
        (
            "S.2a",
            "an unknown transfer encoding is refused",
            "Transfer-Encoding: xchunked",
        ),
        (
            "S.2b",
            "chunked that is not the last transfer encoding is refused",
            "Transfer-Encoding: chunked, identity",
        ),
        (
            "S.2c",
            "a second Transfer-Encoding other than chunked is refused",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        ),
        (
            "S.2d",
            "a space before the colon of Transfer-Encoding is refused",
            "Transfer-Encoding : chunked",
        ),
        (
            "S.2e",
            "a control byte in Transfer-Encoding is refused",
            "Transfer-Encoding: \u{b}chunked",
        ),
        (
            "S.2f",
            "a quoted transfer encoding is refused",
            "Transfer-Encoding: \"chunked\"",
        ),
        (
            "S.2g",
            "a tab after the name Transfer-Encoding is refused",
            "Transfer-Encoding\t: chunked",
        ),
        (
            "S.2h",
            "a folded Transfer-Encoding is refused",
            "Transfer-Encoding:\r\n chunked",
        ),
        (
            "S.2i",
            "a Transfer-Encoding folded behind another header is refused",
            "X-A: b\r\n Transfer-Encoding: chunked",
        ),
    ] {
        let case = inner(id, claim, &format!("{line}\r\nContent-Length: 5\r\n"), "0\r\n\r\n");
        cases.push(case.expect([ReachedAtMost(1), NeverTarget("{base}/smuggled")]));
    }
    cases
}

fn chunks() -> Vec<Case> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let mut cases = vec![
        case("S.3a", "chunk extensions are dropped")
            .raw("POST {base}/things HTTP/1.1\r\nHost: {gateway}\r\n{auth}{case}Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n")
            .on(&["f1", "f2"])
            .expect([Status(200), SentBody(b"ok")]),
        case("S.3b", "chunked is recognised in any case")
            .raw("POST {base}/things HTTP/1.1\r\nHost: {gateway}\r\n{auth}{case}Transfer-Encoding: cHuNKed\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            .on(&["f1", "f2"])
            .expect([Status(200), SentBody(b"ok")]),
        case("S.3c", "HTTP/1.0 does not support chunked")
            .raw("POST {base}/things HTTP/1.0\r\nHost: {gateway}\r\n{auth}{case}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            .on(&["f1", "f2"])
            .expect([ReachedAtMost(1), StatusIn(&[200, 400, 501])]),
        case("S.3l", "a malformed chunk is reported as the client's error")
            .beyond()
            .raw("POST {base}/things HTTP/1.1\r\nHost: {gateway}\r\n{auth}{case}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\nZZ\r\n")
            .on(&["f1", "f2"])
            .expect([Status(400), ReachedAtMost(1)]),
    ];
    for (id, size) in [
        ("S.3d", "0x0"),
        ("S.3e", "+0"),
        ("S.3f", "-1"),
        ("S.3g", "fffffffffffffffff"),
        ("S.3h", "0;\n"),
        ("S.3i", " 0"),
        ("S.3j", "0\u{b}"),
        ("S.3k", ""),
    ] {
        let case = inner(
            id,
            "a size of a chunk that is none smuggles nothing",
            chunked,
            &format!("{size}\r\n\r\n"),
        );
        // The backend may have received a request that breaks off. Bytes after its end count as a new request
        // of the same client.
        cases.push(case.expect([ReachedAtMost(2), crate::case::Expect::NotSpoofed, never_inner_of(size)]));
    }
    cases
}

/// Where a lenient parser finds the end of the body, the rest is an ordinary request of the same client, not
/// a smuggled one.
fn never_inner_of(size: &str) -> crate::case::Expect {
    match size {
        "0;\n" | " 0" => ReachedAtMost(2),
        _ => NeverTarget("{base}/smuggled"),
    }
}

fn lines() -> Vec<Case> {
    let mut cases = Vec::new();
    for (id, claim, headers) in [
        ("S.4a", "a NUL in a value is refused", "X-A: a\0b\r\n"),
        (
            "S.4b",
            "a bare carriage return in a value is refused",
            "X-A: a\rX-Remote-User: spoofed\r\n",
        ),
        ("S.4c", "a space in a name is refused", "X A: b\r\n"),
        ("S.4d", "a line without a colon is refused", "nonsense\r\n"),
        ("S.4e", "an empty name is refused", ": b\r\n"),
        ("S.4f", "two Host headers are refused", "Host: other\r\n"),
        ("S.4g", "a folded first header is refused", " X-A: b\r\n"),
    ] {
        let first = if id == "S.4g" { headers } else { "" };
        let rest = if id == "S.4g" { "" } else { headers };
        let text = format!("GET {{base}}/things HTTP/1.1\r\n{first}Host: {{gateway}}\r\n{{auth}}{{case}}{rest}\r\n");
        let case = case(id, claim).raw(&text).on(&["f1", "f2"]);
        cases.push(case.expect([Status(400), Reached(0)]));
    }
    cases.push(
        case("S.4h", "HTTP/1.1 without a Host is refused")
            .raw("GET {base}/things HTTP/1.1\r\n{auth}{case}\r\n")
            .on(&["f1"])
            .upstream()
            .expect([Status(400), Reached(0)]),
    );
    cases
}

fn targets() -> Vec<Case> {
    let rest = "HTTP/1.1\r\nHost: {gateway}\r\n{auth}{case}\r\n";
    let raw = |id, claim, target: &str| case(id, claim).raw(&format!("GET {target} {rest}")).on(&["f1", "f2"]);
    vec![
        raw(
            "S.5a",
            "only the path of an absolute URL counts, not its authority",
            "https://evil.example{base}/things",
        )
        .expect([Status(200), Target("{base}/things"), Authority("{host}")]),
        raw(
            "S.5b",
            "only the path of an absolute URL with user info counts",
            "https://root@evil.example:1{base}/things",
        )
        .expect([
            StatusIn(&[200, 400]),
            ReachedAtMost(1),
            NeverTarget("https://root@evil.example:1{base}/things"),
        ]),
        raw(
            "S.5c",
            "a target without a slash does not reach the backend",
            "{base}/things".trim_start_matches('/'),
        )
        .expect([
            StatusIn(&[200, 400, 403, 404]),
            ReachedAtMost(1),
            NeverTarget("{base}x"),
        ])
        .upstream(),
        raw(
            "S.5d",
            "an authority as the target does not reach the backend",
            "evil.example:443",
        )
        .expect([StatusIn(&[400, 403, 404]), Reached(0)]),
        raw("S.5e", "an asterisk as the target does not reach the backend", "*")
            .expect([StatusIn(&[400, 403, 404]), Reached(0)]),
        raw(
            "S.5f",
            "a fragment is not part of the path",
            "{base}/things#{base}/smuggled",
        )
        .expect([ReachedAtMost(1), NeverTarget("{base}/things#{base}/smuggled")]),
        raw("S.5g", "a space in the target is refused", "{base}/things HTTP/1.1 x").expect([Status(400), Reached(0)]),
        raw("S.5h", "an invalid escape is refused", "{base}/things/%zz").expect([Status(400), Reached(0)]),
        case("S.5i", "CONNECT does not reach the backend")
            .raw("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n{auth}{case}\r\n")
            .on(&["f1"])
            .expect([StatusIn(&[400, 403, 404, 405]), Reached(0)]),
        raw("S.5j", "a Host with a path has no effect on the path", "{base}/things")
            .expect([Status(200), Target("{base}/things")]),
    ]
}

fn sizes() -> Vec<Case> {
    let many: String = (0..90).map(|i| format!("X-Header-{i}: {i}\r\n")).collect();
    let very_many: String = (0..400).map(|i| format!("X-Header-{i}: {i}\r\n")).collect();
    let with =
        |headers: &str| format!("GET {{base}}/things HTTP/1.1\r\nHost: {{gateway}}\r\n{{auth}}{{case}}{headers}\r\n");
    let long = |n: usize| format!("X-Long: {}\r\n", "x".repeat(n));
    vec![
        case("S.6a", "ninety headers are forwarded")
            .raw(&with(&many))
            .on(&["f1", "f2"])
            .expect([Status(200)]),
        case(
            "S.6b",
            "four hundred headers are forwarded, or refused by the gateway itself",
        )
        .raw(&with(&very_many))
        .on(&["f1", "f2"])
        .expect([StatusIn(&[200, 431]), ReachedAtMost(1)]),
        case("S.6c", "a header of 200 KiB is forwarded")
            .raw(&with(&long(200 << 10)))
            .on(&["f1", "f2"])
            .expect([Status(200)]),
        case("7.2.2", "headers of more than 1 MiB are refused by the gateway itself")
            .raw(&with(&long(3 << 20)))
            .on(&["f1"])
            .expect([Reached(0)]),
        case("S.6d", "a target of 60 KiB is forwarded completely")
            .request("GET", &format!("{{base}}/things?a={}", "x".repeat(60 << 10)))
            .on(&["f1", "f2"])
            .expect([Status(200)]),
        case(
            "S.6e",
            "a target of 200 KiB is forwarded, or refused by the gateway itself",
        )
        .request("GET", &format!("{{base}}/things?a={}", "x".repeat(200 << 10)))
        .http1_only()
        .on(&["f1", "f2"])
        .expect([StatusIn(&[200, 414]), ReachedAtMost(1)]),
    ]
}

fn paths() -> Vec<Case> {
    vec![
        scenario(
            "S.7a",
            "no spelling of a path over HTTP/1.1 gives a limited user more rights",
            paths_over_1,
        )
        .on(&["f1", "f2"])
        .http1_only(),
        scenario(
            "S.7b",
            "no spelling of a path over HTTP/2 gives a limited user more rights",
            paths_over_2,
        )
        .on(&["f1", "f2"])
        .http2_only(),
        scenario(
            "S.7d",
            "no OpenAPI document gives a limited user more rights",
            documents,
        )
        .on(&["own-requests"])
        .http1_only(),
        scenario("S.7c", "no upgrade gives a limited user more rights", paths_of_upgrades)
            .on(&["f1"])
            .http1_only(),
    ]
}

/// A path as an API server interprets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interpreted {
    /// The namespace.
    pub namespace: String,
    /// The resource.
    pub resource: String,
    /// The object's name.
    pub name: String,
    /// The subresource.
    pub subresource: String,
    /// `watch` or `proxy` before the resource.
    pub special: String,
}

/// Parses the path of a resource request, decoded once.
pub fn interpret(target: &str) -> Interpreted {
    let path = target.split('?').next().unwrap_or("");
    let decoded = decoded(path);
    let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
    let mut parts = parts.get(3..).unwrap_or_default();
    let mut out = Interpreted::default();
    if let ["watch" | "proxy", rest @ ..] = parts {
        out.special = parts[0].to_owned();
        parts = rest;
    }
    if let ["namespaces", namespace, rest @ ..] = parts {
        out.namespace = (*namespace).to_owned();
        if !rest.is_empty() && !matches!(rest[0], "status" | "finalize") {
            parts = rest;
        }
    }
    let part = |n: usize| parts.get(n).copied().unwrap_or("").to_owned();
    out.resource = part(0);
    out.name = part(1);
    out.subresource = part(2);
    out
}

fn decoded(path: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = path.bytes();
    while let Some(b) = bytes.next() {
        let hex = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut two = bytes.clone();
        match (hex(two.next()), hex(two.next())) {
            (Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                bytes = two;
            }
            _ => out.push(b),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Spellings that an authorizer and a backend might interpret differently. The user may get
/// `things` of its own namespace.
const TRICKS: &[&str] = &[
    "{own}/things/a",
    "{own}/things/a/../../../other/things/b",
    "{own}/things/%2e%2e/%2e%2e/other/things/b",
    "{own}/things/a%2f..%2f..%2f..%2fother%2fthings%2fb",
    "{own}/things/..%2fsecrets",
    "{own}/things/a%2fsecret",
    "{own}/things/a%252fsecret",
    "{own}/things/a%5c..%5c..%5cother",
    "{own}/things/a\\..\\..\\other",
    "{own}/../other/things/b",
    "{own}/%2e%2e/other/things/b",
    "{own}%2fthings%2fa",
    "{own}%2f..%2fother/things/b",
    "{own}//things/a",
    "{own}/things//a",
    "{own}/things//a/secret",
    "{own}/things/a//secret",
    "{base}//namespaces/proxy-conformance/things/a",
    "{base}/./namespaces/proxy-conformance/things/a",
    "{base}/namespaces//things/a",
    "{base}/namespaces/other/things/b",
    "{base}/namespaces/other%2f..%2fproxy-conformance/things/b",
    "{base}/namespaces/proxy-conformance%00/things/b",
    "{base}/namespaces/proxy-conformance%20/things/b",
    "{base}/watch/namespaces/proxy-conformance/things/a",
    "{base}/proxy/namespaces/proxy-conformance/things/a",
    "{base}/%77atch/namespaces/proxy-conformance/things/a",
    "{base}/Namespaces/proxy-conformance/things/a",
    "{base}/things/a",
    "{base}/secrets/a",
    "{own}/things",
    "{own}/things?watch=1",
    "{own}/things/a?watch=1",
    "{own}/things/a?fieldSelector=metadata.name%3Db",
    "{own}/things?fieldSelector=metadata.name%3Da",
    "{own}/things/a;/secret",
    "{own}/things/a%3b/secret",
    "{own}/things/a%23/secret",
    "{own}/things/a%3f/secret",
    "{own}/things/a%3fb=/secret",
    "{own}/status",
    "{own}/finalize",
    "{own}",
    "{base}",
    "//apis/{group}/v1/namespaces/other/things/b",
    "/apis//{group}/v1/namespaces/other/things/b",
    "/apis/{group}//v1/namespaces/other/things/b",
    "/apis/{group}/v1%2fnamespaces/other/things/b",
    "/apis%2f{group}/v1/namespaces/other/things/b",
    "/./apis/{group}/v1/namespaces/other/things/b",
    "/x/../apis/{group}/v1/namespaces/other/things/b",
    "/api/v1/../../apis/{group}/v1/namespaces/other/things/b",
    "/version/../apis/{group}/v1/namespaces/other/things/b",
    "/healthz/..%2fapis/{group}/v1/namespaces/other/things/b",
    "/APIS/{group}/v1/namespaces/other/things/b",
];

/// # Errors
/// If a request reached the backend that its user is not allowed to make.
fn allowed(scene: &Scene<'_>, trick: &str, seen: &ReceivedRequest) -> Result<(), String> {
    crate::case::not_spoofed(seen)?;
    if seen.values("x-remote-user") != [LIMITED] {
        return Err(format!(
            "{trick} reached the backend as {:?}",
            seen.values("x-remote-user")
        ));
    }
    let base = scene.fill("{base}/");
    // Everybody may read discovery.
    if seen.method == "GET" && (seen.target == base || Some(seen.target.as_str()) == base.strip_suffix('/')) {
        return Ok(());
    }
    let is = interpret(&seen.target);
    let may = seen.method == "GET"
        && seen.target.starts_with(&base)
        && (is.namespace.as_str(), is.resource.as_str()) == (NAMESPACE, "things")
        && !is.name.is_empty()
        && is.subresource.is_empty()
        && is.special.is_empty();
    if may {
        Ok(())
    } else {
        Err(format!(
            "{trick} reached the backend as {} {}: {is:?}",
            seen.method, seen.target
        ))
    }
}

fn spelled(scene: &Scene<'_>, trick: &str) -> String {
    let own = format!("{{base}}/namespaces/{NAMESPACE}");
    scene.fill(&trick.replace("{own}", &own))
}

/// OpenAPI documents, which the gateway may fetch from their owners on behalf of the caller. The first
/// request takes longer.
const DOCUMENTS: &[&str] = &[
    "{own}/things/a",
    "/openapi/v3/apis/{group}/v1/../../../../apis/{group}/v1/namespaces/other/things/b",
    "/openapi/v3/..%2f..%2fapis/{group}/v1/namespaces/other/things/b",
];

async fn tricks(scene: &Scene<'_>, tricks: &[&str], upgrade: bool) -> Result<(), String> {
    let mut handle = scene.script_backend(Script::default());
    let target = &scene.environment.target;
    let mut reached = 0;
    for trick in tricks {
        let path = spelled(scene, trick);
        let case = scene.environment.next_case();
        match scene.http {
            Http::Http1 => {
                let mut headers = vec![("Host".to_owned(), target.authority.clone())];
                headers.extend(target.credentials());
                headers.push((CASE_HEADER.to_owned(), case.clone()));
                headers.push(("Impersonate-User".to_owned(), LIMITED.to_owned()));
                if upgrade {
                    headers.push(("Connection".to_owned(), "Upgrade".to_owned()));
                    headers.push(("Upgrade".to_owned(), "SPDY/3.1".to_owned()));
                }
                let mut request = scene.request("GET", &path);
                request.raw = Some(crate::wire::encode_head(&format!("GET {path} HTTP/1.1"), &headers));
                // The response does not matter, only what reaches the backend.
                let _ = target.exchange(Http::Http1, &request).await;
            }
            Http::Http2 => {
                let credentials = target.credentials();
                let mut fields = vec![
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", target.authority.as_str()),
                    (":path", path.as_str()),
                ];
                fields.extend(credentials.iter().map(|(_, v)| ("authorization", v.as_str())));
                fields.extend([(CASE_HEADER, case.as_str()), ("impersonate-user", LIMITED)]);
                let frames = Frames {
                    fields,
                    ..Frames::default()
                };
                let _ = frames::send(target, &frames).await;
            }
        }
        for event in handle.so_far() {
            // A delayed request of an earlier case may arrive now.
            if let Event::Request(seen) = event
                && (seen.values(CASE_HEADER) == [case.as_str()] || seen.values(CASE_HEADER).is_empty())
            {
                allowed(scene, trick, &seen)?;
                reached += 1;
            }
        }
    }
    if reached > 0 {
        Ok(())
    } else {
        Err("not even allowed requests reach the backend".into())
    }
}

fn paths_over_1<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(tricks(scene, TRICKS, false))
}

fn documents<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(tricks(scene, DOCUMENTS, false))
}

fn paths_over_2<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(tricks(scene, TRICKS, false))
}

fn paths_of_upgrades<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(tricks(scene, TRICKS, true))
}

//! Treatment of request headers.

use crate::case::Expect::{
    Answer, Body, Header, NoHeader, NotSent, Sent, SentLike, SentTrailer, Spelled, Status, Version,
};
use crate::case::{Case, case};

fn packed(text: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(text).expect("memory takes it");
    packer.finish().expect("memory takes it")
}

fn is_uuid(v: &str) -> bool {
    v.len() == 36 && v.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

pub(super) fn cases() -> Vec<Case> {
    [forwarded(), hop_by_hop(), passed(), encodings()].concat()
}

fn forwarded() -> Vec<Case> {
    vec![
        case("3.3.4a", "the client's address is sent")
            .expect([SentLike("x-forwarded-for", |v| v.parse::<std::net::IpAddr>().is_ok())]),
        case(
            "3.3.4b",
            "addresses from the client are folded into one list, with the client's own at its end",
        )
        .with("X-Forwarded-For", "1.1.1.1")
        .with("X-Forwarded-For", "2.2.2.2, 3.3.3.3")
        .expect([SentLike("x-forwarded-for", |v| {
            v.starts_with("1.1.1.1, 2.2.2.2, 3.3.3.3, ") && v.split(", ").count() == 4
        })]),
        case(
            "3.3.5a",
            "the forwarding headers contain the backend, https and the path",
        )
        .request("GET", "{base}/things/a?x=1")
        .expect([
            Sent("x-forwarded-host", &["{host}"]),
            Sent("x-forwarded-proto", &["https"]),
            Sent("x-forwarded-uri", &["{base}/things/a"]),
        ]),
        case("3.3.5b", "forwarding headers from the client are overwritten")
            .with("X-Forwarded-Host", "evil")
            .with("X-Forwarded-Proto", "http")
            .with("X-Forwarded-Uri", "/evil")
            .expect([
                Sent("x-forwarded-host", &["{host}"]),
                Sent("x-forwarded-proto", &["https"]),
                Sent("x-forwarded-uri", &["{base}/things"]),
            ]),
        case("3.3.5c", "X-Forwarded-Uri is cleaned and keeps its trailing slash")
            .request("GET", "{base}//things/./a/")
            .expect([Sent("x-forwarded-uri", &["{base}/things/a/"])]),
        case("3.3.5d", "Forwarded and X-Real-Ip from the client are forwarded")
            .with("Forwarded", "for=1.2.3.4")
            .with("X-Real-Ip", "1.2.3.4")
            .expect([Sent("forwarded", &["for=1.2.3.4"]), Sent("x-real-ip", &["1.2.3.4"])]),
        case("3.3.5e", "no Via is added").expect([NotSent("via"), NoHeader("via")]),
        case("3.3.6a", "the client's audit id is forwarded and returned")
            .with("Audit-ID", "an-id-of-mine")
            .expect([
                Sent("audit-id", &["an-id-of-mine"]),
                Header("audit-id", &["an-id-of-mine"]),
            ]),
        case(
            "3.3.6b",
            "without an audit id one is generated, and both ends receive the same one",
        )
        .expect([
            SentLike("audit-id", is_uuid),
            Answer(
                "the audit id is a UUID",
                |response| matches!(*response.values("audit-id"), [id] if is_uuid(id)),
            ),
        ]),
        case("3.3.10a", "traceparent, tracestate and baggage are forwarded")
            .with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
            .with("tracestate", "a=b")
            .with("baggage", "k=v")
            .expect([
                SentLike("traceparent", |v| v.starts_with("00-0af7651916cd43dd8448eb211c80319c-")),
                Sent("tracestate", &["a=b"]),
                Sent("baggage", &["k=v"]),
            ]),
        case("3.3.10b", "no trace is started for requests without one").expect([NotSent("traceparent")]),
    ]
}

fn hop_by_hop() -> Vec<Case> {
    let mut cases = vec![
        case("3.3.7a", "headers named in Connection are not forwarded")
            .http1_only()
            .with("Connection", "X-Mine, close")
            .with("X-Mine", "1")
            .with("X-Other", "1")
            .expect([NotSent("x-mine"), Sent("x-other", &["1"])]),
        case("3.3.7b", "the client's Connection header is not forwarded")
            .http1_only()
            .on(&["h2"])
            .with("Connection", "close")
            .expect([NotSent("connection")]),
        case("3.3.7c", "Te: trailers is forwarded")
            .with("TE", "trailers")
            .expect([Sent("te", &["trailers"])]),
        case("3.3.7d", "other Te values are not forwarded")
            .http1_only()
            .with("TE", "gzip")
            .expect([NotSent("te")]),
        case("3.3.7e", "of several Te values only trailers is forwarded")
            .http1_only()
            .with("TE", "deflate, Trailers;q=0.5, trailers")
            .expect([Sent("te", &["trailers"])]),
        case(
            "3.3.7f",
            "headers named in Connection are not forwarded, whatever their case",
        )
        .http1_only()
        .with("connection", "x-MINE")
        .with("X-Mine", "1")
        .expect([NotSent("x-mine")]),
    ];
    for (id, name) in [
        ("3.3.7g", "Keep-Alive"),
        ("3.3.7h", "Proxy-Connection"),
        ("3.3.7i", "Proxy-Authorization"),
        ("3.3.7j", "Proxy-Authenticate"),
        ("3.3.7k", "Upgrade"),
    ] {
        let case = case(id, "headers of one connection are not passed on").http1_only();
        cases.push(case.with(name, "x").expect([NotSent(name)]));
    }
    cases
}

fn passed() -> Vec<Case> {
    vec![
        case("3.3.8a", "the User-Agent is the client's")
            .with("User-Agent", "kubectl/v1.36 (a) b")
            .expect([Sent("user-agent", &["kubectl/v1.36 (a) b"])]),
        case("3.3.8b", "without a User-Agent from the client none is sent").expect([NotSent("user-agent")]),
        case("3.3.11a", "cookies and unknown headers are forwarded")
            .with("Cookie", "a=b")
            .with("X-Whatever", "one two")
            .expect([Sent("cookie", &["a=b"]), Sent("x-whatever", &["one two"])]),
        case("3.3.11b", "headers with the same name stay separate and in order")
            .with("X-Twice", "b")
            .with("X-Other", "-")
            .with("X-Twice", "a")
            .with("X-Twice", "b")
            .expect([Sent("x-twice", &["b", "a", "b"])]),
        case("3.3.11c", "non-ASCII bytes in values are forwarded")
            .with("X-Latin", "caf\u{e9}")
            .expect([Sent("x-latin", &["caf\u{e9}"])]),
        case("3.3.11d", "an empty value is forwarded")
            .with("X-Empty", "")
            .expect([Sent("x-empty", &[""])]),
        case("3.3.11e", "header names are spelled as Go spells them over HTTP/1.1")
            .with("x-wHAtever-you-LIKE", "1")
            .upstream()
            .expect([Spelled("X-Whatever-You-Like")]),
        case("3.3.11f", "If-None-Match, If-Match and Range are left to the backend")
            .with("If-None-Match", "\"x\"")
            .with("If-Match", "*")
            .with("Range", "bytes=0-1")
            .expect([
                Sent("if-none-match", &["\"x\""]),
                Sent("if-match", &["*"]),
                Sent("range", &["bytes=0-1"]),
            ]),
        case("3.6.1a", "HTTP/2 is used where the backend offers it")
            .on(&["h2"])
            .expect([Version(2)]),
        case("3.6.1b", "HTTP/1.1 is used where the backend does not offer HTTP/2")
            .on(&["h1"])
            .expect([Version(1)]),
    ]
}

fn encodings() -> Vec<Case> {
    let gzip = &[("Content-Type", "text/plain"), ("Content-Encoding", "gzip")];
    vec![
        case("3.3.9a", "gzip is requested if the client requests no encoding")
            .expect([Sent("accept-encoding", &["gzip"])]),
        case(
            "3.3.9b",
            "that gzip response is decompressed: the client receives neither its encoding nor its length",
        )
        .answer_headers(gzip)
        .answer_body(packed(b"hello hello hello"))
        .expect([
            Status(200),
            Body("hello hello hello"),
            NoHeader("content-encoding"),
            Answer("the length is not that of the packed body", |response| {
                response.values("content-length").iter().all(|v| *v == "17")
            }),
        ]),
        case("3.3.9c", "an encoding that the client requests is end to end")
            .with("Accept-Encoding", "gzip, br;q=0.5")
            .answer_headers(gzip)
            .answer_body(packed(b"hello"))
            .expect([
                Sent("accept-encoding", &["gzip, br;q=0.5"]),
                Header("content-encoding", &["gzip"]),
                Answer("the body is still packed", |response| {
                    response.body.data.starts_with(&[0x1f, 0x8b])
                }),
            ]),
        case("3.3.9d", "a request for identity encoding is forwarded")
            .with("Accept-Encoding", "identity")
            .expect([Sent("accept-encoding", &["identity"])]),
        case("3.3.9e", "no encoding is requested with Range")
            .with("Range", "bytes=0-3")
            .expect([NotSent("accept-encoding")]),
        case("3.3.9f", "no encoding is requested with HEAD")
            .request("HEAD", "{base}/things")
            .expect([NotSent("accept-encoding")]),
        case("3.3.9g", "a response decompressed by the gateway keeps its trailers")
            .with("TE", "trailers")
            .answer_headers(gzip)
            .answer_body(packed(b"hello"))
            .answer_trailer("X-Sum", "5")
            .beyond()
            .expect([Body("hello"), crate::case::Expect::Trailer("X-Sum", "5")]),
        case("3.3.7l", "request trailers are forwarded")
            .request("POST", "{base}/things")
            .upload(crate::client::RequestBody::Chunked(
                vec![b"a".to_vec()],
                vec![("X-Sum".into(), "1".into())],
            ))
            .beyond()
            .expect([Status(200), SentTrailer("X-Sum", "1")]),
    ]
}

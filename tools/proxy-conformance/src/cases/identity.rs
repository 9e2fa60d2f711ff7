//! The caller's identity as sent to backends.

use crate::case::Expect::{Answer, Body, NotSent, Reached, Sent, SentLike, Spelled, Status};
use crate::case::{Case, case};
use crate::environment::MEMBER;

/// A case with the identity `alice`, in the group [`MEMBER`].
fn alice(id: &'static str, claim: &'static str) -> Case {
    case(id, claim)
        .with("Impersonate-User", "alice")
        .with("Impersonate-Group", MEMBER)
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("3.3.1a", "the caller's credentials are not forwarded").expect([NotSent("authorization"), Status(200)]),
        case("3.3.2a", "the caller's identity is sent with every request").expect([
            SentLike("x-remote-user", |v| !v.is_empty()),
            SentLike("x-remote-group", |v| !v.is_empty()),
        ]),
        alice(
            "3.3.2b",
            "the impersonated user's identity is sent, one header line per group, in order",
        )
        .with("Impersonate-Group", "z")
        .with("Impersonate-Group", "a")
        .expect([
            Status(200),
            Sent("x-remote-user", &["alice"]),
            Sent("x-remote-group", &[MEMBER, "z", "a", "system:authenticated"]),
            NotSent("x-remote-uid"),
        ]),
        alice("3.3.2c", "the uid is sent if there is one")
            .with("Impersonate-Uid", "u-1")
            .expect([Sent("x-remote-uid", &["u-1"])]),
        alice("3.3.1b", "Impersonate headers are not forwarded")
            .with("Impersonate-Uid", "u-1")
            .with("Impersonate-Extra-Scopes", "a")
            .expect([
                NotSent("impersonate-user"),
                NotSent("impersonate-group"),
                NotSent("impersonate-uid"),
                NotSent("impersonate-extra-scopes"),
            ]),
        alice(
            "3.3.1c",
            "identity headers from the client are replaced by its authenticated identity",
        )
        .with("X-Remote-User", "root")
        .with("X-Remote-Uid", "0")
        .with("X-Remote-Group", "system:masters")
        .with("X-Remote-Extra-Scopes", "all")
        .expect([
            Sent("x-remote-user", &["alice"]),
            Sent("x-remote-group", &[MEMBER, "system:authenticated"]),
            NotSent("x-remote-uid"),
            NotSent("x-remote-extra-scopes"),
        ]),
        alice("3.3.3a", "extra keys are escaped as header names require")
            .with("Impersonate-Extra-Scopes.example.com%2fFoo", "x")
            .with("Impersonate-Extra-Scopes.example.com%2fFoo", "y")
            .expect([
                Sent("x-remote-extra-scopes.example.com%2ffoo", &["x", "y"]),
                Spelled("X-Remote-Extra-Scopes.example.com%2ffoo"),
            ]),
        alice("3.3.3b", "a percent sign in an extra key is escaped")
            .with("Impersonate-Extra-a%25b", "x")
            .expect([Sent("x-remote-extra-a%25b", &["x"])]),
        alice("3.3.3c", "non-ASCII letters in names are sent as bytes")
            .with("Impersonate-Group", "caf\u{c3}\u{a9}")
            .expect([Sent(
                "x-remote-group",
                &[MEMBER, "caf\u{c3}\u{a9}", "system:authenticated"],
            )]),
        case("7.8.1", "impersonated groups without a user are refused")
            .with("Impersonate-Group", "system:masters")
            .expect([Status(400), Reached(0)]),
        case("7.10.1a", "an unauthorized request does not reach the backend")
            .with("Impersonate-User", "nobody")
            .expect([
                Status(403),
                Reached(0),
                Answer("it is a Status that says Forbidden", |response| {
                    let status: serde_json::Value = serde_json::from_slice(&response.body.data).unwrap_or_default();
                    status["kind"] == "Status" && status["reason"] == "Forbidden"
                }),
            ])
            .request("GET", "{base}/namespaces/proxy-conformance/things"),
        case(
            "3.1.2",
            "a backend that is not Available gets no requests: 503 in plain text",
        )
        .on(&["other-ca", "expired"])
        .expect([
            Status(503),
            Body("service unavailable\n"),
            Reached(0),
            crate::case::Expect::Header("content-type", &["text/plain; charset=utf-8"]),
            crate::case::Expect::Header("x-content-type-options", &["nosniff"]),
            crate::case::Expect::NoHeader("retry-after"),
        ]),
    ]
}

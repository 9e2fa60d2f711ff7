//! Forged identities: in every spelling, repeated, folded, in trailers, named in Connection, in HTTP/2 fields
//! that no library would send. The word `spoofed` must never reach a backend as an identity.

use crate::backend::{CASE_HEADER, Event, Script};
use crate::case::Expect::{NoSentTrailer, NotSent, NotSpoofed, ReachedAtMost, Status, StatusIn};
use crate::case::{Case, ScenarioFuture, case, scenario};
use crate::client::RequestBody;
use crate::client::frames::{self, Frames};
use crate::environment::Scene;

pub(super) fn cases() -> Vec<Case> {
    [spellings(), placed(), frames()].concat()
}

fn spellings() -> Vec<Case> {
    let mut cases = Vec::new();
    for (id, name) in [
        ("S.8a", "X-Remote-User"),
        ("S.8b", "x-remote-user"),
        ("S.8c", "X-REMOTE-USER"),
        ("S.8d", "x-ReMoTe-uSeR"),
        ("S.8e", "X-Remote-Group"),
        ("S.8f", "x-remote-group"),
        ("S.8g", "X-Remote-Uid"),
        ("S.8h", "X-Remote-UID"),
        ("S.8i", "X-Remote-Extra-Scopes"),
        ("S.8j", "x-remote-extra-"),
        ("S.8k", "X-REMOTE-EXTRA-authentication.kubernetes.io%2Fnode-name"),
    ] {
        let case = case(
            id,
            "an identity header of the client's is dropped in any spelling, once or twice",
        );
        cases.push(
            case.with(name, "spoofed")
                .with(name, "spoofed, too")
                .expect([Status(200), NotSpoofed]),
        );
    }
    for (id, name) in [
        ("S.8l", "x_remote_user"),
        ("S.8m", "x-remote_group"),
        ("S.8n", "x.remote.uid"),
        ("S.8o", "x_remote_extra_scopes"),
        ("S.8p", "impersonate_user"),
    ] {
        let claim = "so is one that a server may read as such, once it has made a variable of its name";
        let case = case(id, claim).beyond().with(name, "spoofed");
        cases.push(case.expect([Status(200), NotSent(name)]));
    }
    cases
}

fn placed() -> Vec<Case> {
    let trailers = vec![
        ("X-Remote-User".into(), "spoofed".into()),
        ("x-remote-group".into(), "spoofed".into()),
        ("Impersonate-User".into(), "spoofed".into()),
        ("X-Remote-Extra-Scopes".into(), "spoofed".into()),
    ];
    let raw = |id, claim, headers: &str| {
        let text = format!("GET {{base}}/things HTTP/1.1\r\nHost: {{gateway}}\r\n{{auth}}{{case}}{headers}\r\n");
        case(id, claim).raw(&text).on(&["f1", "f2"])
    };
    vec![
        case("S.9a", "identity trailers are ignored")
            .request("POST", "{base}/things")
            .upload(RequestBody::Chunked(vec![b"a".to_vec()], trailers))
            .expect([Status(200), NotSpoofed]),
        raw(
            "S.9b",
            "a folded identity header is refused or dropped",
            "X-Remote-User: a\r\n spoofed\r\n",
        )
        .expect([StatusIn(&[200, 400]), ReachedAtMost(1), NotSpoofed]),
        raw(
            "S.9c",
            "an identity header folded behind another header is ignored",
            "X-A: b\r\n X-Remote-User: spoofed\r\n",
        )
        .expect([StatusIn(&[200, 400]), ReachedAtMost(1), NotSpoofed]),
        raw(
            "S.9d",
            "a space before the colon does not create another header",
            "X-Remote-User : spoofed\r\n",
        )
        .expect([StatusIn(&[200, 400]), ReachedAtMost(1), NotSpoofed]),
        raw(
            "S.9e",
            "a bare line feed separates like CRLF, or is refused",
            "X-A: b\nX-Remote-User: spoofed\r\n",
        )
        .expect([StatusIn(&[200, 400]), ReachedAtMost(1), NotSpoofed]),
        raw(
            "S.9f",
            "identity headers named in Connection remove the client's headers, not the gateway's",
            "Connection: X-Remote-User, X-Remote-Group, Audit-Id\r\nX-Remote-User: spoofed\r\n",
        )
        .expect([
            Status(200),
            NotSpoofed,
            crate::case::Expect::SentLike("x-remote-user", |v| !v.is_empty()),
            crate::case::Expect::SentLike("x-remote-group", |v| !v.is_empty()),
            crate::case::Expect::SentLike("audit-id", |v| !v.is_empty()),
        ]),
        raw(
            "S.9g",
            "a header name cut by NUL is ignored",
            "X-Remote-User\0: spoofed\r\n",
        )
        .expect([StatusIn(&[200, 400]), ReachedAtMost(1), NotSpoofed]),
        raw(
            "S.9h",
            "impersonation of an empty user is refused",
            "Impersonate-User: \r\nImpersonate-Group: spoofed\r\n",
        )
        .expect([StatusIn(&[200, 400, 403]), ReachedAtMost(1), NotSpoofed]),
        raw(
            "S.9i",
            "two Impersonate-User headers yield no forged identity",
            "Impersonate-User: conformance-limited\r\nImpersonate-User: spoofed\r\n",
        )
        .expect([StatusIn(&[200, 400, 403]), ReachedAtMost(1), NotSpoofed]),
        case("S.9j", "identity trailers in other spellings are ignored")
            .beyond()
            .request("POST", "{base}/things")
            .upload(RequestBody::Chunked(
                vec![b"a".to_vec()],
                vec![("X_Remote_User".into(), "spoofed".into())],
            ))
            .expect([Status(200), NoSentTrailer("x_remote_user")]),
    ]
}

fn frames() -> Vec<Case> {
    vec![
        scenario(
            "S.10a",
            "no HTTP/2 field, malformed or not, changes the caller's identity",
            fields,
        )
        .on(&["f1", "f2"])
        .http2_only(),
        scenario("S.10b", "contradictory pseudo-headers do not reach the backend", pseudo)
            .on(&["f1", "f2"])
            .http2_only(),
        scenario(
            "S.11",
            "a request from another gateway that the backend sends back is not forwarded again",
            comes_back,
        )
        .beyond(),
        scenario("S.10c", "identities in HTTP/2 trailers are ignored", trailers)
            .on(&["f1", "f2"])
            .http2_only(),
        scenario(
            "S.10d",
            "a body that does not match its Content-Length is not a complete request",
            length,
        )
        .on(&["f1", "f2"])
        .http2_only(),
    ]
}

struct Sender<'s> {
    scene: &'s Scene<'s>,
    credentials: Vec<(String, String)>,
    case: String,
    path: String,
    handle: crate::backend::BackendHandle,
}

impl<'s> Sender<'s> {
    fn new(scene: &'s Scene<'s>) -> Self {
        Self {
            scene,
            credentials: scene.environment.target.credentials(),
            case: scene.environment.next_case(),
            path: scene.fill("{base}/things"),
            handle: scene.script_backend(Script::default()),
        }
    }

    fn fields<'a>(&'a self, pseudo: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut fields = if pseudo.is_empty() {
            self.good()
        } else {
            pseudo.to_vec()
        };
        fields.extend(self.credentials.iter().map(|(_, v)| ("authorization", v.as_str())));
        fields.push((CASE_HEADER, self.case.as_str()));
        fields.extend(more);
        fields
    }

    fn good(&self) -> Vec<(&str, &str)> {
        let authority = self.scene.environment.target.authority.as_str();
        vec![
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", authority),
            (":path", self.path.as_str()),
        ]
    }

    /// The requests that reached the backend, after checking that none is spoofed.
    fn arrived(&mut self) -> Result<Vec<crate::backend::ReceivedRequest>, String> {
        let events = self.handle.so_far().into_iter();
        let seen = events.filter_map(|e| match e {
            Event::Request(seen) => Some(*seen),
            Event::ClientDisconnected => None,
        });
        let seen: Vec<_> = seen.collect();
        seen.iter().try_for_each(crate::case::not_spoofed)?;
        Ok(seen)
    }
}

fn fields<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut sender = Sender::new(scene);
        for more in [
            &[("x-remote-user", "spoofed")][..],
            &[("X-Remote-User", "spoofed")],
            &[("x-remote-user", "a"), ("x-remote-user", "spoofed")],
            &[("x-remote-user:", "spoofed")],
            &[(":x-remote-user", "spoofed")],
            &[("x-a", "b\r\nx-remote-user: spoofed")],
            &[("x-a\r\nx-remote-user", "spoofed")],
            &[("x-a: b\r\nx-remote-user", "spoofed")],
            &[("x-remote-user ", "spoofed")],
            &[(" x-remote-user", "spoofed")],
            &[("x-remote-user\0", "spoofed")],
            &[("connection", "x-remote-user"), ("x-remote-user", "spoofed")],
            &[("connection", "close")],
            &[("transfer-encoding", "chunked")],
            &[("te", "gzip")],
            &[("host", "evil.example")],
            &[("host", "")],
            &[("", "spoofed")],
            &[("x-remote-extra-a\u{e9}", "spoofed")],
            &[("impersonate-group", "spoofed")],
        ] {
            let request = Frames {
                fields: sender.fields(&[], more),
                ..Frames::default()
            };
            // Whether it is refused or not, only what reaches the backend matters.
            let end = frames::send(&scene.environment.target, &request).await;
            let arrived = sender.arrived().map_err(|e| format!("{more:?}: {e}"))?;
            if arrived.len() > 1 {
                return Err(format!("{more:?} became {} requests ({end:?})", arrived.len()));
            }
            for seen in arrived {
                if seen.target != sender.path || seen.authority != scene.fill("{host}") {
                    return Err(format!("{more:?} arrived at {} {}", seen.authority, seen.target));
                }
                if !seen.values("connection").is_empty() && seen.version == 2 {
                    return Err(format!("{more:?} brought Connection to the backend"));
                }
            }
        }
        Ok(())
    })
}

fn pseudo<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut sender = Sender::new(scene);
        let authority = scene.environment.target.authority.as_str();
        let (path, smuggled) = (sender.path.clone(), scene.fill("{base}/smuggled"));
        let (absolute, split) = (
            format!("https://evil.example{path}"),
            format!("{path} HTTP/1.1\r\nX-Remote-User: spoofed\r\nX-A:"),
        );
        let (post, https, a) = ((":method", "POST"), (":scheme", "https"), (":authority", authority));
        let p = (":path", path.as_str());
        for fields in [
            &[post, https, a, p, (":path", &smuggled)][..],
            &[post, https, a, (":path", &smuggled), p],
            &[post, (":method", "GET"), https, a, p],
            &[post, https, a, (":authority", "evil.example"), p],
            &[post, https, a, (":path", "")],
            &[post, https, a, (":path", &path[1..])],
            &[post, https, a, (":path", "*")],
            &[post, https, a, (":path", &absolute)],
            &[post, https, a, (":path", &split)],
            &[
                (":method", "POST /x HTTP/1.1\r\nX-Remote-User: spoofed\r\n\r\nGET"),
                https,
                a,
                p,
            ],
            &[(":method", "CONNECT"), a],
            &[(":method", "CONNECT"), https, a, p, (":protocol", "websocket")],
            &[post, (":scheme", "https\r\nx-remote-user: spoofed"), a, p],
            &[post, (":scheme", "http"), a, p],
            &[post, https, (":authority", "user:spoofed@evil.example/x?y"), p],
            &[post, https, (":authority", "evil.example\r\nx-remote-user: spoofed"), p],
            &[post, https, ("x-a", "b"), a, p],
            &[post, https, a, p, (":status", "200")],
        ] {
            let request = Frames {
                fields: sender.fields(fields, &[]),
                ..Frames::default()
            };
            let end = frames::send(&scene.environment.target, &request).await;
            for seen in sender.arrived().map_err(|e| format!("{fields:?}: {e}"))? {
                let fine = seen.target == path && seen.authority == scene.fill("{host}") && seen.method == "POST";
                if !fine {
                    return Err(format!(
                        "{fields:?} arrived as {} {} ({end:?})",
                        seen.method, seen.target
                    ));
                }
            }
        }
        Ok(())
    })
}

/// Sends a request received by the backend to the gateway again with valid credentials, as a loop would.
fn comes_back<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut handle = scene.backend.arm([Script::default()]);
        let mut request = scene.request("GET", "{base}/things");
        // The headers that a forwarding gateway adds.
        let passed_on = [("X-Forwarded-For", "127.0.0.1"), ("Audit-Id", "goes-round")];
        request
            .headers
            .extend(passed_on.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let first = scene.exchange(&request).await?;
        if first.status != 200 {
            return Err(format!("the first request is answered {}", first.status));
        }
        let seen = handle.so_far().into_iter().find_map(|e| match e {
            Event::Request(seen) => Some(*seen),
            Event::ClientDisconnected => None,
        });
        let seen = seen.ok_or("no request reached the backend")?;
        let marks = seen.headers.iter().filter(|(name, _)| {
            let name = name.to_ascii_lowercase();
            let is_mark = name.starts_with("x-") || name == "via" || name == "cdn-loop";
            is_mark && name != CASE_HEADER && !name.starts_with("x-remote-") && !name.starts_with("x-forwarded-")
        });
        request.headers.extend(marks.cloned());
        let _handle = scene.backend.arm([Script::default()]);
        let again = scene.exchange(&request).await?;
        match again.status {
            508 => Ok(()),
            other => Err(format!("the returning request is answered {other}")),
        }
    })
}

fn trailers<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut sender = Sender::new(scene);
        for trailers in [
            vec![("x-remote-user", "spoofed"), ("x-remote-group", "spoofed")],
            vec![("impersonate-user", "spoofed")],
            vec![("X-Remote-User", "spoofed")],
            vec![(":path", "/spoofed")],
            vec![("x-sum", "1\r\nx-remote-user: spoofed")],
        ] {
            let request = Frames {
                fields: sender.fields(&[], &[("trailer", "x-remote-user, x-sum")]),
                data: Some(b"body"),
                trailers: trailers.clone(),
            };
            let _ = frames::send(&scene.environment.target, &request).await;
            sender.arrived().map_err(|e| format!("{trailers:?}: {e}"))?;
        }
        Ok(())
    })
}

fn length<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut sender = Sender::new(scene);
        for length in ["0", "3", "5", "1000", "-1", "4, 4", "4x"] {
            let request = Frames {
                fields: sender.fields(&[], &[("content-length", length)]),
                data: Some(b"body"),
                trailers: vec![],
            };
            let _ = frames::send(&scene.environment.target, &request).await;
            for seen in sender.arrived()? {
                if seen.body.whole && seen.body.data != b"body" {
                    return Err(format!("{length}: {:?} counts as complete", seen.body));
                }
                if seen.body.whole && seen.version == 1 && seen.values("content-length") == [length] {
                    return Err(format!("{length} was forwarded"));
                }
            }
        }
        Ok(())
    })
}

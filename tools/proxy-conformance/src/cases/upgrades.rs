//! Upgrades: WebSocket, SPDY, any protocol.

use crate::backend::{Event, ReceivedRequest, Script};
use crate::case::{Case, ScenarioFuture, scenario};
use crate::client::{Io, Request, Response};
use crate::environment::Scene;
use crate::wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SPDY: &str = "SPDY/3.1";
const WEBSOCKET: &str = "websocket";

pub(super) fn cases() -> Vec<Case> {
    vec![
        scenario(
            "3.8.3a",
            "a WebSocket is established, and bytes are forwarded in both directions",
            websocket,
        )
        .http1_only(),
        scenario(
            "3.8.3b",
            "SPDY is established, and bytes are forwarded in both directions",
            spdy,
        )
        .http1_only(),
        scenario(
            "3.8.3c",
            "bytes that the backend sends with its 101 arrive",
            early_payload,
        )
        .http1_only(),
        scenario(
            "3.8.3d",
            "bytes that the client sends with its request arrive",
            early_bytes,
        )
        .beyond()
        .http1_only(),
        scenario(
            "3.8.3e",
            "when the backend closes, the client's connection closes",
            backend_ends,
        )
        .http1_only(),
        scenario(
            "3.8.3f",
            "when the client closes, the backend's connection closes",
            client_ends,
        )
        .http1_only(),
        scenario(
            "3.8.1",
            "the backend receives Connection, Upgrade and Sec headers, the identity and its own Host",
            request,
        )
        .http1_only(),
        scenario(
            "3.8.2",
            "of the forwarding headers the backend receives X-Forwarded-For only",
            forwarded,
        )
        .http1_only(),
        scenario("3.3.8c", "an upgrade without a User-Agent gets Go's", user_agent)
            .http1_only()
            .upstream(),
        scenario("3.8.3g", "a mebibyte is echoed unchanged", much).http1_only(),
        scenario(
            "3.8.2b",
            "an upgrade cannot make identity headers hop-by-hop",
            named_in_connection,
        )
        .http1_only(),
    ]
}

fn e(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub(super) fn asking(scene: &Scene<'_>, protocol: &str, path: &str) -> Request {
    let mut request = scene.request("GET", path);
    for (name, value) in [
        ("Connection", "Upgrade"),
        ("Upgrade", protocol),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
    ] {
        request.headers.push((name.into(), value.into()));
    }
    request
}

fn upgrading(protocol: &str, first: &[u8]) -> Script {
    Script {
        headers: vec![
            ("Connection".into(), "Upgrade".into()),
            ("Upgrade".into(), protocol.into()),
            ("Sec-WebSocket-Protocol".into(), "v5.channel.k8s.io".into()),
        ],
        upgrade: Some(first.to_vec()),
        ..Script::default()
    }
}

async fn connected(scene: &Scene<'_>, request: &Request) -> Result<(Response, Io), String> {
    let (response, io) = scene.environment.target.over_http1(request).await?;
    if response.status != 101 {
        let mut response = response;
        let mut io = io;
        response.body = wire::body(&mut io, &response.headers, false).await;
        return Err(format!("{} {}", response.status, response.text()));
    }
    Ok((response, io))
}

async fn echoes(io: &mut Io, text: &[u8]) -> Result<(), String> {
    io.write_all(text).await.map_err(e)?;
    io.flush().await.map_err(e)?;
    let mut back = vec![0; text.len()];
    io.read_exact(&mut back).await.map_err(e)?;
    if back == text {
        Ok(())
    } else {
        Err("the echo differs from the sent bytes".into())
    }
}

async fn echo(scene: &Scene<'_>, protocol: &str) -> Result<(), String> {
    let _handle = scene.script_backend(upgrading(protocol, b""));
    let (response, mut io) = connected(scene, &asking(scene, protocol, "{base}/things/a/exec")).await?;
    if response.values("upgrade") != [protocol] || response.values("sec-websocket-protocol") != ["v5.channel.k8s.io"] {
        return Err(format!("the 101 says {:?}", response.headers));
    }
    for text in ["hello", "\0\u{1}\u{2}", "again"] {
        echoes(&mut io, text.as_bytes()).await?;
    }
    Ok(())
}

fn websocket<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(echo(scene, WEBSOCKET))
}

fn spdy<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(echo(scene, SPDY))
}

fn early_payload<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.script_backend(upgrading(SPDY, b"at once"));
        let (_, mut io) = connected(scene, &asking(scene, SPDY, "{base}/things/a/exec")).await?;
        let mut first = [0; 7];
        io.read_exact(&mut first).await.map_err(e)?;
        if &first != b"at once" {
            return Err(format!("{first:?} comes first"));
        }
        echoes(&mut io, b"then").await
    })
}

fn early_bytes<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.script_backend(upgrading(SPDY, b""));
        let mut request = asking(scene, SPDY, "{base}/things/a/exec");
        let mut headers = vec![("Host".to_owned(), scene.environment.target.authority.clone())];
        headers.extend(scene.environment.target.credentials());
        headers.append(&mut request.headers);
        let mut raw = wire::encode_head(&format!("GET {} HTTP/1.1", request.target), &headers);
        raw.extend(b"unasked");
        request.raw = Some(raw);
        let (_, mut io) = connected(scene, &request).await?;
        let mut back = [0; 7];
        io.read_exact(&mut back).await.map_err(e)?;
        if &back == b"unasked" {
            Ok(())
        } else {
            Err(format!("{back:?} comes back"))
        }
    })
}

fn backend_ends<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.script_backend(upgrading(WEBSOCKET, b""));
        let (_, mut io) = connected(scene, &asking(scene, WEBSOCKET, "{base}/things/a/exec")).await?;
        echoes(&mut io, b"hello").await?;
        io.write_all(b"bye").await.map_err(e)?;
        io.flush().await.map_err(e)?;
        let mut rest = Vec::new();
        let end = tokio::time::timeout(crate::client::TIMEOUT, io.read_to_end(&mut rest)).await;
        match end {
            Ok(_) if rest.is_empty() => Ok(()),
            Ok(_) => Err(format!("{rest:?} comes")),
            Err(_) => Err("the connection stays open".into()),
        }
    })
}

fn client_ends<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut handle = scene.script_backend(upgrading(WEBSOCKET, b""));
        let (_, mut io) = connected(scene, &asking(scene, WEBSOCKET, "{base}/things/a/exec")).await?;
        echoes(&mut io, b"hello").await?;
        drop(io);
        handle.next().await?;
        match handle.next().await? {
            Event::ClientDisconnected => Ok(()),
            Event::Request(_) => Err("it is retried".into()),
        }
    })
}

async fn seen(scene: &Scene<'_>, request: &Request) -> Result<Box<ReceivedRequest>, String> {
    let mut handle = scene.script_backend(upgrading(WEBSOCKET, b""));
    let _open = connected(scene, request).await?;
    match handle.next().await? {
        Event::Request(seen) => Ok(seen),
        Event::ClientDisconnected => Err("no request arrives".into()),
    }
}

fn equal(seen: &ReceivedRequest, name: &str, wanted: &[&str]) -> Result<(), String> {
    let is = seen.values(name);
    if is == wanted {
        Ok(())
    } else {
        Err(format!("{name} is {is:?}, not {wanted:?}"))
    }
}

fn request<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut request = asking(scene, WEBSOCKET, "{base}/things/a/exec?b=2&a=x+y");
        for (name, value) in [
            ("Impersonate-User", "alice"),
            ("Impersonate-Group", crate::environment::MEMBER),
            ("X-Remote-User", "spoofed"),
            ("Audit-ID", "mine"),
        ] {
            request.headers.push((name.into(), value.into()));
        }
        let seen = seen(scene, &request).await?;
        equal(&seen, "upgrade", &[WEBSOCKET])?;
        equal(&seen, "sec-websocket-version", &["13"])?;
        equal(&seen, "sec-websocket-protocol", &["v5.channel.k8s.io"])?;
        equal(&seen, "x-remote-user", &["alice"])?;
        equal(&seen, "audit-id", &["mine"])?;
        equal(&seen, "impersonate-user", &[])?;
        let target = scene.fill("{base}/things/a/exec?a=x+y&b=2");
        let host = scene.fill("{host}");
        if seen.version != 1 || seen.target != target || seen.authority != host {
            return Err(format!(
                "it reads HTTP/{} {} {}",
                seen.version, seen.target, seen.authority
            ));
        }
        let connection = seen.values("connection").join(",").to_ascii_lowercase();
        if connection.contains("upgrade") {
            Ok(())
        } else {
            Err(format!("Connection is {connection:?}"))
        }
    })
}

fn forwarded<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let seen = seen(scene, &asking(scene, WEBSOCKET, "{base}/things/a/exec")).await?;
        for name in [
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-uri",
            "traceparent",
        ] {
            equal(&seen, name, &[])?;
        }
        let from = seen.values("x-forwarded-for");
        if from.len() == 1 {
            Ok(())
        } else {
            Err(format!("X-Forwarded-For is {from:?}"))
        }
    })
}

fn user_agent<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let seen = seen(scene, &asking(scene, WEBSOCKET, "{base}/things/a/exec")).await?;
        equal(&seen, "user-agent", &["Go-http-client/1.1"])
    })
}

fn named_in_connection<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut request = asking(scene, WEBSOCKET, "{base}/things/a/exec");
        let more = "X-Remote-User, x-remote-group, Audit-Id, X-Forwarded-For";
        request.headers.push(("Connection".into(), more.into()));
        let seen = seen(scene, &request).await?;
        let named = seen.values("connection").join(",").to_ascii_lowercase();
        if named.contains("x-remote-") || named.contains("audit-id") || named.contains("x-forwarded") {
            return Err(format!("a backend may drop headers named in Connection: {named}"));
        }
        if seen.values("x-remote-user").len() == 1 {
            Ok(())
        } else {
            Err("no identity is sent".into())
        }
    })
}

fn much<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.script_backend(upgrading(SPDY, b""));
        let (_, io) = connected(scene, &asking(scene, SPDY, "{base}/things/a/exec")).await?;
        let (mut read, mut write) = tokio::io::split(io);
        let sent: Vec<u8> = (0..1_u32 << 20)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let mut back = vec![0; sent.len()];
        let sending = async {
            write.write_all(&sent).await?;
            write.flush().await
        };
        let (written, read) = tokio::join!(sending, read.read_exact(&mut back));
        written.map_err(e)?;
        read.map_err(e)?;
        if back == sent {
            Ok(())
        } else {
            Err("the echo differs from the sent bytes".into())
        }
    })
}

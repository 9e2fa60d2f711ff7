//! A kubelet in the test process: TLS with client certificates, logs, an exec that echoes over WebSocket and
//! SPDY, and port forwarding over SPDY.

mod spdy;

use base64::Engine;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

type Tls = rustls::StreamOwned<rustls::ServerConnection, std::net::TcpStream>;

/// A running kubelet and the credentials for calling it.
pub(crate) struct Kubelet {
    /// Its port on 127.0.0.1.
    pub port: u16,
}

fn leaf(name: &str, issuer: &rcgen::Issuer<'_, rcgen::KeyPair>) -> (rcgen::Certificate, rcgen::KeyPair) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.extended_key_usages = vec![
        rcgen::ExtendedKeyUsagePurpose::ServerAuth,
        rcgen::ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let cert = params.signed_by(&key, issuer).expect("a certificate");
    (cert, key)
}

/// The gateway's flags for a kubelet that was started in `dir`.
pub(crate) fn flags(dir: &Path) -> [String; 3] {
    [
        ("certificate-authority", "ca.crt"),
        ("client-certificate", "client.crt"),
        ("client-key", "client.key"),
    ]
    .map(|(flag, name)| format!("--kubelet-{flag}={}", dir.join(name).display()))
}

/// Creates the node `worker`, whose kubelet listens on `port`, and the default service account.
pub(crate) fn make_node(g: &super::Gateway, port: u16) {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: worker}\n";
    g.kubectl_in(&["create", "-f", "-"], Some(node));
    let status = format!(
        r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"127.0.0.1"}}],"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{port}}}}}}}}}"#
    );
    patch_status(g, &status);
    g.kubectl(&["create", "serviceaccount", "default"]);
}

/// Merges a document into the status of the node `worker`.
pub(crate) fn patch_status(g: &super::Gateway, status: &str) {
    g.kubectl(&[
        "patch",
        "node",
        "worker",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ]);
}

impl Kubelet {
    /// Starts the kubelet and writes `ca.crt`, `client.crt` and `client.key` into `dir`. Its threads end with
    /// the process.
    pub(crate) fn start(dir: &Path) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let ca = params.self_signed(&key).expect("a CA");
        let issuer = rcgen::Issuer::new(params, key);
        let (serving, serving_key) = leaf("127.0.0.1", &issuer);
        let (client, client_key) = leaf("apiserver", &issuer);
        for (file, text) in [
            ("ca.crt", ca.pem()),
            ("client.crt", client.pem()),
            ("client.key", client_key.serialize_pem()),
        ] {
            std::fs::write(dir.join(file), text).expect("it can be written");
        }
        let config = config(ca.der(), serving.der(), &serving_key);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let config = config.clone();
                std::thread::spawn(move || {
                    let Ok(connection) = rustls::ServerConnection::new(config) else {
                        return;
                    };
                    // An error on a connection means that the client disconnected.
                    let _ = serve(rustls::StreamOwned::new(connection, tcp));
                });
            }
        });
        Self { port }
    }
}

fn config(
    ca: &CertificateDer<'static>,
    cert: &CertificateDer<'static>,
    key: &rcgen::KeyPair,
) -> Arc<rustls::ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.clone()).expect("a CA");
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .expect("a verifier");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the defaults are safe")
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![cert.clone()], key)
        .expect("the key fits");
    Arc::new(config)
}

fn serve(mut io: Tls) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        io.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split_whitespace().nth(1).unwrap_or("").to_owned();
    let header = |name: &str| {
        head.lines()
            .filter_map(|l| l.split_once(':'))
            .find(|(k, _)| k.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.trim().to_owned())
    };
    if target.starts_with("/exec/") && header("Upgrade").is_some_and(|u| u.eq_ignore_ascii_case("websocket")) {
        let protocols = header("Sec-WebSocket-Protocol").unwrap_or_default();
        let protocol = protocols.split(',').next().unwrap_or("").trim().to_owned();
        return exec(io, &target, &header("Sec-WebSocket-Key").unwrap_or_default(), &protocol);
    }
    let is_spdy = header("Upgrade").is_some_and(|u| u.eq_ignore_ascii_case("SPDY/3.1"));
    let protocol = header("X-Stream-Protocol-Version").unwrap_or_default();
    if target.starts_with("/exec/") && is_spdy {
        return spdy::exec(io, &target, &protocol);
    }
    if let Some(pod) = target.strip_prefix("/portForward/default/")
        && is_spdy
    {
        return match pod {
            "streams" => spdy::port_forward(io, &protocol),
            "refusing" => answer(&mut io, "403 Forbidden", "no ports today"),
            "plain" => spdy::switch_to(&mut io, "other", &protocol),
            "leaving" => spdy::echo(io, &protocol, 5),
            _ => spdy::echo(io, &protocol, usize::MAX),
        };
    }
    if target.contains("/broken") {
        return answer(&mut io, "500 Internal Server Error", "the runtime is down");
    }
    answer(&mut io, "200 OK", &format!("asked {target}\n"))
}

fn answer(io: &mut Tls, status: &str, text: &str) -> std::io::Result<()> {
    write!(
        io,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )?;
    io.flush()?;
    io.conn.send_close_notify();
    io.flush()
}

fn frame(io: &mut Tls, opcode: u8, payload: &[u8]) -> std::io::Result<()> {
    let length = u8::try_from(payload.len()).expect("small frames only");
    assert!(length < 126, "small frames only");
    io.write_all(&[0x80 | opcode, length])?;
    io.write_all(payload)?;
    io.flush()
}

/// Reads the client's next frame, unmasked.
fn read_frame(io: &mut Tls) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    io.read_exact(&mut head)?;
    let length = match head[1] & 0x7f {
        126 => {
            let mut more = [0; 2];
            io.read_exact(&mut more)?;
            usize::from(u16::from_be_bytes(more))
        }
        n => usize::from(n),
    };
    let mut mask = [0; 4];
    io.read_exact(&mut mask)?;
    let mut payload = vec![0; length];
    io.read_exact(&mut payload)?;
    for (i, byte) in payload.iter_mut().enumerate() {
        *byte ^= mask[i % 4];
    }
    Ok((head[0] & 0x0f, payload))
}

/// Returns the request target, and echoes stdin, if requested, until it is closed.
fn exec(mut io: Tls, target: &str, key: &str, protocol: &str) -> std::io::Result<()> {
    let digest = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes(),
    );
    let accept = base64::engine::general_purpose::STANDARD.encode(digest);
    write!(
        io,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    )?;
    let mut said = vec![1];
    said.extend_from_slice(format!("asked {target}\n").as_bytes());
    frame(&mut io, 2, &said)?;
    while target.contains("input=1") {
        match read_frame(&mut io)? {
            (8, _) => return Ok(()),
            // v5.channel.k8s.io signals a closed stream with channel 255.
            (_, payload) if payload.first() == Some(&255) => break,
            (_, payload) if payload.first() == Some(&0) && payload.len() > 1 => {
                let mut echo = vec![1];
                echo.extend_from_slice(&payload[1..]);
                frame(&mut io, 2, &echo)?;
            }
            _ => {}
        }
    }
    let mut end = vec![3];
    end.extend_from_slice(br#"{"metadata":{},"status":"Success"}"#);
    frame(&mut io, 2, &end)?;
    frame(&mut io, 8, &1000u16.to_be_bytes())?;
    // Wait for the client's close frame.
    while !matches!(read_frame(&mut io), Ok((8, _)) | Err(_)) {}
    Ok(())
}

//! A TLS server that answers with arbitrary bytes at an arbitrary pace.

use crate::wire::PeerCertificate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::PrivateKeyDer;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) type Tls = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

/// Handles a request: receives its path and the connection to answer on. The connection is closed when this
/// returns.
pub(crate) type Behaviour = Arc<dyn Fn(&str, &mut Tls) + Send + Sync>;

struct Shared {
    over: AtomicBool,
    behaviour: Mutex<Behaviour>,
    open: Mutex<Vec<TcpStream>>,
}

/// A server that runs until dropped; all its connections end then.
pub(crate) struct Backend {
    pub port: u16,
    certificate: String,
    shared: Arc<Shared>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl Backend {
    /// Starts a server for HTTP/1.1.
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        Self::serve(b"http/1.1", self_signed(), behaviour)
    }

    /// The same with this certificate.
    pub(crate) fn start_as(certificate: PeerCertificate, behaviour: Behaviour) -> Self {
        Self::serve(b"http/1.1", certificate, behaviour)
    }

    /// Starts a server for HTTP/2: the behaviour gets an empty path and a connection from which nothing has
    /// been read.
    pub(crate) fn start_http2(behaviour: Behaviour) -> Self {
        Self::serve(b"h2", self_signed(), behaviour)
    }

    fn serve(protocol: &'static [u8], certificate: PeerCertificate, behaviour: Behaviour) -> Self {
        let pem = pem(&certificate.chain[0]);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the defaults are safe")
            .with_no_client_auth()
            .with_single_cert(certificate.chain, certificate.key)
            .expect("the key fits");
        config.alpn_protocols = vec![protocol.to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            over: AtomicBool::new(false),
            behaviour: Mutex::new(behaviour),
            open: Mutex::default(),
        });
        let mine = shared.clone();
        let accepting = std::thread::spawn(move || {
            for tcp in listener.incoming() {
                if mine.over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(tcp) = tcp else { continue };
                if let Ok(copy) = tcp.try_clone() {
                    mine.open.lock().expect("no holder panics").push(copy);
                }
                let (shared, config) = (mine.clone(), config.clone());
                std::thread::spawn(move || drop(one(&shared, config, tcp, protocol)));
            }
        });
        Self {
            port,
            certificate: pem,
            shared,
            accepting: Some(accepting),
        }
    }

    /// The server's certificate, in PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Changes the behaviour for later requests.
    pub(crate) fn becomes(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().expect("no holder panics") = behaviour;
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for tcp in self.shared.open.lock().expect("no holder panics").drain(..) {
            let _ = tcp.shutdown(Shutdown::Both);
        }
    }
}

fn self_signed() -> PeerCertificate {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    PeerCertificate {
        chain: vec![made.cert.der().clone()],
        key: PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key"),
    }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

fn one(shared: &Shared, config: Arc<rustls::ServerConfig>, mut tcp: TcpStream, protocol: &[u8]) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    tcp.set_write_timeout(Some(Duration::from_secs(30)))?;
    let mut connection = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut tcp)?;
    }
    let mut io = rustls::StreamOwned::new(connection, tcp);
    let behaviour = || shared.behaviour.lock().expect("no holder panics").clone();
    if protocol == b"h2" {
        behaviour()("", &mut io);
        return Ok(());
    }
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        io.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let path = text.split(' ').nth(1).unwrap_or("").to_owned();
    behaviour()(&path, &mut io);
    io.conn.send_close_notify();
    let _ = io.flush();
    Ok(())
}

/// A complete JSON response.
pub(crate) fn json(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A webhook that authenticates nobody and allows nothing.
pub(crate) fn refuse() -> Behaviour {
    Arc::new(|_, io| {
        let body =
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":false}}"#;
        drop(io.write_all(&json(body)));
    })
}

/// Answers discovery correctly for one resource, and everything else with `otherwise`.
pub(crate) fn with_discovery(group: &str, otherwise: impl Fn(&str, &mut Tls) + Send + Sync + 'static) -> Behaviour {
    let path = format!("/apis/{group}/v1");
    let list = format!(
        r#"{{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"{group}/v1","resources":[{{"name":"things","kind":"Thing","namespaced":true,"verbs":["get","list","watch"]}}]}}"#
    );
    Arc::new(move |asked, io| {
        if asked == path {
            drop(io.write_all(&json(&list)));
        } else {
            otherwise(asked, io);
        }
    })
}

//! A webhook server whose behaviour is named by the path.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;
use torana::json;

/// More than a gateway accepts as an answer.
const TOO_MUCH: usize = 8 << 20;

pub(crate) struct Server {
    pub port: u16,
    /// The certificate in the form of a `caBundle`.
    pub bundle: String,
    calls: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A review as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The path without a leading slash, and without the query.
    pub path: String,
    /// The `Authorization` header; empty if there is none.
    pub authorization: String,
    /// The headers that a proxy adds for the user, as `name: value`.
    pub remote: Vec<String>,
    pub user_agent: String,
    pub review: Value,
}

enum Reply {
    Json(Value),
    /// Status line, additional headers and body.
    Http(&'static str, &'static str, Vec<u8>),
    /// No response, ever.
    Silence,
    /// The connection ends.
    End,
}

impl Server {
    /// Starts listening. The threads live as long as the process.
    pub(crate) fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key)
            .unwrap();
        let tls = Arc::new(tls);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            bundle: BASE64_STANDARD.encode(made.cert.pem()),
            calls: calls.clone(),
            seen: Arc::default(),
        };
        let seen = server.seen.clone();
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (tls, calls, seen) = (tls.clone(), calls.clone(), seen.clone());
                std::thread::spawn(move || serve(tcp, tls, &calls, &seen));
            }
        });
        server
    }

    /// The number of reviews received.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The reviews received.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// Serves one connection. One that fails is the gateway's to report.
fn serve(tcp: TcpStream, tls: Arc<ServerConfig>, calls: &AtomicUsize, seen: &Mutex<Vec<Seen>>) -> Option<()> {
    let connection = ServerConnection::new(tls).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, tcp));
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let path = line
            .split(' ')
            .nth(1)?
            .split('?')
            .next()?
            .trim_start_matches('/')
            .to_owned();
        let (mut length, mut authorization, mut remote) = (0, String::new(), Vec::new());
        let mut user_agent = String::new();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(": ") else {
                break;
            };
            match &*name.to_lowercase() {
                "content-length" => length = value.parse().ok()?,
                "authorization" => authorization = value.to_owned(),
                "user-agent" => user_agent = value.to_owned(),
                name if name.starts_with("x-remote-") => remote.push(format!("{name}: {value}")),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        // Requests of aggregators and probes.
        if line.starts_with("GET ") {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            stream.get_mut().write_all(head.as_bytes()).ok()?;
            stream.get_mut().flush().ok()?;
            continue;
        }
        calls.fetch_add(1, Ordering::SeqCst);
        let review = json::decode(&body).ok()?;
        seen.lock().unwrap().push(Seen {
            path: path.clone(),
            authorization,
            remote,
            user_agent,
            review: review.clone(),
        });
        let (status, more, body) = match reply(&path, &review) {
            Reply::Json(review) => ("200 OK", "content-type: application/json\r\n", json::to_vec(&review)),
            Reply::Http(status, more, body) => (status, more, body),
            Reply::End => return None,
            Reply::Silence => loop {
                std::thread::park();
            },
        };
        let head = format!("HTTP/1.1 {status}\r\n{more}content-length: {}\r\n\r\n", body.len());
        let out = stream.get_mut();
        out.write_all(head.as_bytes())
            .and_then(|()| out.write_all(&body))
            .ok()?;
        out.flush().ok()?;
    }
}

fn reply(path: &str, review: &Value) -> Reply {
    let request = review.get("request");
    let uid = request.str_at(&["uid"]);
    let object = request.get("object");
    let respond = |response: Value| {
        let version = review.str_at(&["apiVersion"]);
        Reply::Json(json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}))
    };
    let patch = |operations: Value| {
        let patch = BASE64_STANDARD.encode(json::to_vec(&operations));
        respond(json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch}))
    };
    match path.split_once('/').unwrap_or((path, "")) {
        ("allow", _) => respond(json!({"uid": uid, "allowed": true})),
        // An aggregated API.
        ("refuse" | "apis", _) => respond(json!({"uid": uid, "allowed": false, "warnings": ["be warned"],
            "status": {"code": 418, "message": "no coffee here", "reason": "Teapot"}})),
        ("hang", _) => Reply::Silence,
        ("die", _) => Reply::End,
        ("garbage", _) => Reply::Http("200 OK", "content-type: application/json\r\n", b"{{{ nonsense".to_vec()),
        ("large", _) => Reply::Http("200 OK", "content-type: application/json\r\n", vec![b' '; TOO_MUCH]),
        ("redirect", _) => Reply::Http("307 Temporary Redirect", "location: /allow\r\n", Vec::new()),
        ("uid", _) => respond(json!({"uid": "another", "allowed": true})),
        ("undecodable-patch", _) => patch(json!({"op": "add"})),
        ("misplaced-patch", _) => patch(json!([{"op": "replace", "path": "/spec/none", "value": 1}])),
        ("append", mark) => {
            let seen = format!("{}{mark}", object.str_at(&["data", "seen"]));
            patch(
                json!([{"op": "add", "path": "/data/seen", "value": seen}, {"op": "add", "path": "/bogus", "value": 1}]),
            )
        }
        ("note", _) => {
            let note = format!(
                "{} {} {} {}",
                object.str_at(&["apiVersion"]),
                request.str_at(&["kind", "kind"]),
                request.str_at(&["resource", "version"]),
                request.str_at(&["requestKind", "version"])
            );
            patch(json!([{"op": "add", "path": "/spec/note", "value": note}]))
        }
        _ => Reply::End,
    }
}

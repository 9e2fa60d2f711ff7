//! A KMS v2 plugin: gRPC over a Unix socket, on its own thread. It "encrypts" by reversing bytes, under a key
//! id that can be changed. It can be made unhealthy, unresponsive, or absent.

#![allow(dead_code, reason = "each test binary uses only a part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::net::UnixListener;
use tokio::sync::watch;

/// The plugin's current behaviour.
#[derive(Clone)]
pub(crate) struct Behaviour {
    pub key_id: String,
    pub healthz: String,
    pub version: String,
    /// Calls fail with this gRPC status.
    pub failing: Option<u32>,
}

type Shared = Arc<(Mutex<Behaviour>, Mutex<BTreeMap<String, usize>>)>;

/// A running plugin, stopped when dropped.
pub(crate) struct Plugin {
    socket: PathBuf,
    shared: Shared,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Plugin {
    /// Starts a plugin at a new socket.
    pub(crate) fn start(socket: &Path) -> Self {
        let behaviour = Behaviour {
            key_id: "key-1".to_owned(),
            healthz: "ok".to_owned(),
            version: "v2".to_owned(),
            failing: None,
        };
        let shared: Shared = Arc::new((Mutex::new(behaviour), Mutex::default()));
        let mut plugin = Self {
            socket: socket.to_owned(),
            shared,
            stop: watch::Sender::new(false),
            thread: None,
        };
        plugin.listen_again();
        plugin
    }

    /// Its entry in a list of encryption providers.
    pub(crate) fn provider(&self, name: &str) -> String {
        format!(
            "  - kms: {{apiVersion: v2, name: {name}, endpoint: 'unix://{}', timeout: 10s}}\n",
            self.socket.display()
        )
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.shared.0.lock().expect("nobody panics with it"));
    }

    /// How often a method was called.
    pub(crate) fn calls(&self, method: &str) -> usize {
        let calls = self.shared.1.lock().expect("nobody panics with it");
        calls.get(method).copied().unwrap_or(0)
    }

    pub(crate) fn stop_listening(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
        let _ = std::fs::remove_file(&self.socket);
    }

    pub(crate) fn listen_again(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let listener = std::os::unix::net::UnixListener::bind(&self.socket).expect("a socket");
        listener.set_nonblocking(true).expect("it can be");
        self.stop = watch::Sender::new(false);
        let (shared, mut stop) = (self.shared.clone(), self.stop.subscribe());
        self.thread = Some(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = UnixListener::from_std(listener).expect("a listener");
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => {}
                    () = serve(listener, shared) => {}
                }
            });
        }));
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: UnixListener, shared: Shared) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else {
                return;
            };
            while let Some(Ok((request, respond))) = connection.accept().await {
                // An error on a connection means that the caller disconnected.
                let shared = shared.clone();
                tokio::spawn(async move { _ = answer(request, respond, &shared).await });
            }
        });
    }
}

async fn answer(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<bytes::Bytes>,
    shared: &Shared,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let mut data = Vec::new();
    while let Some(chunk) = body.data().await {
        data.extend_from_slice(&chunk?);
    }
    let method = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    let now = {
        let mut calls = shared.1.lock().expect("nobody panics with it");
        *calls.entry(method.clone()).or_default() += 1;
        shared.0.lock().expect("nobody panics with it").clone()
    };
    let head = http::Response::builder().header("content-type", "application/grpc");
    let mut send = respond.send_response(head.body(()).expect("a head"), false)?;
    let mut end = http::HeaderMap::new();
    match now.failing {
        None => {
            let message = reply(&method, data.get(5..).unwrap_or_default(), &now);
            let mut frame = vec![0];
            frame.extend((message.len() as u32).to_be_bytes());
            frame.extend(message);
            send.send_data(frame.into(), false)?;
            end.insert("grpc-status", http::HeaderValue::from_static("0"));
        }
        Some(status) => {
            end.insert("grpc-status", http::HeaderValue::from(status));
            end.insert("grpc-message", http::HeaderValue::from_static("told to fail"));
        }
    }
    send.send_trailers(end)
}

/// Appends a bytes field.
fn put(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    assert!(bytes.len() < 128, "lengths of one byte will do here");
    out.extend([field << 3 | 2, bytes.len() as u8]);
    out.extend_from_slice(bytes);
}

/// The bytes of the first field, which is the plaintext or the ciphertext.
fn first(message: &[u8]) -> Vec<u8> {
    match message {
        [0x0a, length, rest @ ..] => rest.iter().take(usize::from(*length)).copied().collect(),
        _ => Vec::new(),
    }
}

fn reply(method: &str, message: &[u8], now: &Behaviour) -> Vec<u8> {
    let mut turned = first(message);
    turned.reverse();
    let mut out = Vec::new();
    match method {
        "Status" => {
            put(&mut out, 1, now.version.as_bytes());
            put(&mut out, 2, now.healthz.as_bytes());
            put(&mut out, 3, now.key_id.as_bytes());
        }
        "Encrypt" => {
            put(&mut out, 1, &turned);
            put(&mut out, 2, now.key_id.as_bytes());
            let mut annotation = Vec::new();
            put(&mut annotation, 1, b"a.example.com");
            put(&mut annotation, 2, b"x");
            put(&mut out, 3, &annotation);
        }
        _ => put(&mut out, 1, &turned),
    }
    out
}

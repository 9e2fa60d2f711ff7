//! Scripted backends: API servers that answer as a case prescribes, record what they receive, and fail where
//! they should.

mod faulty_stream;
mod h1;
mod h2;

pub use faulty_stream::{Fault, FaultPlan};

use crate::wire::Headers;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// The header that marks requests of cases; its value identifies the case.
pub const CASE_HEADER: &str = "x-conformance-case";

/// A part of a body.
#[derive(Clone, Debug)]
pub enum Part {
    /// Sends these bytes and flushes.
    Data(Vec<u8>),
    /// Waits until the case opens the gate. If the peer leaves meanwhile, that is recorded.
    Gate,
    /// Waits, for cases about deadlines.
    Wait(Duration),
}

/// How an HTTP/1.1 response delimits its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// By `Content-Length`.
    #[default]
    Length,
    /// By `Transfer-Encoding: chunked`.
    Chunked,
    /// By closing the connection.
    Close,
    /// No body, and no header about one.
    Bodiless,
}

/// The HTTP/2 action on a stream instead of, or after, a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamAction {
    /// Resets the stream with REFUSED_STREAM.
    Refuse,
    /// Resets the stream with INTERNAL_ERROR.
    Break,
    /// Responds, and sends GOAWAY.
    GoAway,
}

/// How a backend handles one request.
#[derive(Clone, Debug)]
pub struct Script {
    /// The delay before anything is sent.
    pub delay: Duration,
    /// Status codes of informational (1xx) responses to send first.
    pub early: Vec<u16>,
    /// Whether the request's body is read before anything is sent.
    pub reads_body: bool,
    /// The response status.
    pub status: u16,
    /// The response headers, in order.
    pub headers: Headers,
    /// The response body.
    pub body: Vec<Part>,
    /// Trailers after the body.
    pub trailers: Headers,
    /// Whether the head announces the trailers.
    pub announces: bool,
    /// How HTTP/1.1 frames the body.
    pub framing: Framing,
    /// HTTP/1.1: send exactly these bytes and close the connection.
    pub raw: Option<Vec<u8>>,
    /// Makes the connection fail after this many bytes of the response.
    pub fault: Option<(usize, Fault)>,
    /// HTTP/2 only: an action on the stream.
    pub stream_action: Option<StreamAction>,
    /// HTTP/1.1: respond 101, send these bytes, then echo everything.
    pub upgrade: Option<Vec<u8>>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            early: vec![],
            reads_body: true,
            status: 200,
            headers: vec![("Content-Type".into(), "application/json".into())],
            body: vec![Part::Data(b"{}".to_vec())],
            trailers: vec![],
            announces: true,
            framing: Framing::default(),
            raw: None,
            fault: None,
            stream_action: None,
            upgrade: None,
        }
    }
}

impl Script {
    /// The `Trailer` header that announces the trailers.
    fn announcement(&self) -> Option<(String, String)> {
        let names: Vec<&str> = self.trailers.iter().map(|(n, _)| n.as_str()).collect();
        (self.announces && !names.is_empty()).then(|| ("Trailer".to_owned(), names.join(", ")))
    }

    /// The length of the body, if it is known as a whole.
    fn length(&self) -> usize {
        let lengths = self.body.iter().map(|p| match p {
            Part::Data(d) => d.len(),
            Part::Gate | Part::Wait(_) => 0,
        });
        lengths.sum()
    }
}

/// A request as a backend received it.
#[derive(Clone, Debug, Default)]
pub struct ReceivedRequest {
    /// The HTTP version, 1 or 2.
    pub version: u8,
    /// The method.
    pub method: String,
    /// Path and query, unmodified.
    pub target: String,
    /// `Host` or `:authority`.
    pub authority: String,
    /// The headers, spelled as received over HTTP/1.1.
    pub headers: Headers,
    /// The body and its trailers.
    pub body: crate::wire::Body,
    /// Whether a client certificate was presented.
    pub certified: bool,
    /// The TLS server name (SNI).
    pub server_name: String,
    /// The number of the connection.
    pub connection: u64,
}

impl ReceivedRequest {
    /// All values of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        crate::wire::values(&self.headers, name)
    }

    /// Whether this is one of the gateway's own requests: probes, discovery, OpenAPI.
    fn is_own_request(&self) -> bool {
        let own = ["system:kube-aggregator", "system:aggregator"];
        self.method == "GET"
            && self.values(CASE_HEADER).is_empty()
            && matches!(*self.values("x-remote-user"), [user] if own.contains(&user))
    }
}

/// An event that a backend reports to its case.
#[derive(Debug)]
pub enum Event {
    /// A request arrived, with as much of its body as the script reads.
    Request(Box<ReceivedRequest>),
    /// The client left before the end of the response.
    ClientDisconnected,
}

/// A document that the gateway fetches for itself.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: Headers,
    /// Its body.
    pub body: String,
}

/// State shared by the connections of a backend.
struct State {
    group: String,
    armed: Mutex<Armed>,
    documents: Mutex<BTreeMap<String, Document>>,
    own_requests: Mutex<Vec<ReceivedRequest>>,
    requests: Mutex<Vec<ReceivedRequest>>,
    plans: Mutex<Vec<Arc<FaultPlan>>>,
    connections: AtomicU64,
    refuses: AtomicBool,
}

struct Armed {
    scripts: VecDeque<Arc<Script>>,
    events: mpsc::UnboundedSender<Event>,
    gate: Arc<Semaphore>,
}

/// The script for one request, and the channel for its events.
struct Assignment {
    script: Arc<Script>,
    events: mpsc::UnboundedSender<Event>,
    gate: Arc<Semaphore>,
}

impl Assignment {
    fn tell(&self, event: Event) {
        // A case that has finished has dropped the receiver.
        let _ = self.events.send(event);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Chooses the script for this request.
    fn assignment(&self, received: &ReceivedRequest) -> Assignment {
        locked(&self.requests).push(received.clone());
        let mut armed = locked(&self.armed);
        // The last script stays: retries and repeated requests get it, too.
        let next = if armed.scripts.len() > 1 {
            armed.scripts.pop_front()
        } else {
            armed.scripts.front().cloned()
        };
        Assignment {
            script: next.unwrap_or_default(),
            events: armed.events.clone(),
            gate: armed.gate.clone(),
        }
    }

    /// The response to one of the gateway's own requests.
    fn document(&self, received: &ReceivedRequest) -> Document {
        locked(&self.own_requests).push(received.clone());
        let path = received.target.split('?').next().unwrap_or("");
        if let Some(document) = locked(&self.documents).get(path) {
            return document.clone();
        }
        let group = &self.group;
        let resource = r#"{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list","watch","create"]}"#;
        let (status, body) = if path == format!("/apis/{group}/v1") {
            let list = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":""#;
            (200, format!(r#"{list}{group}/v1","resources":[{resource}]}}"#))
        } else {
            (404, "{}".to_owned())
        };
        Document {
            status,
            headers: vec![("Content-Type".into(), "application/json".into())],
            body,
        }
    }
}

/// A running backend, stopped when dropped.
pub struct Backend {
    /// Its port.
    pub port: u16,
    /// The API group it serves, in version `v1`.
    pub group: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// A case's handle on its backend while the case runs.
pub struct BackendHandle {
    events: mpsc::UnboundedReceiver<Event>,
    gate: Arc<Semaphore>,
}

impl BackendHandle {
    /// The next event, within ten seconds.
    ///
    /// # Errors
    /// If no event arrives in time.
    pub async fn next(&mut self) -> Result<Event, String> {
        let next = tokio::time::timeout(Duration::from_secs(10), self.events.recv());
        next.await
            .ok()
            .flatten()
            .ok_or_else(|| "no event arrives at the backend".to_owned())
    }

    /// The events so far.
    pub fn so_far(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    /// Opens one gate.
    pub fn go(&self) {
        self.gate.add_permits(1);
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    /// Listens on a free port of `listen` and serves `group`.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(group: &str, tls: rustls::ServerConfig, listen: IpAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((listen, 0)).await?;
        let port = listener.local_addr()?.port();
        let (events, _) = mpsc::unbounded_channel();
        let state = Arc::new(State {
            group: group.to_owned(),
            armed: Mutex::new(Armed {
                scripts: VecDeque::new(),
                events,
                gate: Arc::new(Semaphore::new(0)),
            }),
            documents: Mutex::default(),
            own_requests: Mutex::default(),
            requests: Mutex::default(),
            plans: Mutex::default(),
            connections: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
        });
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let task = tokio::spawn(accept(listener, acceptor, state.clone()));
        Ok(Self {
            port,
            group: group.to_owned(),
            state,
            task,
        })
    }

    /// Uses these scripts for the next requests, one each, and the last of them for all later requests.
    pub fn arm(&self, scripts: impl IntoIterator<Item = Script>) -> BackendHandle {
        let (tell, events) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        *locked(&self.state.armed) = Armed {
            scripts: scripts.into_iter().map(Arc::new).collect(),
            events: tell,
            gate: gate.clone(),
        };
        BackendHandle { events, gate }
    }

    /// Sets the response to the gateway's own requests for this path.
    pub fn publish(&self, path: &str, document: Document) {
        locked(&self.state.documents).insert(path.to_owned(), document);
    }

    /// The gateway's own requests so far, oldest first.
    pub fn own_requests(&self) -> Vec<ReceivedRequest> {
        locked(&self.state.own_requests).clone()
    }

    /// All other requests so far, without their bodies.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        locked(&self.state.requests).clone()
    }

    /// Closes connections that a fault has stalled.
    pub fn release(&self) {
        for plan in locked(&self.state.plans).drain(..) {
            plan.release();
        }
    }

    /// Whether to close new connections immediately.
    pub fn refuse_connections(&self, away: bool) {
        self.state.refuses.store(away, Ordering::Relaxed);
    }

    /// The number of TLS connections so far.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((tcp, _)) = listener.accept().await else { return };
        if state.refuses.load(Ordering::Relaxed) {
            continue;
        }
        let (acceptor, state) = (acceptor.clone(), state.clone());
        connections.spawn(async move {
            // Send small responses without delay.
            let _ = tcp.set_nodelay(true);
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let (_, session) = tls.get_ref();
            let http2 = session.alpn_protocol() == Some(b"h2");
            let plan = Arc::new(FaultPlan::default());
            let peer = Peer {
                number: state.connections.fetch_add(1, Ordering::Relaxed),
                certified: session.peer_certificates().is_some(),
                server_name: session.server_name().unwrap_or_default().into(),
                plan: plan.clone(),
            };
            let line = faulty_stream::FaultyStream::new(tls, plan);
            if http2 {
                h2::serve(line, peer, state).await;
            } else {
                h1::serve(line, peer, state).await;
            }
        });
        // Reap finished connections, so that the set does not grow.
        while connections.try_join_next().is_some() {}
    }
}

/// One connection.
#[derive(Clone)]
struct Peer {
    number: u64,
    certified: bool,
    server_name: Arc<str>,
    plan: Arc<FaultPlan>,
}

impl Peer {
    /// Starts the fault of a script.
    fn begin(&self, script: &Script, state: &State) {
        if let Some((after, fault)) = script.fault {
            self.plan.arm(after, fault);
            if fault == Fault::Stall {
                locked(&state.plans).push(self.plan.clone());
            }
        }
    }
}

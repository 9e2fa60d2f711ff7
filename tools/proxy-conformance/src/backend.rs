//! Scripted backends: API servers that answer what a row tells them to, note what reached them, and fail where they should.

mod h1;
mod h2;
mod line;

pub use line::{Fault, Plan};

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

/// Marks requests of rows; its value tells them apart.
pub const ROW: &str = "x-conformance-row";

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum Part {
    /// These bytes, flushed.
    Data(Vec<u8>),
    /// The row opens it; a peer that leaves meanwhile is noted.
    Gate,
    /// Time, for the rows about deadlines.
    Wait(Duration),
}

/// How an HTTP/1.1 answer says where its body ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// `Content-Length`.
    #[default]
    Length,
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection.
    Close,
    /// It has none, and says nothing about it.
    Bodiless,
}

/// What HTTP/2 does with a stream instead of answering, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// RST_STREAM with REFUSED_STREAM.
    Refuse,
    /// RST_STREAM with INTERNAL_ERROR.
    Break,
    /// An answer, and GOAWAY.
    GoAway,
}

/// What a backend does with one request.
#[derive(Clone, Debug)]
pub struct Script {
    /// Before anything is answered.
    pub delay: Duration,
    /// 1xx answers before the answer.
    pub early: Vec<u16>,
    /// The request's body is read before anything is answered.
    pub reads_body: bool,
    /// The answer's status.
    pub status: u16,
    /// Its headers, in this order.
    pub headers: Headers,
    /// Its body.
    pub body: Vec<Part>,
    /// What comes behind the body.
    pub trailers: Headers,
    /// The head says which trailers come.
    pub announces: bool,
    /// How HTTP/1.1 frames the body.
    pub framing: Framing,
    /// HTTP/1.1: exactly these bytes, then the connection ends.
    pub raw: Option<Vec<u8>>,
    /// The connection fails after so many bytes of the answer.
    pub fault: Option<(usize, Fault)>,
    /// HTTP/2 only.
    pub turn: Option<Turn>,
    /// HTTP/1.1: 101, these bytes, then everything is sent back.
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
            turn: None,
            upgrade: None,
        }
    }
}

impl Script {
    /// The header that says which trailers come.
    fn announcement(&self) -> Option<(String, String)> {
        let names: Vec<&str> = self.trailers.iter().map(|(n, _)| n.as_str()).collect();
        (self.announces && !names.is_empty()).then(|| ("Trailer".to_owned(), names.join(", ")))
    }

    /// The bytes of the body, where it is known as a whole.
    fn length(&self) -> usize {
        let lengths = self.body.iter().map(|p| match p {
            Part::Data(d) => d.len(),
            Part::Gate | Part::Wait(_) => 0,
        });
        lengths.sum()
    }
}

/// A request as it reached a backend.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// 1 or 2.
    pub version: u8,
    /// The method.
    pub method: String,
    /// Path and query, to the byte.
    pub target: String,
    /// `Host` or `:authority`.
    pub authority: String,
    /// The headers; spelled as written over HTTP/1.1.
    pub headers: Headers,
    /// The body and its trailers.
    pub body: crate::wire::Body,
    /// A client certificate was shown.
    pub certified: bool,
    /// The name that TLS asked for.
    pub server_name: String,
    /// Which connection.
    pub connection: u64,
}

impl Seen {
    /// All values of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        crate::wire::values(&self.headers, name)
    }

    /// The gateway asks for itself: probes, discovery, OpenAPI.
    fn is_housekeeping(&self) -> bool {
        let own = ["system:kube-aggregator", "system:aggregator"];
        self.method == "GET"
            && self.values(ROW).is_empty()
            && matches!(*self.values("x-remote-user"), [user] if own.contains(&user))
    }
}

/// What a row hears of its backend.
#[derive(Debug)]
pub enum Event {
    /// A request came, with as much of its body as the script reads.
    Request(Box<Seen>),
    /// The one who asked left before the end.
    Left,
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

/// What the connections of a backend share.
struct State {
    group: String,
    armed: Mutex<Armed>,
    documents: Mutex<BTreeMap<String, Document>>,
    housekeeping: Mutex<Vec<Seen>>,
    journal: Mutex<Vec<Seen>>,
    plans: Mutex<Vec<Arc<Plan>>>,
    connections: AtomicU64,
    turns_away: AtomicBool,
}

struct Armed {
    scripts: VecDeque<Arc<Script>>,
    events: mpsc::UnboundedSender<Event>,
    gate: Arc<Semaphore>,
}

/// What one request is answered with, and whom to tell.
struct Order {
    script: Arc<Script>,
    events: mpsc::UnboundedSender<Event>,
    gate: Arc<Semaphore>,
}

impl Order {
    fn tell(&self, event: Event) {
        // A row that is over does not listen any more.
        let _ = self.events.send(event);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// What is to be done with this request.
    fn order(&self, seen: &Seen) -> Order {
        locked(&self.journal).push(seen.clone());
        let mut armed = locked(&self.armed);
        let next = if armed.scripts.len() > 1 {
            armed.scripts.pop_front()
        } else {
            armed.scripts.front().cloned()
        };
        Order {
            script: next.unwrap_or_default(),
            events: armed.events.clone(),
            gate: armed.gate.clone(),
        }
    }

    /// The answer to one of the gateway's own questions.
    fn document(&self, seen: &Seen) -> Document {
        locked(&self.housekeeping).push(seen.clone());
        let path = seen.target.split('?').next().unwrap_or("");
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

/// A running backend; ends when dropped.
pub struct Backend {
    /// Where it listens.
    pub port: u16,
    /// The API group it serves, in version `v1`.
    pub group: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// What a row has of its backend while it runs.
pub struct Stage {
    events: mpsc::UnboundedReceiver<Event>,
    gate: Arc<Semaphore>,
}

impl Stage {
    /// The next thing that happens, within ten seconds.
    ///
    /// # Errors
    /// Where nothing does.
    pub async fn next(&mut self) -> Result<Event, String> {
        let next = tokio::time::timeout(Duration::from_secs(10), self.events.recv());
        next.await
            .ok()
            .flatten()
            .ok_or_else(|| "the backend hears of nothing".to_owned())
    }

    /// What has happened so far.
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
    /// Where it cannot listen.
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
            housekeeping: Mutex::default(),
            journal: Mutex::default(),
            plans: Mutex::default(),
            connections: AtomicU64::new(0),
            turns_away: AtomicBool::new(false),
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

    /// The next requests are answered by these scripts in turn, and by the last of them from then on.
    pub fn arm(&self, scripts: impl IntoIterator<Item = Script>) -> Stage {
        let (tell, events) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        *locked(&self.state.armed) = Armed {
            scripts: scripts.into_iter().map(Arc::new).collect(),
            events: tell,
            gate: gate.clone(),
        };
        Stage { events, gate }
    }

    /// What the gateway gets when it asks for this path for itself.
    pub fn publish(&self, path: &str, document: Document) {
        locked(&self.state.documents).insert(path.to_owned(), document);
    }

    /// What the gateway has asked for itself, oldest first.
    pub fn housekeeping(&self) -> Vec<Seen> {
        locked(&self.state.housekeeping).clone()
    }

    /// Every request of somebody else that has come, without its body.
    pub fn journal(&self) -> Vec<Seen> {
        locked(&self.state.journal).clone()
    }

    /// Cuts connections that a fault left hanging.
    pub fn release(&self) {
        for plan in locked(&self.state.plans).drain(..) {
            plan.release();
        }
    }

    /// New connections are closed at once, or let in again.
    pub fn turn_away(&self, away: bool) {
        self.state.turns_away.store(away, Ordering::Relaxed);
    }

    /// How many TLS connections there were.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((tcp, _)) = listener.accept().await else { return };
        if state.turns_away.load(Ordering::Relaxed) {
            continue;
        }
        let (acceptor, state) = (acceptor.clone(), state.clone());
        connections.spawn(async move {
            // Small answers leave at once.
            let _ = tcp.set_nodelay(true);
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let (_, session) = tls.get_ref();
            let http2 = session.alpn_protocol() == Some(b"h2");
            let plan = Arc::new(Plan::default());
            let peer = Peer {
                number: state.connections.fetch_add(1, Ordering::Relaxed),
                certified: session.peer_certificates().is_some(),
                server_name: session.server_name().unwrap_or_default().into(),
                plan: plan.clone(),
            };
            let line = line::Line::new(tls, plan);
            if http2 {
                h2::serve(line, peer, state).await;
            } else {
                h1::serve(line, peer, state).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// One connection.
#[derive(Clone)]
struct Peer {
    number: u64,
    certified: bool,
    server_name: Arc<str>,
    plan: Arc<Plan>,
}

impl Peer {
    /// The fault of a script, from here on.
    fn begin(&self, script: &Script, state: &State) {
        if let Some((after, fault)) = script.fault {
            self.plan.arm(after, fault);
            if fault == Fault::Stall {
                locked(&state.plans).push(self.plan.clone());
            }
        }
    }
}

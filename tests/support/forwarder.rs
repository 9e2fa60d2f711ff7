//! A network that can be cut: forwards TCP connections to a port. While cut it holds all data, like a network
//! that loses every packet; the held data is delivered when the cut is healed.
#![allow(dead_code, reason = "each test binary uses only a part")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The header in which etcd members identify themselves to each other.
const FROM: &str = "x-server-from:";

/// The directions that are currently cut.
#[derive(Clone, Default)]
struct Cut {
    everybody: bool,
    /// The ids of cut-off members.
    members: BTreeSet<String>,
    /// How often connections have been closed.
    severed: usize,
    over: bool,
}

impl Cut {
    fn holds(&self, who: &str) -> bool {
        !self.over && (self.everybody || self.members.contains(who))
    }
}

/// A forwarding port. Its thread and connections end when it is dropped.
pub(crate) struct Forwarder {
    port: u16,
    cut: watch::Sender<Cut>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Forwards to the port `to` on loopback.
    pub(crate) fn before(to: u16) -> Self {
        Self::start(to, false)
    }

    /// The same for peer connections of an etcd cluster, with the sending member identified.
    pub(crate) fn between_members(to: u16) -> Self {
        Self::start(to, true)
    }

    fn start(to: u16, members: bool) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("it can be");
        let port = listener.local_addr().expect("an address").port();
        let (cut, rules) = watch::channel(Cut::default());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                let mut over = rules.clone();
                tokio::select! {
                    _ = over.wait_for(|r| r.over) => {}
                    () = accept(listener, to, members, rules) => {}
                }
            });
        });
        Self {
            port,
            cut,
            thread: Some(thread),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Holds all data in both directions.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|c| c.everybody = true);
    }

    /// Closes all connections; new ones are held.
    pub(crate) fn sever(&self) {
        self.cut.send_modify(|c| {
            c.everybody = true;
            c.severed += 1;
        });
    }

    /// Holds all data from one member.
    pub(crate) fn cut_member(&self, id: &str) {
        self.cut.send_modify(|c| _ = c.members.insert(id.to_owned()));
    }

    /// Forwards everything again.
    pub(crate) fn heal(&self) {
        self.cut.send_modify(|c| {
            c.everybody = false;
            c.members.clear();
        });
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.cut.send_modify(|c| c.over = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, to: u16, members: bool, rules: watch::Receiver<Cut>) {
    while let Ok((stream, _)) = listener.accept().await {
        // An error on a connection just ends that connection.
        let rules = rules.clone();
        tokio::spawn(async move { _ = carry(stream, to, members, rules).await });
    }
}

async fn carry(mut near: TcpStream, to: u16, members: bool, rules: watch::Receiver<Cut>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while members && !head.ends_with(b"\r\n\r\n") {
        head.push(near.read_u8().await?);
    }
    let who = String::from_utf8_lossy(&head).to_lowercase();
    let who = who.lines().find_map(|l| l.strip_prefix(FROM));
    let who = who.map_or(String::new(), |id| id.trim().to_owned());
    let mut open = rules.clone();
    // `wait_for` fails only when the sender is dropped, and then the runtime ends as well.
    let severed = open.wait_for(|r| !r.holds(&who)).await.map_or(0, |r| r.severed);
    let mut far = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    far.write_all(&head).await?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let there = pump(near_in, far_out, &who, rules.clone());
    let back = pump(far_in, near_out, &who, rules);
    // When either side closes, both are closed.
    tokio::select! {
        end = there => end,
        end = back => end,
        _ = open.wait_for(|r| r.severed != severed) => Ok(()),
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    who: &str,
    mut rules: watch::Receiver<Cut>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let n = from.read(&mut buffer).await?;
        let _ = rules.wait_for(|r| !r.holds(who)).await;
        if n == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..n]).await?;
    }
}

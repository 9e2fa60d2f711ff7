//! A network that can be cut: hands TCP connections on to a port, and holds what comes while it is told to, as a network
//! does that loses everything. What is held goes on when the cut is healed.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What etcd's members say of themselves to each other.
const FROM: &str = "x-server-from:";

/// What is held.
#[derive(Clone, Default)]
struct Cut {
    everybody: bool,
    /// Members of a cluster, by what they call themselves.
    members: BTreeSet<String>,
    over: bool,
}

impl Cut {
    fn holds(&self, who: &str) -> bool {
        !self.over && (self.everybody || self.members.contains(who))
    }
}

/// A port before a port. Its thread and connections end when it is dropped.
pub struct Forwarder {
    port: u16,
    cut: watch::Sender<Cut>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Before `to` on loopback.
    pub fn before(to: u16) -> Self {
        Self::start(to, false)
    }

    /// The same between members of an etcd cluster, who can be told apart.
    pub fn between_members(to: u16) -> Self {
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

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Nothing gets through any more, in either direction.
    pub fn cut(&self) {
        self.cut.send_modify(|c| c.everybody = true);
    }

    /// Nothing of one member gets through.
    pub fn cut_member(&self, id: &str) {
        self.cut.send_modify(|c| _ = c.members.insert(id.to_owned()));
    }

    /// Everything gets through again.
    pub fn heal(&self) {
        self.cut.send_modify(|c| *c = Cut::default());
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
        // An end of a connection is no failure of the network.
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
    // The sender ends with the runtime this runs on.
    let _ = open.wait_for(|r| !r.holds(&who)).await;
    let mut far = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    far.write_all(&head).await?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let there = pump(near_in, far_out, &who, rules.clone());
    let back = pump(far_in, near_out, &who, rules);
    // Either side's end is the end of both.
    tokio::select! {
        end = there => end,
        end = back => end,
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

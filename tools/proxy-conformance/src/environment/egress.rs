//! The gateway's egress proxy: CONNECT leads to the scripted backends, whatever host it names.

use crate::wire;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

/// A name that does not resolve, so it can be reached only through the proxy.
pub(super) const HOST: &str = "behind-a-proxy.conformance.invalid";

/// A running proxy, stopped when dropped.
pub struct Egress {
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Egress {
    /// # Errors
    /// If it cannot listen.
    pub(super) fn start(listener: &TcpListener, backends: IpAddr) -> Result<Self, String> {
        let listener = listener.try_clone().map_err(|e| e.to_string())?;
        listener.set_nonblocking(true).map_err(|e| e.to_string())?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(|e| e.to_string())?;
        let backends = match backends {
            IpAddr::V4(a) if a.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(a) if a.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            other => other,
        };
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = asked.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                connections.spawn(connect(tcp, backends, noted.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { asked, task })
    }

    /// The request lines received so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn connect(tcp: TcpStream, backends: IpAddr, asked: Arc<Mutex<Vec<String>>>) {
    let mut io = BufReader::new(tcp);
    let Ok(Some(head)) = wire::head(&mut io).await else {
        return;
    };
    asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(head.first.clone());
    let authority = head.first.strip_prefix("CONNECT ").and_then(|r| r.split(' ').next());
    let port = authority.and_then(|a| a.rsplit_once(':')?.1.parse::<u16>().ok());
    let reached = match port {
        Some(port) => TcpStream::connect((backends, port)).await.ok(),
        None => None,
    };
    let Some(mut backend) = reached else {
        let _ = io
            .write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            .await;
        return;
    };
    if io
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await
        .is_ok()
    {
        // Either end may disconnect.
        let _ = tokio::io::copy_bidirectional(&mut io, &mut backend).await;
    }
}

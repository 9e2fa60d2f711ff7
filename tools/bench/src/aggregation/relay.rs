//! A TCP relay between the gateway and a replica that can hold back all bytes, as a broken network does.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A listening port that forwards to another one.
pub(super) struct Relay {
    pub(super) port: u16,
    to: Arc<AtomicU16>,
    held: watch::Sender<bool>,
}

impl Relay {
    pub(super) async fn start(at: IpAddr, to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((at, 0)).await?;
        let port = listener.local_addr()?.port();
        let to = Arc::new(AtomicU16::new(to));
        let (held, hold) = watch::channel(false);
        let target = to.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (target, hold) = (target.clone(), hold.clone());
                tokio::spawn(async move {
                    let mut waits = hold.clone();
                    // Fails only when the sender is dropped at the end of the run.
                    let _ = waits.wait_for(|held| !held).await;
                    let Ok(far) = TcpStream::connect(("127.0.0.1", target.load(Ordering::Relaxed))).await else {
                        return;
                    };
                    // Send small responses without delay.
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                    tokio::select! {
                        () = pass(near_in, far_out, hold.clone()) => {}
                        () = pass(far_in, near_out, hold) => {}
                    }
                });
            }
        });
        Ok(Self { port, to, held })
    }

    /// Forwards new connections to this port.
    pub(super) fn lead(&self, to: u16) {
        self.to.store(to, Ordering::Relaxed);
    }

    /// Holds back all bytes without closing connections.
    pub(super) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut hold: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let n = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(n) => n,
        };
        if hold.wait_for(|held| !held).await.is_err() || to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

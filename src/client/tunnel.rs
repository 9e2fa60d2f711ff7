//! Upgraded connections: bytes both ways between a client and a backend, until either side ends.

use crate::request::{Request, UntilUpgradeEnds};
use crate::tasks::TaskGroup;
use http::Version;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// The client's side of a coming upgrade.
pub struct ClientSide {
    upgrade: OnUpgrade,
    /// Dropped when the tunnel has ended.
    held: Option<UntilUpgradeEnds>,
}

/// The client's side of a coming upgrade; `None` where its protocol has none.
pub fn client_side(request: &mut Request) -> Option<ClientSide> {
    let is_http1 = matches!(request.version(), Version::HTTP_10 | Version::HTTP_11);
    let can = is_http1 && request.extensions().get::<OnUpgrade>().is_some();
    can.then(|| ClientSide {
        upgrade: hyper::upgrade::on(&mut *request),
        held: request.extensions_mut().remove(),
    })
}

/// Starts a tunnel as a task of `tasks`. False: the group is ending, and both connections close.
#[must_use]
pub fn start(client: ClientSide, backend: OnUpgrade, tasks: &TaskGroup) -> bool {
    let stop = tasks.stop_signal().clone();
    tasks.spawn("upgrade tunnel", async move {
        let ClientSide { upgrade, held: _held } = client;
        let (client, backend) = match tokio::try_join!(upgrade, backend) {
            Ok(both) => both,
            Err(e) => return tracing::debug!("an upgrade came to nothing: {e}"),
        };
        // Whichever comes first ends both connections, by dropping them.
        tokio::select! {
            () = copy_until_either_ends(TokioIo::new(client), TokioIo::new(backend)) => {}
            () = stop.wait() => {}
        }
    })
}

async fn copy_until_either_ends(a: impl AsyncRead + AsyncWrite, b: impl AsyncRead + AsyncWrite) {
    let (mut a_read, mut a_write) = tokio::io::split(a);
    let (mut b_read, mut b_write) = tokio::io::split(b);
    // Either direction's end ends the tunnel; what was read in that direction has been written by then.
    let ended = tokio::select! {
        r = tokio::io::copy(&mut a_read, &mut b_write) => r,
        r = tokio::io::copy(&mut b_read, &mut a_write) => r,
    };
    if let Err(e) = ended {
        tracing::debug!("a tunnel broke off: {e}");
    }
    // TLS is told that the end is meant.
    let _ = tokio::join!(
        tokio::io::AsyncWriteExt::shutdown(&mut a_write),
        tokio::io::AsyncWriteExt::shutdown(&mut b_write)
    );
}

//! Reports the state of the process to systemd (`sd_notify(3)`, `Type=notify` and `WatchdogSec=` in the
//! unit). Does nothing unless systemd asks for it through the environment.
//!
//! The process reports that it is ready once `/readyz` would pass, so units ordered after it can use the
//! gateway. The watchdog is fed by a task of the reactors while `/livez` would pass: a process whose reactors
//! hang is restarted.

use crate::server::Lifecycle;
use crate::server::health::{HealthCheck, HealthEndpoint, pass};
use crate::tasks::TaskGroup;
use sd_notify::NotifyState;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixDatagram;

/// How long the end of the process waits for a service manager that does not receive.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Starts reporting in `tasks`, if systemd started the process.
pub(super) fn report(checks: &Arc<[HealthCheck]>, lifecycle: &Lifecycle, tasks: &TaskGroup) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let socket: Arc<Path> = PathBuf::from(socket).into();
    let (shutdown, last) = (lifecycle.shutdown_initiated.clone(), socket.clone());
    // Not `spawn_until_stopped`: the message is sent during the shutdown.
    tasks.spawn("service manager: stopping", async move {
        shutdown.wait().await;
        let sent = tokio::time::timeout(LAST_WORD, notify(&last, &[NotifyState::Stopping])).await;
        if sent.is_err() {
            tracing::warn!("the service manager did not receive that the process stops");
        }
    });
    let (ready, checks) = (lifecycle.has_been_ready.clone(), checks.clone());
    let watchdog = sd_notify::watchdog_enabled();
    tasks.spawn_until_stopped("service manager: readiness and watchdog", async move {
        ready.wait().await;
        notify(&socket, &[NotifyState::Ready, NotifyState::Status("serving")]).await;
        let Some(limit) = watchdog else { return };
        loop {
            // Silence is the signal: systemd restarts the process when the watchdog is not fed in time.
            if pass(&checks, HealthEndpoint::Livez) {
                notify(&socket, &[NotifyState::Watchdog]).await;
            }
            // The manual asks for half of the limit.
            tokio::time::sleep(limit / 2).await;
        }
    });
}

async fn notify(socket: &Path, states: &[NotifyState<'_>]) {
    if let Err(error) = send(socket, states).await {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}

/// Sends the states in one datagram. Unlike `sd_notify::notify`, which would block the reactor, it waits as a task
/// while the queue of the service manager is full.
async fn send(socket: &Path, states: &[NotifyState<'_>]) -> io::Result<()> {
    let lines: Vec<String> = states.iter().map(NotifyState::to_string).collect();
    let sender = std::os::unix::net::UnixDatagram::unbound()?;
    match socket.as_os_str().as_bytes().strip_prefix(b"@") {
        // A container's manager may listen in the abstract namespace, which has no files.
        Some(name) => sender.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => sender.connect(socket)?,
    }
    sender.set_nonblocking(true)?;
    let sender = UnixDatagram::from_std(sender)?;
    sender.send(lines.join("\n").as_bytes()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_with_an_at_sign_is_in_the_abstract_namespace() {
        let name = format!("torana-test-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = std::os::unix::net::UnixDatagram::bind_addr(&address).unwrap();
        send(Path::new(&format!("@{name}")), &[NotifyState::Ready])
            .await
            .unwrap();
        let mut buffer = [0; 64];
        let n = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"READY=1");
    }

    #[tokio::test]
    async fn a_full_queue_of_the_service_manager_does_not_block_the_reactor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let filler = std::os::unix::net::UnixDatagram::unbound().unwrap();
        filler.connect(&path).unwrap();
        filler.set_nonblocking(true).unwrap();
        while filler.send(b"from another service").is_ok() {}
        let received = async {
            let mut buffer = [0; 64];
            loop {
                let n = manager.recv(&mut buffer).await.unwrap();
                if &buffer[..n] != b"from another service" {
                    return String::from_utf8_lossy(&buffer[..n]).into_owned();
                }
            }
        };
        let states = [NotifyState::Ready, NotifyState::Status("serving")];
        // In this order: the queue is full when the states are sent.
        let (sent, received) = tokio::join!(biased; send(&path, &states), received);
        sent.unwrap();
        assert_eq!(received, "READY=1\nSTATUS=serving");
    }
}

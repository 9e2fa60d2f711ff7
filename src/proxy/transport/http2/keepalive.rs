//! [`Keepalive`]: pings a backend that has been silent, and reports that it does not answer. The connection's task,
//! in `host`, runs it and closes the connection.

use crate::proxy::io::ReceiveFlag;
use h2::{Ping, PingPong};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// Ticks (of one second) without a byte until a ping is sent, until new requests stop, and until the
/// connection closes.
const PING_AFTER: u32 = 2;
const RETIRE_AFTER: u32 = PING_AFTER + 2;
const CLOSE_AFTER: u32 = PING_AFTER + 5;

/// Keepalive: pings the backend after a period of silence.
pub(crate) struct Keepalive {
    pings: Option<PingPong>,
    received: ReceiveFlag,
    /// Ticks since anything was received.
    silent_ticks: u32,
    awaiting: bool,
}

/// Outcome of one keepalive check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepaliveState {
    /// No ping is overdue.
    Alive,
    /// It has just failed to answer a ping in time: no new requests are sent on the connection.
    PingMissed,
    /// It has not answered for too long: the connection is closed.
    Dead,
}

/// The ticks of a connection. Those that this process missed, because it was stopped or got no CPU, are not made up
/// for: in a row, they would give a connection up before its backend could answer the ping.
pub(crate) fn ticks(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl Keepalive {
    /// The keepalive of a connection that has just opened. Without `pings` it never fails.
    pub(crate) fn new(pings: Option<PingPong>, received: ReceiveFlag) -> Self {
        Self {
            pings,
            received,
            silent_ticks: 0,
            awaiting: false,
        }
    }

    /// Runs one check; to be called every second. Any byte received counts as a sign of life, since a pong
    /// can be stuck behind a long response on a slow line.
    pub(crate) fn tick(&mut self) -> KeepaliveState {
        let Some(pings) = &mut self.pings else {
            return KeepaliveState::Alive;
        };
        // Collected only so that h2 accepts the next ping; `received` is the sign of life.
        if self.awaiting && pings.poll_pong(&mut Context::from_waker(Waker::noop())).is_ready() {
            self.awaiting = false;
        }
        if self.received.take() {
            self.silent_ticks = 0;
            return KeepaliveState::Alive;
        }
        self.silent_ticks += 1;
        if self.silent_ticks >= PING_AFTER && !self.awaiting {
            self.awaiting = pings.send_ping(Ping::opaque()).is_ok();
        }
        match self.silent_ticks {
            CLOSE_AFTER.. => KeepaliveState::Dead,
            // Once per silence: reported on each tick, it could eject an address again that has answered a probe
            // meanwhile.
            RETIRE_AFTER => KeepaliveState::PingMissed,
            _ => KeepaliveState::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::connect;
    use super::*;
    use crate::proxy::io::{Connection, TrackedStream};
    use futures_util::FutureExt as _;
    use std::sync::Arc;
    use tokio::net::UnixStream;

    #[tokio::test(start_paused = true)]
    async fn missed_ticks_are_skipped() {
        let period = Duration::from_secs(1);
        let mut ticks = ticks(period);
        tokio::time::advance(period * (CLOSE_AFTER + 1)).await;
        ticks.tick().await;
        assert!(ticks.tick().now_or_never().is_none(), "the backend has time to answer");
        tokio::time::advance(period * 2).await;
        assert!(ticks.tick().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_missed_ping_is_reported_once() {
        let (here, _silent) = UnixStream::pair().unwrap();
        let connection = Connection::Plain(TrackedStream::unix(here));
        // Kept, but not driven: the pings need not be sent.
        let (_http2, mut keepalive, _driving) = connect(connection, 1, None, Arc::default()).await.unwrap();
        let states: Vec<_> = (0..CLOSE_AFTER).map(|_| keepalive.tick()).collect();
        assert_eq!(states.last(), Some(&KeepaliveState::Dead));
        let missed = states.iter().filter(|s| **s == KeepaliveState::PingMissed).count();
        assert_eq!(missed, 1, "{states:?}");
    }
}

//! Connection limits under load. 127.0.0.1 counts as loopback; other addresses of this machine count as
//! remote.

use super::support::{self, Fixture, Running, answer_with, is_closed, tcp_from};
use super::*;
use std::net::IpAddr;
use tokio::net::TcpStream;

const ATTACKER: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];
const LOCAL: [u8; 4] = [127, 0, 0, 1];

fn limits(connections: usize) -> Limits {
    Limits {
        max_connections: connections,
        is_loopback: |address| address == IpAddr::from(LOCAL),
        ..Limits::default()
    }
}

/// A server that authenticates every client with a certificate.
fn serve(fixture: &Fixture, limits: Limits) -> Running {
    fixture.serve(
        limits,
        answer_with(|req| {
            let context = RequestContext::of(&req);
            if context.certificates.is_some() {
                context.connection.as_ref().unwrap().authenticated("admin");
            }
            Response::new(Body::full("ok"))
        }),
    )
}

/// Opens sockets that send nothing.
async fn silent(n: usize, server: &Running) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..n {
        all.push(tcp_from(ATTACKER, server).await.unwrap());
    }
    all
}

/// Reconnects forever, as fast as possible, whenever the peer closes the connection.
async fn reconnect(mut stream: TcpStream, to: std::net::SocketAddr) {
    loop {
        is_closed(&mut stream).await;
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((ATTACKER, 0).into()).unwrap();
        match socket.connect(to).await {
            Ok(next) => stream = next,
            Err(_) => return,
        }
    }
}

#[tokio::test]
async fn an_administrator_connects_while_an_attacker_holds_every_slot() {
    let fixture = Fixture::new();
    let server = serve(&fixture, limits(64));
    let mut attackers = tokio::task::JoinSet::new();
    // Several times the number of slots, so that each is contested all the time.
    for stream in silent(300, &server).await {
        attackers.spawn(reconnect(stream, server.addr()));
    }
    for alpn in ["h2", "http/1.1"] {
        for _ in 0..20 {
            let local = fixture.connect(&server, "localhost", &[alpn], None).await.unwrap();
            assert_eq!(support::get(local, "/").await.1, "ok");
            let admin = fixture
                .connect_from(OTHER, &server, &[alpn], Some(&fixture.client))
                .await
                .unwrap();
            assert_eq!(support::get(admin, "/").await.1, "ok");
        }
    }
    assert!(server.handle.evicted() > 0);
    assert_eq!(server.handle.refused(), 0);
}

#[tokio::test]
async fn the_longest_idle_unauthenticated_connection_is_evicted_first() {
    let fixture = Fixture::new();
    let server = serve(
        &fixture,
        Limits {
            max_per_address: Some(3),
            ..limits(64)
        },
    );
    let ask = async |tls: &mut support::Tls| {
        tls.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 512];
        let n = tls.read(&mut answer).await.unwrap_or(0);
        n > 0 && answer[..n].ends_with(b"ok")
    };
    let connect = async |client| {
        let mut tls = fixture
            .connect_from(ATTACKER, &server, &["http/1.1"], client)
            .await
            .unwrap();
        assert!(ask(&mut tls).await);
        tls
    };
    let mut known = connect(Some(&fixture.client)).await;
    let mut first = connect(None).await;
    let mut second = connect(None).await;
    let mut third = connect(None).await;
    // Timestamps have millisecond resolution: make sure that the first connection's next use is later than
    // the second's.
    let used = std::time::Instant::now();
    while used.elapsed() < Duration::from_millis(3) {
        tokio::task::yield_now().await;
    }
    assert!(ask(&mut first).await);
    let mut fourth = connect(None).await;
    assert!(is_closed(&mut second).await);
    for tls in [&mut known, &mut first, &mut third, &mut fourth] {
        assert!(ask(tls).await);
    }
    assert_eq!(server.handle.evicted(), 1);
}

#[tokio::test]
async fn half_open_connections_are_bounded() {
    let fixture = Fixture::new();
    let server = serve(
        &fixture,
        Limits {
            max_half_open: Some(5),
            ..limits(64)
        },
    );
    let mut open = fixture
        .connect_from(ATTACKER, &server, &["http/1.1"], None)
        .await
        .unwrap();
    let mut half_open = silent(6, &server).await;
    assert!(is_closed(&mut half_open[0]).await, "the oldest one is evicted");
    open.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(open.read_u8().await.is_ok(), "other connections stay open");
    assert_eq!(server.handle.evicted(), 1);
}

#[tokio::test]
async fn an_evicted_upgraded_connection_is_cut() {
    let fixture = Fixture::new();
    let handler = answer_with(|mut req| {
        let upgrade = hyper::upgrade::on(&mut req);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            io.write_all(b"up").await.unwrap();
            io.read_u8().await.unwrap_err();
        });
        support::switching_protocols()
    });
    let server = fixture.serve(
        Limits {
            max_per_address: Some(1),
            ..limits(64)
        },
        handler,
    );
    let mut upgraded = fixture
        .connect_from(ATTACKER, &server, &["http/1.1"], None)
        .await
        .unwrap();
    let head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    upgraded.write_all(head).await.unwrap();
    let mut heard = Vec::new();
    // Byte by byte, since the payload may arrive together with the head.
    while !heard.ends_with(b"up") {
        heard.push(upgraded.read_u8().await.unwrap());
    }
    let _next = fixture.connect_from(ATTACKER, &server, &["http/1.1"], None).await;
    assert!(is_closed(&mut upgraded).await);
}

#[tokio::test]
async fn a_busy_http2_connection_yields_after_its_time_budget() {
    let fixture = Fixture::new();
    // Each request computes for longer than the budget of one round.
    let work = Duration::from_millis(2);
    let server = fixture.serve(
        Limits {
            yield_after: Duration::from_millis(1),
            ..Limits::default()
        },
        answer_with(move |req| {
            let begun = std::time::Instant::now();
            while req.uri().path() == "/slow" && begun.elapsed() < work {
                std::hint::spin_loop();
            }
            Response::new(Body::full("ok"))
        }),
    );
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut sender, _connection) = support::http2(tls).await;
    let slow: Vec<_> = (0..60)
        .map(|_| sender.send_request(support::request("/slow")))
        .collect();
    let slow = tokio::spawn(futures_util::future::join_all(slow));
    let turns = tokio::spawn(async move {
        let mut turns = 0;
        while !slow.is_finished() {
            // Re-queues the task behind all ready ones. `yield_now` would instead wait for the I/O driver to
            // be polled.
            let mut is_first = true;
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                match std::mem::take(&mut is_first) {
                    true => std::task::Poll::Pending,
                    false => std::task::Poll::Ready(()),
                }
            })
            .await;
            turns += 1;
        }
        (turns, slow.await.unwrap())
    });
    let (turns, answers) = turns.await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
    // Each round ends after one request, so the other task runs at least as often.
    assert!(
        turns >= 60,
        "another task ran {turns} times while 60 requests were computed"
    );
}

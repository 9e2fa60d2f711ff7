//! Responses to clients when a backend is wrong, slow, gone or hostile.

use super::{H1, H2, head};
use crate::aggregator::apiservice::ServiceReference;
use crate::aggregator::backend_stats::{BackendLimits, BackendStats};
use crate::aggregator::proxy::{ProxyHandler, Remote, Settings};
use crate::aggregator::testing::*;
use crate::request::{Body, RequestContext, UnprotectedHandler};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncWriteExt;

async fn refused(pki: &Pki, trusted: &str) -> String {
    let backend = Backend::http(pki, 100, |_| async { response(200, "ok") }).await;
    let a = proxy(&backend.authority, trusted)
        .serve(get("/apis/g/v1/x"), alice())
        .await;
    assert_eq!(a.headers()["x-content-type-options"], "nosniff");
    assert_eq!(a.status(), 503);
    text(a).await
}

#[tokio::test]
async fn certificates_are_verified_as_go_does() {
    let good = Pki::new(&["ext.ns.svc"], H2);
    let prefix = "error trying to reach service: tls: failed to verify certificate: x509:";
    assert_eq!(
        refused(&good, &Pki::new(&["ext.ns.svc"], H2).ca_pem).await,
        format!("{prefix} certificate signed by unknown authority\n")
    );
    let other = Pki::new(&["a.b.svc", "c"], H2);
    assert_eq!(
        refused(&other, &other.ca_pem).await,
        format!("{prefix} certificate is valid for a.b.svc, c, not ext.ns.svc\n")
    );
    let nameless = Pki::new(&[], H2);
    assert_eq!(
        refused(&nameless, &nameless.ca_pem).await,
        format!("{prefix} certificate is not valid for any names, but wanted to match ext.ns.svc\n")
    );
    let own = Pki::own_ca(&["ext.ns.svc"]);
    let backend = Backend::http(&own, 100, |_| async { response(200, "ok") }).await;
    let ok = |ca: &str| {
        let p = proxy(&backend.authority, ca);
        async move { text(p.clone().serve(get("/x"), alice()).await).await }
    };
    assert_eq!(ok(&own.ca_pem).await, "ok");
    assert_eq!(ok("").await, "ok", "verification is off");
    let own_but_wrong_name = Pki::own_ca(&["x.y.svc"]);
    assert_eq!(
        refused(&own_but_wrong_name, &own_but_wrong_name.ca_pem).await,
        format!("{prefix} certificate is valid for x.y.svc, not ext.ns.svc\n")
    );
}

#[tokio::test]
async fn an_unreachable_backend_is_503_with_its_address() {
    let response = proxy(&DEAD.to_string(), "").serve(get("/x"), alice()).await;
    assert_eq!(
        text(response).await,
        format!("error trying to reach service: dial tcp {DEAD}: connect: connection refused\n")
    );
}

#[tokio::test]
async fn settings_that_prevent_a_request_are_reported_without_dialing() {
    let settings = |available, transport| {
        Settings::Remote(Arc::new(Remote {
            service: ServiceReference::new("ns", "ext", 443),
            available,
            transport,
            stats: Arc::new(BackendStats::new(Default::default())),
        }))
    };
    let shared = shared(Arc::new(Always("127.0.0.1:1".into())));
    let handler = Arc::new(ProxyHandler::new(shared, settings(false, transport("junk"))));
    let a = handler.clone().serve(get("/x"), alice()).await;
    assert_eq!(a.status(), 503);
    assert_eq!(a.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(text(a).await, "service unavailable\n");
    handler.set(settings(true, transport("junk")));
    let a = handler.clone().serve(get("/x"), alice()).await;
    assert_eq!(a.status(), 500);
    assert_eq!(
        text(a).await,
        "unable to load root certificates: unable to parse bytes as PEM block\n"
    );
    handler.set(Settings::Local);
    assert_eq!(handler.clone().serve(get("/x"), alice()).await.status(), 404);
}

#[tokio::test]
async fn redirects_are_refused() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move {
        let mut a = response(302, "");
        if r.uri().path() == "/broken" {
            a.headers_mut().insert("location", "/%zz".parse().unwrap());
        } else if r.uri().path() != "/bare" {
            a.headers_mut().insert("location", "https://evil/".parse().unwrap());
        }
        a
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    let a = p.clone().serve(get("/x"), alice()).await;
    assert_eq!(
        (a.status().as_u16(), a.headers().contains_key("location")),
        (502, false)
    );
    assert_eq!(a.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(
        text(a).await,
        "the backend attempted to redirect this request, which is not permitted"
    );
    assert_eq!(p.clone().serve(get("/bare"), alice()).await.status(), 302);
    let a = p.clone().serve(get("/broken"), alice()).await;
    assert_eq!(a.status(), 503);
    assert_eq!(
        text(a).await,
        "Internal error occurred: error trying to parse Location header: parse \"/%zz\": invalid URL escape \"%zz\"\n"
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    for announced in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let pki = Pki::new(&["ext.ns.svc"], H1);
        let backend = raw_backend(&pki, move |mut s| async move {
            head(&mut s).await;
            // A valid beginning in either framing.
            let response = format!("HTTP/1.1 200 OK\r\n{announced}\r\n\r\n5\r\nhello");
            s.write_all(response.as_bytes()).await.unwrap();
        })
        .await;
        let a = proxy(&backend.authority, &pki.ca_pem).serve(get("/x"), alice()).await;
        assert_eq!(a.status(), 200);
        assert!(a.into_body().collect(100).await.is_err(), "{announced}");
    }
}

#[tokio::test]
async fn garbage_is_503() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let backend = raw_backend(&pki, |mut s| async move {
        head(&mut s).await;
        s.write_all(b"BLAH BLAH\r\n\r\n").await.unwrap();
    })
    .await;
    let a = proxy(&backend.authority, &pki.ca_pem).serve(get("/x"), alice()).await;
    assert_eq!(a.status(), 503);
    let t = text(a).await;
    assert!(
        t.starts_with("error trying to reach service: net/http: HTTP/1.x transport connection broken"),
        "{t}"
    );
}

#[tokio::test]
async fn a_get_is_retried_if_its_idle_connection_died() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let backend = raw_backend(&pki, move |mut s| {
        let count = count.clone();
        async move {
            head(&mut s).await;
            // The first request is answered; the connection dies during the second.
            s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await
                .unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            head(&mut s).await;
        }
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    for _ in 0..3 {
        assert_eq!(text(p.clone().serve(get("/x"), alice()).await).await, "ok");
    }
    assert_eq!(served.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_streaming_body_ends_with_its_backend() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let (go, gone) = tokio::sync::watch::channel(false);
    let backend = Backend::http(&pki, 100, move |_| {
        let mut gone = gone.clone();
        async move {
            let first = futures_util::stream::iter([Ok::<_, std::io::Error>(http_body::Frame::data("a".into()))]);
            let then = futures_util::stream::once(async move {
                let _ = gone.wait_for(|g| *g).await;
                Err(std::io::Error::other("broken"))
            });
            use futures_util::StreamExt as _;
            http::Response::new(crate::request::Body::stream(http_body_util::StreamBody::new(
                first.chain(then),
            )))
        }
    })
    .await;
    let a = proxy(&backend.authority, &pki.ca_pem).serve(get("/x"), alice()).await;
    let mut body = a.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
    go.send(true).unwrap();
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn a_goaway_loses_no_request() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = raw_backend(&pki, |stream| async move {
        let served = Arc::new(tokio::sync::Notify::new());
        let notify = served.clone();
        let service = hyper::service::service_fn(move |_| {
            notify.notify_one();
            async { Ok::<_, std::convert::Infallible>(response(200, "ok")) }
        });
        let b = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
        let connection = b.serve_connection(hyper_util::rt::TokioIo::new(stream), service);
        tokio::pin!(connection);
        // One request, then GOAWAY.
        tokio::select! {
            _ = &mut connection => return,
            () = served.notified() => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    for _ in 0..20 {
        assert_eq!(text(p.clone().serve(get("/x"), alice()).await).await, "ok");
    }
}

#[tokio::test]
async fn a_get_refused_unprocessed_is_retried() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = raw_backend(&pki, |stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut seen = 0;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            seen += 1;
            if seen % 2 == 1 {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            } else {
                let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                body.send_data("ok".into(), true).unwrap();
            }
        }
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    for _ in 0..3 {
        assert_eq!(text(p.clone().serve(get("/x"), alice()).await).await, "ok");
    }
}

#[tokio::test]
async fn a_backend_that_misses_pings_is_abandoned() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let backend = raw_backend(&pki, move |stream| {
        let sender = sender.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let taken = connection.accept().await;
            sender.send(()).unwrap();
            // The connection stays open, but nobody reads from it any more.
            std::future::pending::<()>().await;
            drop(taken);
        }
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    let client = tokio::spawn(async move { text(p.clone().serve(get("/x"), alice()).await).await });
    receiver.recv().await.unwrap();
    // Only now: the TLS handshake needs real time. From here on the clock jumps from one ping to the next.
    tokio::time::pause();
    assert_eq!(
        client.await.unwrap(),
        "error trying to reach service: read: broken pipe\n"
    );
}

/// A backend with limits, its statistics and its proxy handler.
async fn with_limits(limits: BackendLimits) -> (Backend, Arc<BackendStats>, Arc<ProxyHandler>) {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |_| async { response(200, "ok") }).await;
    let stats = Arc::new(BackendStats::new(limits));
    let p = proxy_with(&backend.authority, transport(&pki.ca_pem), stats.clone());
    (backend, stats, p)
}

#[tokio::test]
async fn requests_over_the_limit_are_429_except_for_masters() {
    let (_backend, stats, p) = with_limits(BackendLimits {
        requests: 1,
        watches: 0,
    })
    .await;
    let under_way = stats.enter(false, "jane", || false);
    let a = p.clone().serve(get("/x"), alice()).await;
    assert_eq!(
        (a.status().as_u16(), &a.headers()["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    let status = crate::apimachinery::codec::json::decode(text(a).await.as_bytes()).unwrap();
    assert_eq!(status.str_at(&["reason"]), "TooManyRequests");
    let masters = crate::request::UserInfo::system("root", &["system:masters"]);
    let a = p
        .clone()
        .serve(get("/x"), crate::request::Authorized::for_test(masters))
        .await;
    assert_eq!(a.status(), 200);
    drop(a);
    drop(under_way);
    assert_eq!(text(p.clone().serve(get("/x"), alice()).await).await, "ok");
    assert_eq!(stats.snapshot().in_flight, 0, "places are released");
}

#[tokio::test]
async fn trailers_pass_in_both_directions_without_identities() {
    for alpn in [H1, H2] {
        let pki = Pki::new(&["ext.ns.svc"], alpn);
        let backend = Backend::http(&pki, 100, |r| async move {
            let announced = r.headers().get("trailer").map(|t| t.to_str().unwrap().to_owned());
            let sent = r.into_body().collect().await.unwrap();
            let mut names: Vec<String> = sent
                .trailers()
                .into_iter()
                .flat_map(|t| t.keys())
                .map(|k| k.to_string())
                .collect();
            names.sort();
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-sum", "1".parse().unwrap());
            let frames = [
                Ok::<_, std::io::Error>(http_body::Frame::data(format!("{announced:?} {names:?}").into())),
                Ok(http_body::Frame::trailers(trailers)),
            ];
            let stream = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
            let mut a = http::Response::new(crate::request::Body::stream(stream));
            a.headers_mut().insert("trailer", "X-Sum".parse().unwrap());
            a
        })
        .await;
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-check", "1".parse().unwrap());
        trailers.insert("x-remote-user", "root".parse().unwrap());
        let frames = [
            Ok::<_, std::io::Error>(http_body::Frame::data("up".into())),
            Ok(http_body::Frame::trailers(trailers)),
        ];
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        let r = http::Request::post("/x")
            .header("te", "trailers")
            .header("trailer", "X-Check, X-Remote-User")
            .body(crate::request::Body::stream(body))
            .unwrap();
        let a = proxy(&backend.authority, &pki.ca_pem).serve(r, alice()).await;
        assert_eq!(a.headers()["trailer"], "X-Sum");
        let whole = a.into_body().collect_with_trailers().await;
        assert_eq!(whole.0, "Some(\"X-Check\") [\"x-check\"]");
        assert_eq!(whole.1["x-sum"], "1");
    }
}

trait Whole {
    async fn collect_with_trailers(self) -> (String, http::HeaderMap);
}

impl Whole for crate::request::Body {
    async fn collect_with_trailers(self) -> (String, http::HeaderMap) {
        let whole = BodyExt::collect(self).await.unwrap();
        let trailers = whole.trailers().cloned().unwrap_or_default();
        (String::from_utf8(whole.to_bytes().to_vec()).unwrap(), trailers)
    }
}

#[tokio::test]
async fn watches_have_a_separate_limit() {
    let (_backend, stats, p) = with_limits(BackendLimits {
        requests: 1,
        watches: 1,
    })
    .await;
    let watch = || {
        let mut r = get("/apis/g/v1/things?watch=1");
        let info = crate::request::RequestInfo::resolve(r.method(), r.uri()).unwrap();
        RequestContext::of_mut(&mut r).info = Some(Arc::new(info));
        r
    };
    let _open = stats.enter(true, "jane", || false);
    let refused = p.clone().serve(watch(), alice()).await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    assert!(text(refused).await.contains("too many watches are open"));
    assert_eq!(
        p.clone().serve(get("/x"), alice()).await.status(),
        200,
        "requests are not affected"
    );
}

#[tokio::test]
async fn a_request_dropped_before_its_response_counts_as_unanswered() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let backend = Backend::http(&pki, 100, move |_| {
        sender.send(()).unwrap();
        std::future::pending::<http::Response<Body>>()
    })
    .await;
    let stats = Arc::new(BackendStats::new(Default::default()));
    let p = proxy_with(&backend.authority, transport(&pki.ca_pem), stats.clone());
    // As the timeout filter does.
    tokio::select! {
        response = p.clone().serve(get("/apis/g/v1/x"), alice()) => panic!("{}", response.status()),
        _ = receiver.recv() => {}
    }
    let f = stats.snapshot();
    assert_eq!((f.unanswered, f.answered, f.unreachable, f.in_flight), (1, 0, 0, 0));
}

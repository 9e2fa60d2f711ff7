//! A webhook on loopback, with a certificate of its own.

use super::{ResolveError, ResolveService, Webhooks};
use crate::client::testing::acceptor;
use crate::proxy::outbound::Outbound;
use crate::proxy::tls::TlsBuilder;
use crate::request::Handler;
use crate::tasks::TaskGroup;
use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::net::TcpListener;

/// A running webhook; it ends with the test's runtime.
pub(crate) struct FakeWebhook {
    pub address: SocketAddr,
    /// The `caBundle` that verifies it.
    pub ca_bundle: String,
    /// Connections accepted.
    pub connections: Arc<AtomicUsize>,
}

impl FakeWebhook {
    /// Starts a webhook for these host names that responds with `respond`.
    pub(crate) async fn start<F, R>(names: &[&str], respond: F) -> Self
    where
        F: Fn(Request<Bytes>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Bytes>> + Send + 'static,
    {
        let (acceptor, certificate) = acceptor(names);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (acceptor, respond) = (acceptor.clone(), respond.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |req: Request<Incoming>| {
                        let respond = respond.clone();
                        async move {
                            let (parts, body) = req.into_parts();
                            let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
                            let response = respond(Request::from_parts(parts, body)).await;
                            Ok::<_, Infallible>(response.map(Full::new))
                        }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(tls), service).await;
                });
            }
        });
        Self {
            address,
            ca_bundle: base64::engine::general_purpose::STANDARD.encode(certificate),
            connections,
        }
    }

    /// The number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Resolves every Service to the given addresses, except that of this server.
pub(crate) struct Fixed(pub Result<Arc<[Arc<str>]>, ResolveError>, Option<Weak<dyn Handler>>);

impl ResolveService for Fixed {
    fn addresses(&self, _: &str, _: &str, _: u16) -> Result<Arc<[Arc<str>]>, ResolveError> {
        self.0.clone()
    }

    fn own_server(&self) -> Option<Arc<dyn Handler>> {
        self.1.as_ref()?.upgrade()
    }
}

/// Webhooks whose Services resolve to these addresses.
pub(crate) fn webhooks(services: Result<Vec<Arc<str>>, ResolveError>) -> Webhooks {
    resolved_by(Fixed(services.map(Into::into), None))
}

/// Webhooks of which some are this server, which ends when the caller drops it.
pub(crate) fn webhooks_of(server: &Arc<dyn Handler>) -> Webhooks {
    resolved_by(Fixed(
        Err(ResolveError::NoAddress("no such Service".to_owned())),
        Some(Arc::downgrade(server)),
    ))
}

fn resolved_by(services: Fixed) -> Webhooks {
    let tasks = TaskGroup::new("test");
    // It outlives the webhooks, as in the gateway. The test's runtime ends its tasks.
    std::mem::forget(tasks.clone());
    Webhooks::new(
        TlsBuilder::new(Arc::new(aws_lc_rs::default_provider())),
        Outbound::direct(),
        Arc::new(services),
        tasks,
    )
}

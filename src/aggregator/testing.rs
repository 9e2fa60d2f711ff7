//! Test doubles for the aggregator: an in-memory storage, certificates made on the fly, TLS backends on
//! 127.0.0.1, a clock that is advanced by hand, and [`World`], a whole aggregator.

mod backend;
mod clock;
mod store;
mod world;

pub(crate) use backend::{Backend, Pki, ReservedPort, client_pair, raw_backend, response};
pub(crate) use clock::Still;
pub(crate) use store::{MemoryStorage, Writer, running};
pub(crate) use world::{OWN, World, apiservice};

use super::apiservice::ServiceReference;
use super::backend_stats::BackendStats;
use super::proxy::{ProxyHandler, ProxyShared, Remote, Settings, TerminationMetrics};
use super::references::References;
use super::resolver::{ResolveError, ServiceResolver};
use super::transports::{ForwardingHeaders, TransportError, Transports};
use crate::proxy::hops::Hops;
use crate::proxy::outbound::Outbound;
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::tls::{self, ClientTls, TlsBuilder, TlsInputs};
use crate::proxy::transport::{ConnectionLimits, Transport};
use crate::request::{Authorized, Body, Request, RequestInfo, Response, UnprotectedHandler, UserInfo};
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Nothing listens there. Not the port of a closed listener, which another test may get.
pub(crate) const DEAD: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// Resolves everything to one address.
pub(crate) struct Always(pub String);

impl ServiceResolver for Always {
    fn resolve(&self, _: &ServiceReference) -> Result<Arc<str>, ResolveError> {
        Ok(self.0.as_str().into())
    }
}

/// Answers 404 for everything.
pub(crate) struct Nothing;

#[async_trait::async_trait]
impl UnprotectedHandler for Nothing {
    async fn serve(self: Arc<Self>, _: Request, _: Authorized) -> Response {
        let mut r = Response::new("404 page not found\n".into());
        *r.status_mut() = http::StatusCode::NOT_FOUND;
        r
    }
}

impl TerminationMetrics for () {
    fn record(&self, _: Option<&RequestInfo>, _: http::StatusCode) {}
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A task group that outlives the handlers of a test, as in the gateway. The test's runtime ends its tasks.
pub(crate) fn tasks() -> TaskGroup {
    let group = TaskGroup::new("test");
    std::mem::forget(group.clone());
    group
}

pub(crate) fn shared(resolver: Arc<dyn ServiceResolver>) -> Arc<ProxyShared> {
    Arc::new(ProxyShared {
        delegate: Arc::new(Nothing),
        resolver,
        tasks: tasks(),
        identities: Default::default(),
        reject_redirects: true,
        terminations: Arc::new(()),
        policy: ProxyPolicy {
            hops: Arc::new(Hops::named("gateway")),
            ..ProxyPolicy::default()
        },
    })
}

/// A transport cache without any Secrets or ConfigMaps.
pub(crate) fn transports(telemetry: &Telemetry) -> Transports {
    let (references, _feeds) = References::new(MemoryStorage::new(), MemoryStorage::new(), provider());
    Transports::new(
        provider(),
        references,
        Outbound::direct(),
        tasks(),
        ConnectionLimits::default(),
        ForwardingHeaders {
            hop: Hops::named("gateway").own().clone(),
            identity: Arc::default(),
        },
        telemetry,
    )
}

/// A transport that trusts `ca_pem` for `ext.ns.svc`, or any certificate if it is empty.
pub(crate) fn transport(ca_pem: &str) -> Result<Arc<Transport>, TransportError> {
    let tls = tls(ca_pem).map_err(TransportError::Bundle)?;
    Ok(Arc::new(Transport::new(tls, Arc::default(), tasks())))
}

fn tls(ca_pem: &str) -> Result<ClientTls, tls::Error> {
    TlsBuilder::new(provider()).build(&TlsInputs {
        insecure: ca_pem.is_empty(),
        ca_bundle: Bytes::from(ca_pem.as_bytes().to_vec()).into(),
        server_name: "ext.ns.svc".into(),
        identity: None,
    })
}

/// The TLS configuration of such a transport.
pub(crate) fn transport_tls(ca_pem: &str) -> ClientTls {
    tls(ca_pem).unwrap()
}

pub(crate) fn proxy(authority: &str, ca_pem: &str) -> Arc<ProxyHandler> {
    proxy_with(
        authority,
        transport(ca_pem),
        Arc::new(BackendStats::new(Default::default())),
    )
}

/// A handler whose backend is always at this address.
pub(crate) fn proxy_with(
    authority: &str,
    transport: Result<Arc<Transport>, TransportError>,
    stats: Arc<BackendStats>,
) -> Arc<ProxyHandler> {
    let settings = Settings::Remote(Arc::new(Remote {
        service: ServiceReference::new("ns", "ext", 443),
        available: true,
        transport,
        stats,
    }));
    Arc::new(ProxyHandler::new(
        shared(Arc::new(Always(authority.to_owned()))),
        settings,
    ))
}

pub(crate) fn alice() -> Authorized {
    Authorized::for_test(UserInfo::system("alice", &["dev", "system:authenticated"]))
}

pub(crate) fn get(path: &str) -> Request {
    http::Request::get(path).body(Body::empty()).unwrap()
}

pub(crate) async fn text(r: Response) -> String {
    let bytes = r.into_body().collect(1 << 24).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

//! The cost of admission webhooks: none, many that do not match, one that matches, and the latency of other
//! kinds beside one that hangs.

use crate::client::{Load, load};
use crate::gateway::{Gateway, config_map, start};
use crate::process::free_port;
use crate::report::Report;
use crate::report::{note, per};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

mod hung;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const TIME: Duration = Duration::from_secs(5);
/// Rounds of runs without and with webhooks in alternation, so that both see the same machine.
const ROUNDS: usize = 3;

/// A webhook in this process, whose CPU time is therefore not the gateway's.
struct Webhook {
    port: u16,
    bundle: String,
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/hang" {
        std::future::pending::<()>().await;
    }
    let body = request
        .into_body()
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true}});
    Ok(Response::new(Full::new(answer.to_string().into())))
}

impl Webhook {
    async fn start() -> Result<Self, String> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).map_err(|e| e.to_string())?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key)
            .map_err(|e| e.to_string())?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // The gateway ends connections when it stops.
                    let _ = http.serve_connection(TokioIo::new(tls), service_fn(answer)).await;
                });
            }
        });
        Ok(Self {
            port,
            bundle: made.cert.pem(),
        })
    }

    /// Configures a webhook for CREATEs of `resource`.
    async fn configure(&self, g: &Gateway, name: &str, path: &str, resource: &str) -> Result<(), String> {
        let url = format!("https://127.0.0.1:{}/{path}", self.port);
        let configuration = json!({"metadata": {"name": name}, "webhooks": [{
            "name": format!("{name}.bench.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "timeoutSeconds": 1,
            "clientConfig": {"url": url, "caBundle": BASE64_STANDARD.encode(&self.bundle)},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]}]});
        let made = g
            .target
            .once(Method::POST, CONFIGURATIONS, &configuration.to_string())
            .await?;
        match made.0.is_success() {
            true => Ok(()),
            false => Err(format!("{name}: {}", String::from_utf8_lossy(&made.1))),
        }
    }
}

async fn remove(g: &Gateway, name: &str) -> Result<(), String> {
    let removed = g
        .target
        .once(Method::DELETE, &format!("{CONFIGURATIONS}/{name}"), "")
        .await?;
    match removed.0.is_success() {
        true => Ok(()),
        false => Err(format!("{name} cannot be removed: {}", removed.0)),
    }
}

/// Creates ConfigMaps with new names from `serial` on; returns the load and its CPU time per request in µs.
async fn creates(
    g: &Gateway,
    (connections, streams): (usize, usize),
    serial: &Arc<AtomicU64>,
) -> Result<(Load, f64), String> {
    let (cpu, serial) = (g.server.cpu(), serial.clone());
    let l = load(&g.target, connections, streams, TIME, 0, move |_| {
        let i = serial.fetch_add(1, Ordering::Relaxed);
        (Method::POST, MAPS.into(), config_map(i))
    })
    .await?;
    let spent = per(g.server.cpu() - cpu, l.requests);
    Ok((l, spent))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

pub async fn run(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let own = dir.join("webhooks");
    std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
    let g = start(torana, &own, free_port()?).await?;
    let webhook = Webhook::start().await?;
    let serial = Arc::new(AtomicU64::new(0));
    creates(&g, (4, 8), &serial).await?;

    let (mut cpu, mut latency, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = String::new();
    for _ in 0..ROUNDS {
        let (_, none) = creates(&g, (4, 8), &serial).await?;
        let (alone, _) = creates(&g, (1, 1), &serial).await?;
        webhook.configure(&g, "matching", "allow", "configmaps").await?;
        let (l, one) = creates(&g, (4, 8), &serial).await?;
        let (called, _) = creates(&g, (1, 1), &serial).await?;
        remove(&g, "matching").await?;
        for i in 0..100 {
            webhook.configure(&g, &format!("other-{i}"), "allow", "secrets").await?;
        }
        let (_, hundred) = creates(&g, (4, 8), &serial).await?;
        for i in 0..100 {
            remove(&g, &format!("other-{i}")).await?;
        }
        cpu.push(one - none);
        latency.push(called.mean_us - alone.mean_us);
        others.push(hundred - none);
        last = note(&l);
    }
    r.row(
        "one matching webhook, more than none",
        median(cpu),
        "µs CPU",
        120.0,
        &last,
    );
    let how = "one request at a time; includes the webhook's own time in this process";
    r.row(
        "one matching webhook, more than none",
        median(latency),
        "µs mean",
        0.0,
        how,
    );
    let how = "differences below the noise of the machine may be negative";
    r.row(
        "100 webhooks that do not match, more than none",
        median(others),
        "µs CPU",
        2.0,
        how,
    );

    hung::run(&g, &webhook, &serial, r).await?;
    g.server.stop();
    Ok(())
}

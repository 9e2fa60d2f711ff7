//! The spans of a proxied GET and of a create, as a subscriber in the gateway's process sees them.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use torana::apimachinery::Value;
use torana::gateway::{Command, parse};
use torana::json;
use torana::sdk::client::{Client, ClientConfig};
use torana::testing::telemetry::TARGET;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

const GROUP: &str = "traced.example.com";
const SECRET: &str = "not for the trace";

#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<usize>,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// A span's place in the collection: ids are reused.
#[derive(Clone, Copy)]
struct Place(usize);

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Seen>>>);

fn place<S: for<'a> LookupSpan<'a> + tracing::Subscriber>(cx: &Context<'_, S>, id: &Id) -> Option<usize> {
    let span = cx.span(id)?;
    let place = span.extensions().get::<Place>().copied();
    place.map(|p| p.0)
}

impl<S: for<'a> LookupSpan<'a> + tracing::Subscriber> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let span = cx.span(id).unwrap();
        let mut seen = Seen {
            name: span.name(),
            parent: span.parent().and_then(|parent| place(&cx, &parent.id())),
            fields: BTreeMap::new(),
        };
        attributes.record(&mut seen);
        let mut all = self.0.lock().unwrap();
        span.extensions_mut().insert(Place(all.len()));
        all.push(seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let place = place(&cx, id).unwrap();
        values.record(&mut self.0.lock().unwrap()[place]);
    }
}

impl Collector {
    /// The ancestors of the span that fits, itself first.
    fn line_of(&self, fits: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let all = self.0.lock().unwrap();
        let mut at = all.iter().rposition(fits);
        let mut line = Vec::new();
        while let Some(i) = at {
            line.push(all[i].clone());
            at = all[i].parent;
        }
        line
    }
}

fn assert_fields(seen: &Seen, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let found = seen.fields.get(name).map(String::as_str);
        assert_eq!(found, Some(*value), "{name} of {seen:?}");
    }
}

/// An extension API server of sorts: it answers every path with a list of resources. Returns its port.
async fn backend() -> u16 {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key);
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut tls = acceptor.accept(tcp).await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match tls.read_u8().await {
                        Ok(b) => head.push(b),
                        Err(_) => return,
                    }
                }
                let body = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"traced.example.com/v1","resources":[]}"#;
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                let response = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                let _ = tls.write_all(response.as_bytes()).await;
                let _ = tls.shutdown().await;
            });
        }
    });
    port
}

async fn until_ok(client: &Client, path: &str) -> Value {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        match client.get(path).await {
            Ok(found) => return found,
            Err(e) => assert!(Instant::now() < limit, "{path} fails for a minute: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxied_get_and_a_create_are_traced_from_the_connection_down() {
    let collector = Collector::default();
    let only_ours = filter_fn(|metadata| metadata.target() == TARGET);
    let subscriber = tracing_subscriber::registry().with(collector.clone().with_filter(only_ours));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();

    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let flag = format!("--data-dir={}", data.display());
    let args = ["torana", "serve", "--secure-port=0", "--bind-address=127.0.0.1", &flag];
    let options = match parse(args.iter().map(OsString::from)).unwrap() {
        Command::Serve(options) => options.complete().unwrap(),
        _ => panic!("these are flags of serve"),
    };
    let _gateway = torana::gateway::start(options).await.unwrap();
    let config = ClientConfig::from_kubeconfig(&data.join("admin.kubeconfig")).unwrap();
    let client = Client::try_new(&config).unwrap();
    until_ok(&client, "/api/v1/namespaces/default").await;

    let port = backend().await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "traced"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    client
        .create("/api/v1/namespaces/default/services", &service)
        .await
        .unwrap();
    let registration = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.traced.example.com"},
        "spec": {"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": {"name": "traced", "namespace": "default", "port": (i64::from(port))}}});
    client
        .create("/apis/apiregistration.k8s.io/v1/apiservices", &registration)
        .await
        .unwrap();
    let path = format!("/apis/{GROUP}/v1/things");
    until_ok(&client, &format!("{path}?labelSelector=secret")).await;
    let made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}, "data": {"k": SECRET}});
    client
        .create("/api/v1/namespaces/default/configmaps", &made)
        .await
        .unwrap();

    let names = |line: &[Seen]| line.iter().map(|s| s.name).collect::<Vec<_>>();
    let proxied = collector.line_of(|s| {
        s.name == "proxy"
            && s.fields["url.path"] == path
            && s.fields.get("http.response.status_code").is_some_and(|c| c == "200")
    });
    assert_eq!(names(&proxied), ["proxy", "request", "connection"]);
    let port = port.to_string();
    assert_fields(
        &proxied[0],
        &[
            ("http.request.method", "GET"),
            ("server.address", "localhost"),
            ("server.port", &port),
            ("k8s.service.name", "traced"),
        ],
    );
    assert_fields(
        &proxied[1],
        &[
            ("http.request.method", "GET"),
            ("url.path", &path),
            ("url.scheme", "https"),
            ("enduser.id", "kubernetes-admin"),
            ("http.response.status_code", "200"),
        ],
    );
    assert_fields(
        &proxied[2],
        &[
            ("network.peer.address", "127.0.0.1"),
            ("network.transport", "tcp"),
            ("network.protocol.name", "http"),
            ("network.protocol.version", "2"),
        ],
    );

    // Those without a parent are the gateway's own, which publishes ConfigMaps while it starts.
    let stored = collector.line_of(|s| {
        s.name == "storage" && s.parent.is_some() && s.fields["db.collection.name"].contains("configmaps")
    });
    assert_eq!(names(&stored), ["storage", "request", "connection"]);
    assert_fields(
        &stored[0],
        &[("db.system.name", "sqlite"), ("db.operation.name", "create")],
    );
    assert_fields(
        &stored[1],
        &[
            ("http.request.method", "POST"),
            ("url.path", "/api/v1/namespaces/default/configmaps"),
            ("http.response.status_code", "201"),
        ],
    );

    let all = format!("{:?}", collector.0.lock().unwrap());
    assert!(!all.contains(SECRET) && !all.contains("labelSelector") && !all.contains("PRIVATE KEY"));
}

//! Admission webhooks written with kube-rs' `admission` types, over HTTP/2 and a certificate made on the
//! spot: one adds a sidecar, one refuses with a warning.
//!
//! `TORANA_BIN` names the binary; `make test` builds it and sets the variable.

#[path = "support/mod.rs"]
mod support;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use json_patch::Patch;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, PostParams};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::{Client, ResourceExt};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use support::{Server, wait_for};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A webhook that ends with the test's runtime.
struct Webhook {
    port: u16,
    /// The CA bundle, in PEM.
    bundle: String,
}

fn add_sidecar(request: &AdmissionRequest<DynamicObject>, response: AdmissionResponse) -> AdmissionResponse {
    let pod = request.object.as_ref().expect("a create has an object");
    let containers = pod.data["spec"]["containers"].as_array().expect("a pod has containers");
    if containers.iter().any(|c| c["name"] == "sidecar") {
        return response;
    }
    let patch: Patch = serde_json::from_value(json!([
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "sidecar:1"}}]))
    .expect("a patch");
    response.with_patch(patch).expect("it can be serialized")
}

fn refuse(mut response: AdmissionResponse) -> AdmissionResponse {
    response.warnings = Some(vec!["frozen until Monday".to_owned()]);
    response.deny("the namespace is frozen")
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let http2 = request.version() == http::Version::HTTP_2;
    let path = request.uri().path().to_owned();
    let body = request
        .into_body()
        .collect()
        .await
        .expect("the body arrives")
        .to_bytes();
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(&body).expect("a review");
    let response = match TryInto::<AdmissionRequest<DynamicObject>>::try_into(review) {
        Err(e) => AdmissionResponse::invalid(e),
        Ok(request) => {
            let response = AdmissionResponse::from(&request);
            match path.as_str() {
                // The gateway keeps connections to webhooks that offer HTTP/2 open, and pings them.
                _ if !http2 => response.deny("this is not HTTP/2"),
                "/sidecar" => add_sidecar(&request, response),
                _ => refuse(response),
            }
        }
    };
    let body = serde_json::to_vec(&response.into_review()).expect("a review can be serialized");
    Ok(Response::new(Full::new(body.into())))
}

impl Webhook {
    async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key)
            .expect("the key fits");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let http = auto::Builder::new(TokioExecutor::new());
                    // A connection that the gateway ends is no error of the test.
                    let _ = http.serve_connection(TokioIo::new(tls), service_fn(answer)).await;
                });
            }
        });
        Self {
            port,
            bundle: made.cert.pem(),
        }
    }

    fn configuration(&self, kind: &str, path: &str, resource: &str) -> Value {
        let url = format!("https://127.0.0.1:{}/{path}", self.port);
        let bundle = k8s_openapi::ByteString(self.bundle.clone().into_bytes());
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": path}, "webhooks": [{
            "name": format!("{path}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": url, "caBundle": bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]}]})
    }
}

async fn configure(client: &Client, plural: &str, configuration: &Value) {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(configuration).expect("JSON"))
        .expect("a valid request");
    client.request::<Value>(request).await.expect("it is created");
}

#[tokio::test]
async fn webhooks_written_with_kube_rs_patch_and_refuse() {
    let server = Server::start().await;
    let client = server.client.clone();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    wait_for("the namespace default is there", || async {
        namespaces.get("default").await.is_ok()
    })
    .await;
    let account = json!({"metadata": {"name": "default"}});
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::default_namespaced(client.clone());
    let account = serde_json::from_value(account).expect("a service account");
    accounts
        .create(&PostParams::default(), &account)
        .await
        .expect("it is created");

    let webhook = Webhook::start().await;
    let mutating = webhook.configuration("MutatingWebhookConfiguration", "sidecar", "pods");
    configure(&client, "mutatingwebhookconfigurations", &mutating).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}});
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let made = pods.create(&PostParams::default(), &pod).await.expect("it is admitted");
    let names: Vec<String> = made
        .spec
        .expect("a spec")
        .containers
        .into_iter()
        .map(|c| c.name)
        .collect();
    assert_eq!(names, ["main", "sidecar"]);

    let validating = webhook.configuration("ValidatingWebhookConfiguration", "refuse", "configmaps");
    configure(&client, "validatingwebhookconfigurations", &validating).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).expect("a config map");
    let refused = maps.create(&PostParams::default(), &map).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("it was created: {:?}", refused.map(|m| m.name_any()));
    };
    assert_eq!(
        status.message,
        "admission webhook \"refuse.example.com\" denied the request: the namespace is frozen"
    );
}

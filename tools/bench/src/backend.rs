//! The API backend behind the proxies: answers every GET with the same small object, over TLS, HTTP/2 or HTTP/1.1.

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Listens on a free port with `DIR/backend.crt` and `.key`, and writes the port to `DIR/backend.port`.
pub async fn run(dir: PathBuf) -> Result<(), String> {
    let certs: Vec<_> = CertificateDer::pem_file_iter(dir.join("backend.crt"))
        .map_err(|e| e.to_string())?
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::from_pem_file(dir.join("backend.key")).map_err(|e| e.to_string())?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .map_err(|e| e.to_string())?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    std::fs::write(dir.join("backend.port.tmp"), port.to_string()).map_err(|e| e.to_string())?;
    std::fs::rename(dir.join("backend.port.tmp"), dir.join("backend.port")).map_err(|e| e.to_string())?;
    let pad = "x".repeat(600);
    let object = format!(
        r#"{{"kind":"Gadget","apiVersion":"bench.example.com/v1","metadata":{{"name":"a","resourceVersion":"1"}},"data":{{"pad":"{pad}"}}}}"#
    );
    let object = Bytes::from(object);
    let list = Bytes::from_static(
        br#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"bench.example.com/v1","resources":[{"name":"gadgets","singularName":"gadget","namespaced":false,"kind":"Gadget","verbs":["get","list"]}]}"#,
    );
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            continue;
        };
        let _ = tcp.set_nodelay(true);
        let (acceptor, object, list) = (acceptor.clone(), object.clone(), list.clone());
        tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(move |req: Request<hyper::body::Incoming>| {
                let path = req.uri().path();
                let body = if path.ends_with("/v1") {
                    list.clone()
                } else {
                    object.clone()
                };
                let known = path.starts_with("/apis/");
                async move {
                    Response::builder()
                        .status(if known { 200 } else { 404 })
                        .header("content-type", "application/json")
                        .body(Full::new(body))
                }
            });
            let io = TokioIo::new(tls);
            if h2 {
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(1000)
                    .serve_connection(io, service)
                    .await;
            } else {
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(io, service)
                    .await;
            }
        });
    }
}

//! HTTPS servers on loopback, each with a certificate of its own.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Accepts TLS for these host names with a new certificate, which is returned in PEM.
pub(crate) fn acceptor(names: &[&str]) -> (TlsAcceptor, String) {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

/// A running server for `localhost`.
pub(crate) struct RawServer {
    /// `localhost` and the port.
    pub host: String,
    /// The certificate in PEM.
    pub certificate: String,
    /// Ends the server if aborted.
    pub task: JoinHandle<()>,
}

/// Starts a server that reads the head of one request per connection and responds with the result of
/// `respond`, which gets the head and the server's host.
pub(crate) async fn serve(respond: impl Fn(&[u8], &str) -> String + Send + 'static) -> RawServer {
    let (acceptor, certificate) = acceptor(&["localhost"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("localhost:{}", listener.local_addr().unwrap().port());
    let own = host.clone();
    let task = tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else {
                continue;
            };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match tls.read_u8().await {
                    Ok(b) => head.push(b),
                    Err(_) => break,
                }
            }
            let response = respond(&head, &own);
            let _ = tls.write_all(response.as_bytes()).await;
            let _ = tls.shutdown().await;
        }
    });
    RawServer {
        host,
        certificate,
        task,
    }
}

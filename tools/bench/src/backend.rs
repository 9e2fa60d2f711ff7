//! The API backend behind the proxies, over TLS, HTTP/2 or HTTP/1.1. It answers a GET with a small object,
//! `…/big` with a mebibyte, `…/zeros?n=BYTES` with zeros, a watch with an endless response, and an upload
//! with its length.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

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
    let answers = Arc::new(Answers::new());
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            continue;
        };
        let _ = tcp.set_nodelay(true);
        let (acceptor, answers) = (acceptor.clone(), answers.clone());
        tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(move |req| answers.clone().answer(req));
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

type Body = BoxBody<Bytes, Infallible>;

/// The precomputed responses.
struct Answers {
    object: Bytes,
    big: Bytes,
    zeros: Bytes,
}

impl Answers {
    fn new() -> Self {
        let pad = "x".repeat(600);
        let object = format!(
            r#"{{"kind":"Gadget","apiVersion":"bench.example.com/v1","metadata":{{"name":"a","resourceVersion":"1"}},"data":{{"pad":"{pad}"}}}}"#
        );
        Self {
            object: object.into(),
            big: vec![b'x'; 1 << 20].into(),
            zeros: vec![0; 64 << 10].into(),
        }
    }

    async fn answer(self: Arc<Self>, req: Request<Incoming>) -> Result<Response<Body>, hyper::http::Error> {
        let path = req.uri().path().to_owned();
        let query = req.uri().query().unwrap_or("").to_owned();
        let known = path.starts_with("/apis/");
        let parts: Vec<&str> = path.split('/').collect();
        let body = if req.method() == Method::POST {
            length(req.into_body()).await
        } else if let [_, _, group, version] = parts[..] {
            Full::new(resources(group, version)).boxed()
        } else if query.contains("watch=") {
            watch(self.object.clone())
        } else if path.ends_with("/big") {
            Full::new(self.big.clone()).boxed()
        } else if path.ends_with("/zeros") {
            let n = query.strip_prefix("n=").and_then(|n| n.parse().ok()).unwrap_or(0);
            zeros(self.zeros.clone(), n)
        } else {
            Full::new(self.object.clone()).boxed()
        };
        Response::builder()
            .status(if known { 200 } else { 404 })
            .header("content-type", "application/json")
            .body(body)
    }
}

/// Kinds per group.
pub const KINDS: usize = 5;

fn resources(group: &str, version: &str) -> Bytes {
    let verbs = r#"["create","delete","deletecollection","get","list","patch","update","watch"]"#;
    let resource = |n: usize| {
        // The first kind has no number.
        let n = if n == 0 { String::new() } else { n.to_string() };
        format!(
            r#"{{"name":"gadget{n}s","singularName":"gadget{n}","namespaced":false,"kind":"Gadget{n}","verbs":{verbs}}}"#
        )
    };
    let resources: Vec<String> = (0..KINDS).map(resource).collect();
    let head = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":""#;
    format!(r#"{head}{group}/{version}","resources":[{}]}}"#, resources.join(",")).into()
}

/// A watch with one event and no end.
fn watch(object: Bytes) -> Body {
    let event = [br#"{"type":"ADDED","object":"#, &*object, b"}\n"].concat();
    let (say, said) = mpsc::channel::<Bytes>(1);
    // The channel has room for it; its sender lives as long as the response.
    let _ = say.try_send(event.into());
    streamed(said, Some(say))
}

fn streamed(said: mpsc::Receiver<Bytes>, held: Option<mpsc::Sender<Bytes>>) -> Body {
    let frames = futures_util::stream::unfold((said, held), |(mut said, held)| async move {
        let next = said.recv().await?;
        Some((Ok(Frame::data(next)), (said, held)))
    });
    BodyExt::boxed(StreamBody::new(Box::pin(frames)))
}

fn zeros(piece: Bytes, n: u64) -> Body {
    let frames = futures_util::stream::unfold((piece, n), |(piece, left)| async move {
        let now = piece.slice(..piece.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        if now.is_empty() {
            return None;
        }
        let left = left - now.len() as u64;
        Some((Ok(Frame::data(now)), (piece, left)))
    });
    BodyExt::boxed(StreamBody::new(Box::pin(frames)))
}

async fn length(mut body: Incoming) -> Body {
    let mut n = 0;
    while let Some(Ok(frame)) = body.frame().await {
        n += frame.data_ref().map_or(0, Bytes::len);
    }
    Full::new(Bytes::from(n.to_string())).boxed()
}

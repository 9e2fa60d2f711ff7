//! HTML pages of backends.

use super::{H1, H2};
use crate::aggregator::testing::*;
use crate::request::UnprotectedHandler;
use std::io::Write as _;

const PAGE: &str = "<html><a href=\"/apis/g/v1/x\">x</a><a href=\"y\">y</a>";

fn gzip(text: &str) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

#[tokio::test]
async fn links_of_a_page_point_to_the_backend_as_in_upstream() {
    for alpn in [H1, H2] {
        let pki = Pki::new(&["ext.ns.svc"], alpn);
        let backend = Backend::http(&pki, 100, |r| async move {
            let packed = r.headers().get("accept-encoding").is_some_and(|e| e == "gzip");
            let mut a = match packed {
                true => response(200, gzip(PAGE)),
                false => response(200, PAGE),
            };
            if packed {
                a.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
            }
            let kind = match r.uri().path() {
                "/text" => "text/plain",
                _ => "text/html; charset=utf-8",
            };
            a.headers_mut().insert("content-type", kind.parse().unwrap());
            a
        })
        .await;
        let p = proxy(&backend.authority, &pki.ca_pem);
        let rewritten = format!(
            "<html><a href=\"https://{}/apis/g/v1/x\">x</a><a href=\"y\">y</a>",
            backend.authority
        );
        // Compressed for the proxy only, so decompressed on the way.
        let a = p.clone().serve(get("/page"), alice()).await;
        assert!(!a.headers().contains_key("content-length") && !a.headers().contains_key("content-encoding"));
        assert_eq!(text(a).await, rewritten);
        // Not compressed.
        let mut r = get("/page");
        r.headers_mut().insert("accept-encoding", "identity".parse().unwrap());
        assert_eq!(text(p.clone().serve(r, alice()).await).await, rewritten);
        // Compressed for the client, so compressed again.
        let mut r = get("/page");
        r.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        let a = p.clone().serve(r, alice()).await;
        assert_eq!(a.headers()["content-encoding"], "gzip");
        let packed = a.into_body().collect(1 << 20).await.unwrap();
        let mut unpacker = flate2::write::GzDecoder::new(Vec::new());
        unpacker.write_all(&packed).unwrap();
        assert_eq!(unpacker.finish().unwrap(), rewritten.as_bytes());
        assert_eq!(text(p.clone().serve(get("/text"), alice()).await).await, PAGE);
    }
}

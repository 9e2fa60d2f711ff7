use super::*;
use http::HeaderName;

const NEW: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn document() -> CachedDocument {
    let document = crate::json!({"swagger": "2.0", "info": {"title": "t", "version": "1"}});
    CachedDocument::new(&document, Dialect::V2)
}

async fn ask(headers: &[(&str, &str)]) -> Response {
    let mut map = HeaderMap::new();
    for (k, v) in headers {
        let name: HeaderName = k.parse().unwrap();
        map.insert(name, v.parse().unwrap());
    }
    document().respond(&map).await
}

#[tokio::test]
async fn both_protobuf_media_types_yield_the_newer_one() {
    for accept in [NEW, OLD] {
        let r = ask(&[("accept", accept)]).await;
        assert_eq!(r.headers()[CONTENT_TYPE], NEW);
        assert_eq!(
            r.headers()[ETAG],
            document().etag().as_str(),
            "the ETag is that of the JSON encoding"
        );
        let bytes = r.into_body().collect(1 << 20).await.unwrap();
        assert_eq!(&bytes[..], b"\x0a\x032.0\x12\x06\x0a\x01t\x12\x011");
    }
}

#[tokio::test]
async fn first_acceptable_encoding_is_used() {
    for (accept, answered) in [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/plain, application/json", "application/json"),
        (
            "application/json;q=0.5, application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            NEW,
        ),
    ] {
        let r = ask(&[("accept", accept)]).await;
        assert_eq!(r.headers()[CONTENT_TYPE], answered, "{accept}");
    }
    let r = ask(&[("accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf")]).await;
    assert_eq!(r.status(), StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn v3_varies_on_accept_encoding_only_if_compressed() {
    let document = crate::json!({"openapi": "3.0.0", "info": {"title": "t", "version": "1"}});
    let document = CachedDocument::new(&document, Dialect::V3);
    let mut headers = HeaderMap::new();
    let vary = |r: &Response| -> Vec<String> {
        let all = r.headers().get_all(VARY).iter();
        all.map(|v| v.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(vary(&document.respond(&headers).await), ["Accept"]);
    let moved = document.moved(&headers, "/openapi/v3/x?hash=H");
    assert_eq!(
        (moved.status(), vary(&moved)),
        (StatusCode::MOVED_PERMANENTLY, vec!["Accept".to_owned()])
    );
    assert_eq!(moved.headers()[CONTENT_TYPE], "application/json");
    assert_eq!(moved.headers()[ETAG], document.etag().as_str());
    headers.insert("accept-encoding", HeaderValue::from_static("gzip"));
    assert_eq!(vary(&document.respond(&headers).await), ["Accept-Encoding", "Accept"]);
}

#[tokio::test]
async fn protobuf_supports_gzip_and_if_none_match() {
    let r = ask(&[("accept", OLD), ("accept-encoding", "gzip")]).await;
    assert_eq!(r.headers()[CONTENT_ENCODING], "gzip");
    let packed = r.into_body().collect(1 << 20).await.unwrap();
    assert!(unpack(&packed).starts_with(b"\x0a\x032.0"));
    let r = ask(&[("accept", OLD), ("if-none-match", &document().etag())]).await;
    assert_eq!(r.status(), StatusCode::NOT_MODIFIED);
    assert!(!r.headers().contains_key(CONTENT_TYPE));
}

#[tokio::test]
async fn ranges_and_conditions_are_served_like_files() {
    let document = document();
    let json = document.json();
    let ask = async |headers: &[(&str, &str)]| {
        let mut map = HeaderMap::new();
        for (k, v) in headers {
            map.insert(k.parse::<HeaderName>().unwrap(), v.parse().unwrap());
        }
        document.respond(&map).await
    };
    let whole = ask(&[]).await;
    assert_eq!(whole.headers()[ACCEPT_RANGES], "bytes");
    let modified = whole.headers()[LAST_MODIFIED].to_str().unwrap().to_owned();
    assert!(modified.ends_with(" GMT"), "{modified}");

    let part = ask(&[("range", "bytes=2-5")]).await;
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.headers()[CONTENT_RANGE], format!("bytes 2-5/{}", json.len()));
    assert_eq!(part.into_body().collect(1 << 20).await.unwrap(), json[2..6]);

    let beyond = ask(&[("range", "bytes=99999-")]).await;
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(beyond.headers()[CONTENT_RANGE], format!("bytes */{}", json.len()));
    let zipped = ask(&[("range", "bytes=2-5"), ("accept-encoding", "gzip")]).await;
    assert_eq!(
        (zipped.status(), &zipped.headers()[CONTENT_ENCODING]),
        (StatusCode::OK, &"gzip".parse().unwrap())
    );

    assert_eq!(
        ask(&[("if-modified-since", &modified)]).await.status(),
        StatusCode::NOT_MODIFIED
    );
    assert_eq!(
        ask(&[("if-match", "\"x\"")]).await.status(),
        StatusCode::PRECONDITION_FAILED
    );
    let refused = ask(&[("accept", "text/html")]).await;
    assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
    let vary: Vec<_> = refused.headers().get_all(VARY).iter().collect();
    assert_eq!(vary, ["Accept-Encoding", "Accept"]);
}

#[tokio::test]
async fn accept_without_media_types_gets_an_empty_response_from_v3_and_406_from_v2() {
    let refused = ask(&[("accept", "foo")]).await;
    assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
    let document = crate::json!({"openapi": "3.0.0", "info": {"title": "t", "version": "1"}});
    let document = CachedDocument::new(&document, Dialect::V3);
    for (accept, code) in [("foo", 200), (",", 200), ("text/html", 406)] {
        let mut headers = HeaderMap::new();
        headers.insert("accept", http::HeaderValue::from_static(accept));
        let r = document.respond(&headers).await;
        assert_eq!(r.status().as_u16(), code, "{accept}");
        assert_eq!(r.headers()[VARY], "Accept", "{accept}");
        assert!(!r.headers().contains_key(CONTENT_TYPE), "{accept}");
    }
}

use super::*;
use crate::request::UserInfo;
use http::header::LOCATION;

fn with(key: &str) -> Arc<OpenApiV3> {
    let all = Arc::new(OpenApiV3::new());
    all.set(key, Arc::new(|to| to.value(&crate::json!({"openapi": "3.0.0"}))));
    all
}

async fn get(all: &Arc<OpenApiV3>, path: &str, accept: &str) -> Response {
    let mut req = Request::new(Body::empty());
    *req.uri_mut() = path.parse().unwrap();
    req.headers_mut().insert("accept", accept.parse().unwrap());
    all.clone()
        .serve(req, Authorized::for_test(UserInfo::anonymous()))
        .await
}

#[tokio::test]
async fn caching_depends_on_the_hash_in_the_url() {
    let all = with("apis/apps/v1");
    let (_, url) = all.urls().await.remove(0);
    let right = get(&all, &url, "application/json").await;
    assert_eq!(right.headers()[CACHE_CONTROL], "public, immutable");
    assert!(right.headers().contains_key(EXPIRES));
    let wrong = get(&all, "/openapi/v3/apis/apps/v1?hash=AB", "").await;
    assert_eq!(
        (wrong.status().as_u16(), wrong.headers()[LOCATION].to_str().unwrap()),
        (301, url.as_str())
    );
    let empty = "/openapi/v3/apis/apps/v1?hash=";
    for (path, accept, code) in [
        (empty, "", 200),
        (empty.trim_end_matches("?hash="), "", 200),
        (url.as_str(), "text/html", 406),
    ] {
        let r = get(&all, path, accept).await;
        assert_eq!(r.status().as_u16(), code, "{path} {accept}");
        assert!(
            !r.headers().contains_key(CACHE_CONTROL) && !r.headers().contains_key(EXPIRES),
            "{path} {accept}"
        );
    }
}

#[tokio::test]
async fn errors_have_no_body() {
    let all = with("api/v1");
    assert_eq!(get(&all, "/openapi/v3/", "").await.status().as_u16(), 404);
    assert_eq!(get(&all, "/openapi/v3/x", "").await.status().as_u16(), 404);
    assert_eq!(
        get(&all, "/openapi/v3/api/v1", "application/yaml")
            .await
            .status()
            .as_u16(),
        406
    );
    let index = get(&all, "/openapi/v3", "").await;
    assert_eq!(index.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
}

#[tokio::test]
async fn temporary_documents_are_built_on_request_and_evicted() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    /// Compressed to about half, they do not all fit.
    const COUNT: usize = 24;
    let all = OpenApiV3::new();
    let builds = Arc::new(AtomicUsize::new(0));
    for i in 0..COUNT {
        let builds = builds.clone();
        // About a megabyte.
        let build = move |to: &mut Pieces<'_>| {
            builds.fetch_add(1, Ordering::Relaxed);
            let mut state = i as u64 + 1;
            let mut text = String::new();
            while text.len() < 1_200_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(&format!("{state:x}"));
            }
            to.value(&crate::json!({"text": text}));
        };
        all.set_temporary(&format!("apis/g{i:02}/v1"), format!("H{i}"), 0, Arc::new(build));
    }
    let urls = all.urls().await;
    assert_eq!((urls.len(), builds.load(Ordering::Relaxed)), (COUNT, 0));
    assert_eq!(urls[3].1, "/openapi/v3/apis/g03/v1?hash=H3");
    for i in 0..COUNT {
        let document = all.document(&format!("apis/g{i:02}/v1")).await.expect("a document");
        assert_eq!(document.hash, format!("H{i}"));
    }
    let kept = |i: usize| {
        all.documents.load()[&format!("apis/g{i:02}/v1")]
            .cached
            .load()
            .is_some()
    };
    assert!(!kept(0) && kept(COUNT - 1));
    let size = |d: &Arc<Document>| d.cached.load().as_ref().map_or(0, |c| c.packed_len());
    assert!(all.built.lock().iter().map(size).sum::<usize>() <= KEPT);
    all.document("apis/g00/v1").await.expect("built again");
    assert_eq!(builds.load(Ordering::Relaxed), COUNT + 1);
    let before = all.built.lock().len();
    all.remove(&format!("apis/g{:02}/v1", COUNT - 1));
    assert_eq!(all.built.lock().len(), before - 1);
}

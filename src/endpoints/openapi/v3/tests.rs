use super::*;
use crate::request::UserInfo;
use http::header::LOCATION;

fn with(key: &str) -> Arc<OpenApiV3> {
    let all = Arc::new(OpenApiV3::new());
    all.set(key, Arc::new(|| crate::json!({"openapi": "3.0.0"})));
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
    let none = get(&all, "/openapi/v3/apis/apps/v1", "").await;
    assert!(!none.headers().contains_key(CACHE_CONTROL));
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

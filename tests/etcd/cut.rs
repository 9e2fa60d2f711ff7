//! Responses to clients while etcd is unreachable, and afterwards.

use crate::etcd_process::forwarder::Forwarder;
use crate::etcd_process::{Etcd, is_there};
use crate::support::{Gateway, wait_for};
use std::time::{Duration, Instant};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn post(g: &Gateway, name: &str, query: &str) -> Result<String, String> {
    let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
    let path = format!("{MAPS}{query}");
    let response = g.curl(&["-X", "POST", "-H", "Content-Type: application/json", "-d", &body, &path]);
    // Some errors are pretty-printed, because the server recognises curl's user agent.
    response.map_err(|error| error.replace("\": ", "\":"))
}

#[test]
fn without_etcd_a_gateway_fails_fast_serves_its_cache_and_recovers() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let link = Forwarder::before(etcd.port(0));
    let dir = tempfile::tempdir().unwrap();
    let g = Gateway::start_with(dir.path(), &[&format!("--etcd-servers={}", link.url())]);
    post(&g, "before", "").unwrap();

    link.cut();
    let since = Instant::now();
    let error = post(&g, "lost", "?timeout=2s").unwrap_err();
    let took = since.elapsed();
    // Fails before an etcd call would time out.
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(
        error.contains(r#""code":504"#) && error.contains(r#""reason":"Timeout""#),
        "{error}"
    );

    let since = Instant::now();
    let error = post(&g, "lost", "").unwrap_err();
    let took = since.elapsed();
    assert!(took < Duration::from_secs(45), "{took:?}");
    assert!(
        error.contains(r#""code":500"#) && error.contains("etcdserver: request timed out"),
        "{error}"
    );
    let error = g.curl(&[&format!("{MAPS}/before")]).unwrap_err();
    assert!(
        error.contains(r#""code": 500"#) && error.contains("etcdserver: request timed out"),
        "{error}"
    );

    let any = g.curl(&[&format!("{MAPS}?resourceVersion=0")]).unwrap();
    assert!(any.contains(r#""name": "before""#), "what is known is served: {any}");
    for (path, check) in [
        ("/healthz/etcd", "etcd"),
        ("/livez/etcd", "etcd"),
        ("/readyz/etcd-readiness", "etcd"),
    ] {
        let error = g.curl(&[path]).unwrap_err();
        assert!(error.contains(check), "{path}: {error}");
    }

    link.heal();
    wait_for("it recovers", || g.curl(&["/readyz"]).is_ok());
    post(&g, "after", "").unwrap();
    let all = g.curl(&[MAPS]).unwrap();
    assert!(
        all.contains(r#""name": "before""#) && all.contains(r#""name": "after""#),
        "{all}"
    );
}

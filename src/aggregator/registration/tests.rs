//! Routing of group versions while their APIServices change.

use crate::aggregator::testing::*;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::json;
use crate::request::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use std::sync::atomic::Ordering;
use tokio::sync::broadcast;

const H2: &[&[u8]] = &[b"h2"];

fn port(backend: &Backend) -> u16 {
    backend.authority.rsplit(':').next().unwrap().parse().unwrap()
}

/// An APIService `<version>.<group>` at this port of `ns/ext`.
fn at(group: &str, version: &str, pki: &Pki, port: u16) -> Value {
    let mut object = apiservice(group, &pki.ca_pem, port);
    object.set(&["metadata", "name"], format!("{version}.{group}"));
    object.set(&["spec", "version"], version);
    object
}

async fn world() -> World {
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    w
}

async fn until_served(w: &World, path: &str, wanted: &str) {
    let served = || async { (w.get(path).await.1 == wanted).then_some(()) };
    w.until(wanted, served).await;
}

#[tokio::test]
async fn backends_serve_several_groups_and_groups_have_several_backends() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let named = |name: &'static str| {
        Backend::http(&pki, 100, move |r| async move {
            match r.uri().path().ends_with("/things") {
                true => response(200, name),
                false => response(200, "{}"),
            }
        })
    };
    let (a, b) = (named("a").await, named("b").await);
    let w = world().await;
    w.api_services.set("v1.g", &at("g", "v1", &pki, port(&a)));
    w.api_services.set("v1.h", &at("h", "v1", &pki, port(&a)));
    w.api_services.set("v2.g", &at("g", "v2", &pki, port(&b)));
    for (path, wanted) in [
        ("/apis/g/v1/things", "a"),
        ("/apis/h/v1/things", "a"),
        ("/apis/g/v2/things", "b"),
    ] {
        until_served(&w, path, wanted).await;
    }
    let group = json::decode(w.get("/apis/g").await.1.as_bytes()).unwrap();
    let versions: Vec<&str> = group
        .get("versions")
        .items()
        .iter()
        .map(|v| v.str_at(&["version"]))
        .collect();
    assert_eq!(versions, ["v2", "v1"]);
    let current = || async {
        let g = w.aggregated("g").await;
        let all = g.get("versions").items().to_vec();
        (all.len() == 2 && all.iter().all(|v| v.str_at(&["freshness"]) == "Current")).then_some(())
    };
    w.until("both versions", current).await;
    assert_eq!(
        a.connections.load(Ordering::Relaxed),
        1,
        "its groups share a connection"
    );
    // The failure and removal of one version does not affect the other.
    drop(b);
    w.api_services.remove("v2.g");
    until_served(&w, "/apis/g/v2/things", "404 page not found\n").await;
    assert_eq!(w.get("/apis/g/v1/things").await.1, "a");
    assert_eq!(w.aggregated("g").await.get("versions").items().len(), 1);
}

#[tokio::test]
async fn a_group_moves_between_a_backend_and_this_process_under_watches() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let (tell, _) = broadcast::channel::<&'static str>(8);
    let events = tell.clone();
    let backend =
        Backend::http(&pki, 100, move |r| {
            let events = events.subscribe();
            async move {
                if r.uri().query() != Some("watch=1") {
                    return response(200, "remote");
                }
                let first = futures_util::stream::iter(["first"]);
                let later = futures_util::stream::unfold(events, |mut events| async move {
                    Some((events.recv().await.ok()?, events))
                });
                let frames = first.chain(later);
                let frames =
                    frames.map(|e| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(e.as_bytes()))));
                http::Response::new(Body::stream(StreamBody::new(frames)))
            }
        })
        .await;
    let w = world().await;
    let remote = at("g", "v1", &pki, port(&backend));
    let local = json!({"metadata": {"name": "v1.g", "uid": "u"},
                       "spec": {"group": "g", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15}});
    w.api_services.set("v1.g", &remote);
    until_served(&w, "/apis/g/v1/things", "remote").await;
    let mut watch = w.open(get("/apis/g/v1/things?watch=1")).await.into_body();
    let mut next = async || watch.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(next().await, "first");

    w.api_services.set("v1.g", &local);
    until_served(&w, "/apis/g/v1/things", "404 page not found\n").await;
    w.until_condition("v1.g", "True/Local/Local APIServices are always available")
        .await;
    assert!(w.aggregated("g").await.is_null(), "the backend's entry is not shown");
    tell.send("while it is served here").unwrap();
    assert_eq!(next().await, "while it is served here");

    w.api_services.set("v1.g", &remote);
    until_served(&w, "/apis/g/v1/things", "remote").await;
    tell.send("and back").unwrap();
    assert_eq!(next().await, "and back");

    w.api_services.remove("v1.g");
    until_served(&w, "/apis/g/v1/things", "404 page not found\n").await;
    tell.send("after its end").unwrap();
    assert_eq!(next().await, "after its end");
}

//! The gateway's own requests to backends (probes, discovery, OpenAPI), and the documents it publishes from
//! them.

use crate::backend::{Document, ReceivedRequest};
use crate::case::{Case, ScenarioFuture, scenario};
use crate::client::Request;
use crate::environment::Scene;
use serde_json::{Value, json};

pub(super) fn cases() -> Vec<Case> {
    vec![
        scenario(
            "4.4b",
            "the probe requests the group's resources as system:kube-aggregator in system:masters",
            probe,
        ),
        scenario(
            "5.4.2",
            "discovery requests /apis, aggregated, as system:kube-aggregator in system:masters",
            discovery,
        )
        .on(&["own-requests"])
        .http1_only(),
        scenario(
            "5.4.5",
            "a backend without aggregated discovery is queried for its resources, without groups",
            fallback,
        )
        .on(&["own-requests"])
        .http1_only()
        .upstream(),
        scenario(
            "6.1.9",
            "OpenAPI v2 is requested as system:aggregator, without groups",
            openapi_v2,
        )
        .on(&["own-requests"])
        .http1_only(),
        scenario(
            "6.2.5",
            "the OpenAPI v3 index is requested as system:aggregator, without groups",
            openapi_v3,
        )
        .on(&["own-requests"])
        .http1_only(),
        scenario(
            "3.3.4c",
            "the gateway's own requests carry no client address",
            no_client,
        )
        .on(&["own-requests"])
        .http1_only(),
        scenario("5.1.2", "the group is listed in /apis, with its version", listed),
        scenario("5.1.5", "the group has a discovery document of its own", group_document),
        scenario(
            "5.3.1",
            "the group's resources are in the aggregated discovery document",
            aggregated,
        )
        .on(&["h1"]),
        scenario(
            "5.4.3",
            "a backend's aggregated discovery document is what is published for it",
            published,
        )
        .on(&["own-requests"])
        .http1_only(),
        scenario("5.4.6", "an unreachable backend is listed and marked Stale", stale)
            .on(&["other-ca"])
            .http1_only(),
    ]
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The first of the gateway's own requests that satisfies `is`.
async fn own_request(
    scene: &Scene<'_>,
    what: &str,
    is: impl Fn(&ReceivedRequest) -> bool,
) -> Result<ReceivedRequest, String> {
    let find = || scene.backend.own_requests().into_iter().find(|seen| is(seen));
    scene
        .environment
        .until(what, || std::future::ready(find().is_some()))
        .await?;
    find().ok_or_else(|| what.to_owned())
}

fn expect_header(seen: &ReceivedRequest, name: &str, wanted: &[&str]) -> Result<(), String> {
    let is = seen.values(name);
    if is == wanted {
        Ok(())
    } else {
        Err(format!("{name} is {is:?}, not {wanted:?}"))
    }
}

fn probe<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let path = scene.fill("{base}");
        let seen = own_request(scene, "the backend is probed", |s| {
            s.target == path && s.values("x-remote-group") == ["system:masters"]
        });
        let seen = seen.await?;
        expect_header(&seen, "x-remote-user", &["system:kube-aggregator"])?;
        expect_header(&seen, "x-remote-uid", &[])?;
        expect_header(&seen, "authorization", &[])
    })
}

fn discovery<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let seen = own_request(scene, "/apis is asked for", |s| s.target == "/apis").await?;
        expect_header(&seen, "x-remote-user", &["system:kube-aggregator"])?;
        expect_header(&seen, "x-remote-group", &["system:masters"])?;
        expect_header(&seen, "user-agent", &[])?;
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
            application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        expect_header(&seen, "accept", &[accept])
    })
}

fn fallback<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let path = scene.fill("{base}");
        let seen = own_request(scene, "the resources are asked for", |s| {
            s.target == path && s.values("accept") == ["application/json"]
        });
        let seen = seen.await?;
        expect_header(&seen, "x-remote-user", &["system:kube-aggregator"])?;
        expect_header(&seen, "x-remote-group", &[])
    })
}

fn openapi_v2<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let seen = own_request(scene, "/openapi/v2 is asked for", |s| s.target == "/openapi/v2").await?;
        expect_header(&seen, "x-remote-user", &["system:aggregator"])?;
        expect_header(&seen, "x-remote-group", &[])?;
        expect_header(&seen, "accept", &["application/json"])?;
        expect_header(&seen, "user-agent", &[])
    })
}

fn openapi_v3<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let seen = own_request(scene, "/openapi/v3 is asked for", |s| s.target == "/openapi/v3").await?;
        expect_header(&seen, "x-remote-user", &["system:aggregator"])?;
        expect_header(&seen, "x-remote-group", &[])
    })
}

fn no_client<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        for path in ["/apis", "/openapi/v2"] {
            let seen = own_request(scene, path, |s| s.target == path).await?;
            expect_header(&seen, "x-forwarded-for", &[])?;
        }
        Ok(())
    })
}

async fn document(scene: &Scene<'_>, path: &str, accept: &str) -> Result<Value, String> {
    let mut request = scene.request("GET", path);
    request.headers = vec![("Accept".into(), accept.into())];
    let response = scene.exchange(&request).await?;
    serde_json::from_slice(&response.body.data)
        .map_err(|e| format!("{path}: {} {e}: {}", response.status, response.text()))
}

fn entry<'v>(list: &'v Value, field: &str, name: &str) -> Option<&'v Value> {
    let all = list[field].as_array()?;
    all.iter().find(|g| g["name"] == name || g["metadata"]["name"] == name)
}

fn listed<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let list = document(scene, "/apis", "application/json").await?;
        let group = entry(&list, "groups", &scene.backend.group).ok_or("it is not there")?;
        let version = json!({"groupVersion": scene.fill("{group}/v1"), "version": "v1"});
        if group["versions"] == json!([version]) && group["preferredVersion"] == version {
            return Ok(());
        }
        Err(format!("it is {group}"))
    })
}

fn group_document<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let group = document(scene, "/apis/{group}", "application/json").await?;
        let version = json!({"groupVersion": scene.fill("{group}/v1"), "version": "v1"});
        let wanted = json!({"kind": "APIGroup", "apiVersion": "v1", "name": scene.backend.group,
            "versions": [version], "preferredVersion": version});
        if group == wanted {
            Ok(())
        } else {
            Err(format!("it is {group}"))
        }
    })
}

/// Polls the aggregated document until the group's version satisfies `is`.
async fn until_version(scene: &Scene<'_>, what: &str, is: impl Fn(&Value) -> bool) -> Result<(), String> {
    let holds = || async {
        let list = document(scene, "/apis", AGGREGATED).await;
        list.is_ok_and(|list| entry(&list, "items", &scene.backend.group).is_some_and(|g| is(&g["versions"][0])))
    };
    scene.environment.until(what, holds).await
}

fn aggregated<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let what = "the resource is published, as Current";
        let is = |v: &Value| v["freshness"] == "Current" && v["resources"][0]["resource"] == "things";
        until_version(scene, what, is).await
    })
}

fn published<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let group = &scene.backend.group;
        let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
            "items": [{"metadata": {"name": group}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
                {"resource": "novelties", "responseKind": {"group": group, "version": "v1", "kind": "Novelty"},
                 "scope": "Cluster", "singularResource": "novelty", "verbs": ["get"]}]}]}]});
        let published = Document {
            status: 200,
            headers: vec![
                ("Content-Type".into(), AGGREGATED.into()),
                ("ETag".into(), "\"one\"".into()),
            ],
            body: list.to_string(),
        };
        scene.backend.publish("/apis", published);
        // An update of the APIService makes the gateway fetch the document at once.
        let patch =
            json!({"metadata": {"annotations": {"conformance.example.com/touched": scene.environment.next_case()}}});
        scene.environment.patch(group, patch).await?;
        let is = |v: &Value| v["resources"][0]["resource"] == "novelties";
        until_version(scene, "the backend's own document is published", is).await?;
        let patch =
            json!({"metadata": {"annotations": {"conformance.example.com/touched": scene.environment.next_case()}}});
        scene.environment.patch(group, patch).await?;
        let conditional = |s: &ReceivedRequest| s.target == "/apis" && s.values("if-none-match") == ["\"one\""];
        own_request(scene, "the next time it asks with the ETag", conditional)
            .await
            .map(|_| ())
    })
}

fn stale<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let list = document(scene, "/apis", "application/json").await?;
        entry(&list, "groups", &scene.backend.group).ok_or("it is not listed")?;
        until_version(scene, "its version is Stale", |v| v["freshness"] == "Stale").await?;
        // Other requests must not wait for it.
        let request = Request {
            target: "/apis?timeout=4s".into(),
            ..scene.request("GET", "/apis")
        };
        let response = scene.exchange(&request).await?;
        if response.status == 200 {
            Ok(())
        } else {
            Err(format!("{}", response.status))
        }
    })
}

//! Front proxies: the trust data published to backends, and identities from a front proxy before the gateway.

use crate::backend::{Event, Script};
use crate::case::{Case, ScenarioFuture, scenario};
use crate::client::Target;
use crate::environment::Need;
use crate::environment::{MEMBER, Scene};
use serde_json::{Value, json};

const MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const CA: &str = "requestheader-client-ca-file";
const USERS: &str = "requestheader-username-headers";

pub(super) fn cases() -> Vec<Case> {
    // These run one after the other, because each changes objects that the others read.
    let alone = |case: Case| case.on(&["moving"]).http1_only();
    vec![
        alone(scenario(
            "3.10.1",
            "the CA and the header names for front-proxy authentication are published to backends",
            published,
        )),
        alone(scenario(
            "3.10.2",
            "data published by other servers is kept, with the gateway's own after it",
            merged,
        )),
        alone(scenario("3.10.3", "deleted data is published again", deleted)),
        alone(scenario(
            "3.10.4",
            "the roles that backends need exist and grant what they need",
            roles,
        )),
        scenario("3.10.5a", "callers named by a front proxy are authenticated", believed)
            .on(&["h1"])
            .needs(Need::FrontProxy),
        scenario("3.10.5b", "a front proxy that names no caller is anonymous", silent)
            .on(&["h1"])
            .needs(Need::FrontProxy),
    ]
}

async fn data(scene: &Scene<'_>) -> Result<Value, String> {
    let map = scene
        .environment
        .target
        .api("GET", MAP, None)
        .await
        .map_err(|(_, e)| e)?;
    Ok(map["data"].clone())
}

fn list(data: &Value, key: &str) -> Vec<String> {
    serde_json::from_str(data[key].as_str().unwrap_or("")).unwrap_or_default()
}

fn published<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let data = data(scene).await?;
        for (key, wanted) in [
            (USERS, "X-Remote-User"),
            ("requestheader-group-headers", "X-Remote-Group"),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        ] {
            let list = list(&data, key);
            if !list.iter().any(|v| v.eq_ignore_ascii_case(wanted)) {
                return Err(format!("{key} is {list:?}"));
            }
        }
        let ca = data[CA].as_str().unwrap_or("");
        if ca.starts_with("-----BEGIN CERTIFICATE-----") {
            Ok(())
        } else {
            Err(format!("the CA is {ca:?}"))
        }
    })
}

/// The base64 letters of a PEM text's certificates, independent of line breaks.
fn letters(pem: &str) -> String {
    pem.split_whitespace().collect()
}

fn merged<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let environment = scene.environment;
        let before = data(scene).await?;
        let (own, theirs) = (
            letters(before[CA].as_str().unwrap_or("")),
            letters(environment.bundle()),
        );
        let other = json!({"data": {CA: environment.bundle(), USERS: "[\"X-Other-User\"]"}});
        environment
            .target
            .api("PATCH", MAP, Some(&other))
            .await
            .map_err(|(_, e)| e)?;
        let both = || async {
            let Ok(data) = data(scene).await else { return false };
            let users = list(&data, USERS);
            let is = letters(data[CA].as_str().unwrap_or(""));
            is == format!("{theirs}{own}")
                && users.first().is_some_and(|u| u == "X-Other-User")
                && users.iter().any(|u| u.eq_ignore_ascii_case("X-Remote-User"))
        };
        let result = environment
            .until("both servers' CAs and headers are published", both)
            .await;
        let back = json!({"data": {CA: before[CA], USERS: before[USERS]}});
        environment
            .target
            .api("PATCH", MAP, Some(&back))
            .await
            .map_err(|(_, e)| e)?;
        result
    })
}

fn deleted<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let before = data(scene).await?;
        let gone = scene.environment.target.api("DELETE", MAP, None).await;
        gone.map_err(|(_, e)| e)?;
        let there = || async {
            let data = data(scene).await;
            data.is_ok_and(|data| {
                letters(data[CA].as_str().unwrap_or("")) == letters(before[CA].as_str().unwrap_or(""))
            })
        };
        scene.environment.until("it is published again", there).await
    })
}

fn roles<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        for (path, resource, verb) in [
            (
                "namespaces/kube-system/roles/extension-apiserver-authentication-reader",
                "configmaps",
                "get",
            ),
            ("clusterroles/system:auth-delegator", "tokenreviews", "create"),
            ("clusterroles/system:auth-delegator", "subjectaccessreviews", "create"),
            ("clusterroles/system:kube-aggregator", "services", "list"),
            ("clusterroles/system:kube-aggregator", "endpoints", "watch"),
        ] {
            let role = scene
                .environment
                .target
                .api("GET", &format!("{RBAC}/{path}"), None)
                .await;
            let role = role.map_err(|(_, e)| e)?;
            let none = vec![];
            let has = |rule: &Value, key: &str, word: &str| {
                let all = rule[key].as_array().unwrap_or(&none);
                all.iter().any(|v| v == word)
            };
            let mut rules = role["rules"].as_array().unwrap_or(&none).iter();
            if !rules.any(|rule| has(rule, "resources", resource) && has(rule, "verbs", verb)) {
                return Err(format!("{path} does not allow to {verb} {resource}"));
            }
        }
        Ok(())
    })
}

/// The front proxy before the gateway.
fn front_proxy<'a>(scene: &Scene<'a>) -> Result<&'a Target, String> {
    let proxy = scene.environment.front_proxy.as_ref();
    proxy.ok_or_else(|| "no front proxy is configured".to_owned())
}

fn believed<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let proxy = front_proxy(scene)?;
        let mut request = scene.request("GET", "{base}/things");
        for (name, value) in [
            ("X-Remote-User", "alice"),
            ("X-Remote-Group", MEMBER),
            ("X-Remote-Group", "others"),
            ("X-Remote-Extra-Scopes.example.com%2Fa", "one"),
            ("X-Remote-Extra-Scopes.example.com%2Fa", "two"),
        ] {
            request.headers.push((name.into(), value.into()));
        }
        let mut handle = scene.script_backend(Script::default());
        let response = proxy.exchange(scene.http, &request).await?;
        if response.status != 200 {
            return Err(format!("{} {}", response.status, response.text()));
        }
        let Event::Request(seen) = handle.next().await? else {
            return Err("the gateway leaves".into());
        };
        for (name, wanted) in [
            ("x-remote-user", vec!["alice"]),
            ("x-remote-group", vec![MEMBER, "others", "system:authenticated"]),
            ("x-remote-extra-scopes.example.com%2fa", vec!["one", "two"]),
        ] {
            let is = seen.values(name);
            if is != wanted {
                return Err(format!("{name} is {is:?}, not {wanted:?}"));
            }
        }
        Ok(())
    })
}

fn silent<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let proxy = front_proxy(scene)?;
        let mut request = scene.request("GET", "{base}/things");
        request.headers.push(("X-Remote-Group".into(), "system:masters".into()));
        let mut handle = scene.script_backend(Script::default());
        let response = proxy.exchange(scene.http, &request).await?;
        if matches!(response.status, 401 | 403) && handle.so_far().is_empty() {
            Ok(())
        } else {
            Err(format!("{} {}", response.status, response.text()))
        }
    })
}

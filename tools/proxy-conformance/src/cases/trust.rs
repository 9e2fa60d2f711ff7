//! TLS towards backends, and the availability of APIServices.

use crate::case::Expect::{Body, Certified, Reached, ServerName, Status};
use crate::case::{Case, ScenarioFuture, case, scenario};
use crate::environment::{NAMESPACE, Scene, Via};
use serde_json::{Value, json};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("3.5.2a", "the TLS server name is the service's")
            .on(&["h1"])
            .expect([ServerName("h1.proxy-conformance.svc")]),
        case("3.5.2b", "the TLS server name is the service's over HTTP/2 too")
            .on(&["h2"])
            .expect([ServerName("h2.proxy-conformance.svc")]),
        case("3.5.1a", "insecureSkipTLSVerify accepts any certificate")
            .on(&["unverified"])
            .expect([Status(200)]),
        case(
            "3.5.3",
            "a backend that requests a client certificate gets one issued by the published CA",
        )
        .on(&["certified"])
        .expect([Status(200), Certified]),
        scenario(
            "3.5.1b",
            "a certificate by a CA that is not in the bundle is refused and reported",
            unknown_authority,
        )
        .on(&["other-ca"]),
        scenario("3.5.1c", "an expired certificate is refused and reported", expired).on(&["expired"]),
        scenario(
            "3.5.2c",
            "a certificate for another name is refused and reported",
            other_name,
        )
        .on(&["other-name"]),
        scenario(
            "3.5.2d",
            "a certificate with the name as common name only is refused and reported",
            common_name,
        )
        .on(&["cn-only"]),
        case("3.5.1d", "a backend with a refused certificate receives nothing")
            .on(&["other-ca", "expired", "other-name", "cn-only"])
            .expect([Status(503), Body("service unavailable\n"), Reached(0)]),
        scenario(
            "4.4a",
            "a backend that answers the probe is Available with reason Passed",
            passed,
        ),
        scenario("4.3a", "a missing service is reported in the condition", no_service)
            .on(&["moving"])
            .http1_only(),
        scenario(
            "4.3b",
            "a port on which nothing listens is reported in the condition",
            nobody,
        )
        .on(&["moving"])
        .http1_only(),
        scenario(
            "4.3c",
            "a port that the service does not have is reported in the condition",
            no_port,
        )
        .on(&["moving"])
        .http1_only(),
        scenario(
            "4.3d",
            "a service without slices is reported in the condition",
            no_slices,
        )
        .on(&["moving"])
        .http1_only(),
        scenario(
            "4.3e",
            "a service without a ready endpoint is reported in the condition",
            no_endpoints,
        )
        .on(&["moving"])
        .http1_only(),
        scenario(
            "4.2",
            "an APIService without a service is served by the gateway itself, with reason Local",
            local,
        )
        .on(&["moving"])
        .http1_only(),
        scenario(
            "4.13a",
            "the metric of unavailable APIServices has a series for each",
            metric,
        )
        .on(&["other-ca"])
        .http1_only(),
        scenario(
            "4.13b",
            "each change to unavailable is counted once, with its reason",
            becoming,
        )
        .on(&["moving"])
        .http1_only(),
        scenario(
            "3.1.8",
            "responses that the gateway generates itself are counted",
            terminations,
        )
        .on(&["other-ca"])
        .http1_only(),
        scenario(
            "3.5.4",
            "certificates without subject alternative names are counted",
            nameless,
        )
        .on(&["cn-only"])
        .http1_only()
        .upstream(),
        scenario("3.1.9", "an invalid CA bundle is a 500 with this message", junk_bundle)
            .on(&["moving"])
            .http1_only(),
        scenario("3.9.1", "default/kubernetes at port 443 is the gateway itself", itself)
            .on(&["moving"])
            .http1_only(),
        scenario(
            "4.10",
            "a Service that is deleted and recreated is checked again at once",
            comes_back,
        )
        .on(&["moving"])
        .http1_only(),
    ]
}

async fn condition_is(scene: &Scene<'_>, status: &str, reason: &str, text: &str) -> Result<(), String> {
    let [s, r, message] = scene.environment.condition(&scene.backend.group).await?;
    let text = scene.fill(text);
    if s == status && r == reason && message.contains(&text) {
        return Ok(());
    }
    Err(format!(
        "the condition is {s} {r}: {message}; not {status} {reason}: …{text}…"
    ))
}

/// Waits for a condition: the gateway may be about to write it. If it does not come, the error names the one there is.
async fn condition_becomes(scene: &Scene<'_>, status: &str, reason: &str, text: &str) -> Result<(), String> {
    let what = format!("the condition becomes {status} {reason} {text}");
    let reached = || async { condition_is(scene, status, reason, text).await.is_ok() };
    let Err(late) = scene.environment.until(&what, reached).await else {
        return Ok(());
    };
    let is = condition_is(scene, status, reason, text).await;
    is.map_err(|other| format!("{late}: {other}"))
}

const UNTRUSTED: &str = "tls: failed to verify certificate: x509: ";

async fn distrusted(scene: &Scene<'_>, why: &str) -> Result<(), String> {
    let text = format!("{UNTRUSTED}{why}");
    condition_becomes(scene, "False", "FailedDiscoveryCheck", &text).await?;
    let probe = "failing or missing response from https://{host}{base}: ";
    condition_becomes(scene, "False", "FailedDiscoveryCheck", probe).await
}

fn unknown_authority<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(distrusted(scene, "certificate signed by unknown authority"))
}

fn expired<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(distrusted(scene, "certificate has expired or is not yet valid"))
}

fn other_name<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    let why = "certificate is valid for somebody.else.svc, not other-name.proxy-conformance.svc";
    Box::pin(distrusted(scene, why))
}

fn common_name<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(distrusted(
        scene,
        "certificate relies on legacy Common Name field, use SANs instead",
    ))
}

fn passed<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(condition_becomes(scene, "True", "Passed", "all checks passed"))
}

/// Waits for a condition, and until requests are refused because of it.
pub(super) async fn becomes(scene: &Scene<'_>, status: &str, reason: &str, text: &str) -> Result<(), String> {
    condition_becomes(scene, status, reason, text).await?;
    let wanted = if status == "True" { 200 } else { 503 };
    let what = format!("requests are answered {wanted}");
    let request = scene.request("GET", "{base}/things");
    let answered = || async {
        scene
            .exchange(&request)
            .await
            .is_ok_and(|response| response.status == wanted)
    };
    scene.environment.until(&what, answered).await
}

async fn at(scene: &Scene<'_>, service: &str, port: u16) -> Result<(), String> {
    let service = json!({"spec": {"service": {"name": service, "port": port}}});
    scene.environment.patch(&scene.backend.group, service).await
}

/// Points the APIService at a wrong target, and back.
async fn astray(scene: &Scene<'_>, service: &str, port: u16, reason: &str, text: &str) -> Result<(), String> {
    let _handle = scene.backend.arm([]);
    at(scene, service, port).await?;
    let result = becomes(scene, "False", reason, text).await;
    at(scene, "moving", scene.backend.port).await?;
    becomes(scene, "True", "Passed", "").await?;
    result
}

fn no_service<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    let text = format!("service/absent in \"{NAMESPACE}\" is not present");
    Box::pin(async move { astray(scene, "absent", scene.backend.port, "ServiceNotFound", &text).await })
}

fn nobody<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        // Bound and not listening: nobody else gets the port, and connections to it are refused.
        let bound = || {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind(std::net::SocketAddr::from(([0, 0, 0, 0], 0)))?;
            let port = socket.local_addr()?.port();
            std::io::Result::Ok((socket, port))
        };
        let (_held, port) = bound().map_err(|e| e.to_string())?;
        let (reason, text) = ("FailedDiscoveryCheck", "connect: connection refused");
        if scene.environment.via() == Via::ExternalName {
            return astray(scene, "moving", port, reason, text).await;
        }
        // The EndpointSlice, not the Service, determines the port.
        let _handle = scene.backend.arm([]);
        scene.environment.listens_on("moving", port).await?;
        let result = becomes(scene, "False", reason, text).await;
        scene.environment.listens_on("moving", scene.backend.port).await?;
        becomes(scene, "True", "Passed", "").await?;
        result
    })
}

/// The spec of the backend's APIService.
async fn spec(scene: &Scene<'_>) -> Result<Value, String> {
    let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1.{}", scene.backend.group);
    let object = scene
        .environment
        .target
        .api("GET", &path, None)
        .await
        .map_err(|(_, e)| e)?;
    Ok(object["spec"].clone())
}

fn itself<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.backend.arm([]);
        let (environment, group) = (scene.environment, &scene.backend.group);
        let before = spec(scene).await?;
        // Make it unavailable first; otherwise the gateway would proxy to itself endlessly.
        at(scene, "absent", 443).await?;
        let away = becomes(scene, "False", "ServiceNotFound", "").await;
        let own = json!({"namespace": "default", "name": "kubernetes", "port": 443});
        let patch = json!({"spec": {"service": own, "caBundle": null, "insecureSkipTLSVerify": true}});
        environment.patch(group, patch).await?;
        // The gateway then answers itself: the group is not available, or the request is forbidden.
        let refused = || async {
            let result = condition_is(
                scene,
                "False",
                "FailedDiscoveryCheck",
                "{base}: bad status from https://",
            )
            .await;
            // A gateway may also recognise its own address.
            result.is_ok() || condition_is(scene, "False", "OwnAddress", "").await.is_ok()
        };
        let asked = environment.until("the condition reports the loop", refused).await;
        let back =
            json!({"service": before["service"], "caBundle": before["caBundle"], "insecureSkipTLSVerify": false});
        environment.patch(group, json!({"spec": back})).await?;
        becomes(scene, "True", "Passed", "").await?;
        away.and(asked)
    })
}

fn comes_back<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.backend.arm([]);
        let (environment, backend) = (scene.environment, scene.backend);
        let service = format!("/api/v1/namespaces/{NAMESPACE}/services/moving");
        let deleted = environment.target.api("DELETE", &service, None).await;
        deleted.map_err(|(_, e)| e)?;
        let gone = becomes(scene, "False", "ServiceNotFound", "service/moving").await;
        environment
            .register("moving", &backend.group, backend.port, true)
            .await?;
        becomes(scene, "True", "Passed", "").await?;
        gone
    })
}

fn no_port<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    let text = format!("service/unready in \"{NAMESPACE}\" is not listening on port 444");
    Box::pin(async move { astray(scene, "unready", 444, "ServicePortError", &text).await })
}

fn no_slices<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    let text = format!("cannot find endpointslices for service/sliceless in \"{NAMESPACE}\"");
    Box::pin(async move { astray(scene, "sliceless", 443, "EndpointsNotFound", &text).await })
}

fn no_endpoints<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    let text =
        format!("endpointslices for service/unready in \"{NAMESPACE}\" have no addresses with port name \"https\"");
    Box::pin(async move { astray(scene, "unready", 443, "MissingEndpoints", &text).await })
}

fn local<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.backend.arm([]);
        let (environment, group) = (scene.environment, &scene.backend.group);
        let before = spec(scene).await?;
        let (service, bundle) = (before["service"].clone(), before["caBundle"].clone());
        environment
            .patch(group, json!({"spec": {"service": null, "caBundle": null}}))
            .await?;
        let text = "Local APIServices are always available";
        let said = || async { condition_is(scene, "True", "Local", text).await.is_ok() };
        let mut result = environment.until("the condition becomes True Local", said).await;
        if result.is_ok() {
            // The group is local now, and no built-in group has its name.
            let request = scene.request("GET", "{base}/things");
            let gone = || async {
                scene
                    .exchange(&request)
                    .await
                    .is_ok_and(|response| response.status == 404)
            };
            result = environment
                .until("requests are answered 404 by the gateway itself", gone)
                .await;
        }
        environment
            .patch(group, json!({"spec": {"service": service, "caBundle": bundle}}))
            .await?;
        becomes(scene, "True", "Passed", "").await?;
        result
    })
}

/// The lines of a metric that contain a text.
async fn metrics(scene: &Scene<'_>, name: &str, holds: &str) -> Result<Vec<String>, String> {
    let mut request = scene.request("GET", "/metrics");
    request.headers.clear();
    let text = scene.exchange(&request).await?.text();
    let lines = text.lines().filter(|l| l.starts_with(name) && l.contains(holds));
    Ok(lines.map(str::to_owned).collect())
}

fn counted(lines: &[String]) -> f64 {
    let values = lines.iter().filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

fn metric<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let name = "aggregator_unavailable_apiservice{";
        let label = format!("v1.{}", scene.backend.group);
        let series = || async {
            let own = metrics(scene, name, &label).await?;
            let other = metrics(scene, name, "v1.h1.conformance.example.com").await?;
            Ok::<_, String>((own, other))
        };
        let is = |lines: &[String], value: f64| lines.len() == 1 && counted(lines) == value;
        // Set by the checks, which nothing here waits for.
        let counted_apart = || async {
            series()
                .await
                .is_ok_and(|(own, other)| is(&own, 1.0) && is(&other, 0.0))
        };
        let what = "there is a series for each, with 1 for the unavailable one";
        let Err(late) = scene.environment.until(what, counted_apart).await else {
            return Ok(());
        };
        Err(format!("{late}: {:?}", series().await))
    })
}

fn becoming<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let label = format!("name=\"v1.{}\"", scene.backend.group);
        let read = async || {
            let lines = metrics(scene, "aggregator_unavailable_apiservice_total{", &label).await?;
            let of = |reason: &str| {
                let lines: Vec<String> = lines.iter().filter(|l| l.contains(reason)).cloned().collect();
                counted(&lines)
            };
            Ok::<_, String>((of("reason=\"ServiceNotFound\""), of("reason=\"ServicePortError\"")))
        };
        let before = read().await?;
        let _handle = scene.backend.arm([]);
        at(scene, "absent", 443).await?;
        let gone = becomes(scene, "False", "ServiceNotFound", "").await;
        // It stays unavailable, for another reason.
        at(scene, "unready", 444).await?;
        let other = becomes(scene, "False", "ServicePortError", "").await;
        at(scene, "moving", scene.backend.port).await?;
        becomes(scene, "True", "Passed", "").await?;
        gone.and(other)?;
        let after = read().await?;
        if (after.0 - before.0, after.1 - before.1) == (1.0, 0.0) {
            Ok(())
        } else {
            Err(format!("{before:?} before, {after:?} after"))
        }
    })
}

fn terminations<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let read = async || {
            metrics(
                scene,
                "apiserver_request_terminations_total{",
                "component=\"aggregator\"",
            )
            .await
        };
        let before = counted(&read().await?);
        scene.exchange(&scene.request("GET", "{base}/things")).await?;
        let after = counted(&read().await?);
        if after > before {
            Ok(())
        } else {
            Err(format!("{before} before, {after} after"))
        }
    })
}

fn nameless<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let lines = metrics(scene, "apiserver_kube_aggregator_x509_missing_san_total", "").await?;
        if counted(&lines) > 0.0 {
            Ok(())
        } else {
            Err(format!("{lines:?}"))
        }
    })
}

fn junk_bundle<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.backend.arm([]);
        let environment = scene.environment;
        let bundle = spec(scene).await?["caBundle"].clone();
        environment
            .patch(&scene.backend.group, json!({"spec": {"caBundle": "anVuaw=="}}))
            .await?;
        let request = scene.request("GET", "{base}/things");
        let refused = || async {
            let response = scene.exchange(&request).await;
            response.is_ok_and(|response| {
                let text = "unable to load root certificates: unable to parse bytes as PEM block\n";
                (response.status, response.text().as_str()) == (500, text)
            })
        };
        let result = environment
            .until("requests are answered 500 with the reason", refused)
            .await;
        environment
            .patch(&scene.backend.group, json!({"spec": {"caBundle": bundle}}))
            .await?;
        becomes(scene, "True", "Passed", "").await?;
        result
    })
}

//! Streams to the kubelet of the attacker's pods, which may be silent.

use super::PODS;
use crate::attackers::Cases;
use crate::backend::Backend;
use crate::frames::{END_HEADERS, END_STREAM, HEADERS, block, frame};
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::Request;
use std::io::Read;
use std::sync::Arc;

/// The streams that one HTTP/2 connection may have.
const STREAMS: usize = 100;

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(3_000, 15);
    cases.add("log: 3,000 from a kubelet that never answers", move |scene| {
        let kubelet = Backend::start(Arc::new(|_, io| {
            let mut rest = [0; 1024];
            while io.read(&mut rest).is_ok_and(|n| n > 0) {}
        }));
        schedule(scene, kubelet.port);
        let path = format!("{PODS}/silent/log?insecureSkipTLSVerifyBackend=true");
        let head = block("GET", &path, scene.token(), &[]);
        let mut open = Vec::new();
        for _ in 0..n / STREAMS {
            let Some(mut connection) = scene.http2() else { break };
            let streams = (0..STREAMS as u32).map(|i| frame(HEADERS, END_STREAM | END_HEADERS, 2 * i + 1, &head));
            connection.send(&streams.collect::<Vec<_>>().concat());
            open.push(connection);
        }
        scene.hold();
        if scene.scale.full {
            let code = scene.send(&Request::get(path)).map(|answer| answer.code);
            scene.expect(code == Some(429), || {
                format!("the places of one user are taken, not {code:?}")
            });
        }
        drop(open);
        unschedule(scene);
    });
}

/// Makes `port` the kubelet of the node `n1`, on which the pod `silent` runs.
fn schedule(scene: &mut Scene<'_>, port: u16) {
    let status = format!(
        r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"127.0.0.1"}}],"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{port}}}}}}}}}"#
    );
    scene
        .stage
        .admin(&Request::patch("merge", "/api/v1/nodes/n1/status", status));
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"silent"},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"registry.invalid/app:1"}]}}"#;
    let made = scene.stage.admin(&Request::post(PODS, pod));
    scene.expect(made.code == 201, || format!("a pod is created: {}", made.text()));
}

fn unschedule(scene: &Scene<'_>) {
    // Without grace: there is no kubelet that would confirm the end.
    scene
        .stage
        .admin(&Request::delete(format!("{PODS}/silent?gracePeriodSeconds=0")));
    let status = r#"{"status":{"addresses":null,"daemonEndpoints":null}}"#;
    scene
        .stage
        .admin(&Request::patch("merge", "/api/v1/nodes/n1/status", status));
}

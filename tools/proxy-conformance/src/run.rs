//! Runs the cases.

use crate::backend::{Backend, CASE_HEADER, Event, ReceivedRequest, Script};
use crate::case::{Case, CaseBody, Exchange, Expect, Level, Outcome};
use crate::client::{self, Http, Request, Response, TIMEOUT};
use crate::environment::{Environment, Scene};
use crate::wire::Headers;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

/// The gateway's answer for an APIService whose condition is `Available=False`.
const UNAVAILABLE: &str = "service unavailable";

/// The result of one case in one combination.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case's id.
    pub id: &'static str,
    /// The case's claim.
    pub claim: &'static str,
    /// The case's level.
    pub level: Level,
    /// The HTTP version towards the gateway.
    pub http: Http,
    /// The backend.
    pub backend: &'static str,
    /// The failure, if there is one.
    pub outcome: Result<(), String>,
    /// How long it took.
    pub took: Duration,
}

/// Runs all cases. Cases that use the same backend run one after the other.
pub async fn run(environment: Arc<Environment>, cases: Vec<Case>) -> Vec<CaseResult> {
    let mut queues: BTreeMap<&'static str, Vec<Case>> = BTreeMap::new();
    for case in cases
        .into_iter()
        .filter(|case| case.needs.is_none_or(|need| environment.meets(need)))
    {
        for backend in case.backends {
            queues.entry(backend).or_default().push(case.clone());
        }
    }
    let mut running = JoinSet::new();
    for (backend, cases) in queues {
        running.spawn(queue(environment.clone(), backend, cases));
    }
    let mut all: Vec<CaseResult> = running.join_all().await.into_iter().flatten().collect();
    all.sort_by_key(|v| order(v.id));
    all
}

/// A sort key that orders `3.10.2b` after `3.9.1`.
fn order(id: &str) -> Vec<(u32, String)> {
    let parts = id.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        (part[..digits].parse().unwrap_or(u32::MAX), part[digits..].to_owned())
    });
    parts.collect()
}

async fn queue(environment: Arc<Environment>, name: &'static str, cases: Vec<Case>) -> Vec<CaseResult> {
    let mut results = Vec::new();
    let Some(backend) = environment.backend(name) else {
        return results;
    };
    for case in cases {
        for http in case.http_versions {
            let began = Instant::now();
            let scene = Scene {
                environment: &environment,
                http: *http,
                backend,
            };
            let mut outcome = attempt(&scene, &case.body).await;
            // A probe that times out on a busy machine makes the APIService unavailable for a moment, as it must.
            // That says nothing about the case, which runs again.
            if outcome.as_ref().is_err_and(|why| why.contains(UNAVAILABLE)) && scene.is_available_again().await {
                outcome = attempt(&scene, &case.body).await;
            }
            results.push(CaseResult {
                id: case.id,
                claim: case.claim,
                level: case.level,
                http: *http,
                backend: name,
                outcome,
                took: began.elapsed(),
            });
        }
    }
    results
}

/// Runs a case once.
async fn attempt(scene: &Scene<'_>, body: &CaseBody) -> Result<(), String> {
    let outcome = match body {
        CaseBody::Exchange(exchange) => one(scene, exchange).await,
        CaseBody::Scenario(scenario) => {
            let result = tokio::time::timeout(3 * TIMEOUT, scenario(scene)).await;
            result.unwrap_or_else(|_| Err("it does not finish in time".into()))
        }
    };
    scene.backend.release();
    outcome
}

fn filled(scene: &Scene<'_>, headers: &Headers) -> Headers {
    headers.iter().map(|(n, v)| (n.clone(), scene.fill(v))).collect()
}

async fn one(scene: &Scene<'_>, exchange: &Exchange) -> Result<(), String> {
    let number = scene.environment.next_case();
    let mut request = exchange.request.clone();
    request.target = scene.fill(&request.target);
    request.headers = filled(scene, &request.headers);
    request.headers.push((CASE_HEADER.into(), number.clone()));
    if let Some(raw) = &request.raw {
        let auth: String = scene
            .environment
            .target
            .credentials()
            .iter()
            .map(|(n, v)| format!("{n}: {v}\r\n"))
            .collect();
        let text = String::from_utf8_lossy(raw).replace("{auth}", &auth);
        let text = scene.fill(&text.replace("{case}", &format!("{CASE_HEADER}: {number}\r\n")));
        request.raw = Some(text.into_bytes());
    }
    let scripts = exchange.scripts.iter().map(|script| Script {
        headers: filled(scene, &script.headers),
        ..script.clone()
    });
    let mut handle = scene.backend.arm(scripts);
    let response = if request.raw.is_some() {
        exchange_with_fence(scene, &request).await
    } else {
        scene.exchange(&request).await
    };
    let seen: Vec<ReceivedRequest> = handle
        .so_far()
        .into_iter()
        .filter_map(|event| match event {
            Event::Request(seen) => Some(*seen),
            Event::ClientDisconnected => None,
        })
        // Leave out the fence, and delayed requests of earlier cases. Keep requests without a case number,
        // which may be smuggled.
        .filter(|seen| {
            matches!(*seen.values(CASE_HEADER), [] | [_, _, ..]) || seen.values(CASE_HEADER) == [number.as_str()]
        })
        .collect();
    let outcome = Outcome { response, seen };
    let fill = |text: &str| scene.fill(text);
    let says_how_many = |e: &Expect| matches!(e, Expect::Reached(_) | Expect::ReachedAtMost(_));
    if !exchange.expects.iter().any(says_how_many) {
        Expect::Reached(1)
            .check(&outcome, &fill)
            .map_err(|e| context(e, &outcome, scene.backend))?;
    }
    for expect in &exchange.expects {
        expect
            .check(&outcome, &fill)
            .map_err(|e| context(e, &outcome, scene.backend))?;
    }
    Ok(())
}

/// The error, with the response if that explains it.
fn context(why: String, outcome: &Outcome, backend: &Backend) -> String {
    match &outcome.response {
        Ok(response) if response.status >= 400 && !why.starts_with("the body") => {
            format!("{why} ({} {:?} at {})", response.status, response.text(), backend.group)
        }
        Err(e) if !why.contains(e.as_str()) => format!("{why} ({e})"),
        _ => why,
    }
}

const FENCE: &str = "fence";

/// Sends raw bytes followed by one valid request (the fence). If the gateway reads the bytes as a further
/// request, that request has reached the backend by the time the fence is answered.
async fn exchange_with_fence(scene: &Scene<'_>, request: &Request) -> Result<Response, String> {
    let exchange = async {
        let (response, mut io) = scene.environment.target.over_http1(request).await?;
        let mut headers = vec![("Host".to_owned(), scene.environment.target.authority.clone())];
        headers.extend(scene.environment.target.credentials());
        headers.push((CASE_HEADER.to_owned(), FENCE.to_owned()));
        headers.push(("Connection".to_owned(), "close".to_owned()));
        let line = format!("GET {} HTTP/1.1", scene.fill("{base}/fence"));
        let fence = crate::wire::encode_head(&line, &headers);
        // If the gateway has closed the connection, there is nothing to wait for.
        if io.write_all(&fence).await.is_ok() && io.flush().await.is_ok() {
            while client::answer(&mut io, "GET").await.is_ok() {}
        }
        Ok(response)
    };
    let done = tokio::time::timeout(TIMEOUT, exchange).await;
    done.unwrap_or_else(|_| Err("the connection stays open without a response".into()))
}

//! Replays the exchanges recorded from kube-apiserver against a gateway in this process and compares every
//! response: status code, headers and body. `README.md` describes the recordings and how to make new ones.
//!
//! - `WIRE_ONLY=crd` or `WIRE_ONLY=crd/lifecycle`: only these, with all differences.
//! - `WIRE_SERVER=https://… WIRE_CA=ca.crt WIRE_TOKEN=…`: another server instead of a gateway.

#![allow(clippy::unwrap_used)] // `allow-unwrap-in-tests` does not cover helper functions

mod callback;
mod case;
mod compare;
mod decode;
mod details;
mod gateway;
mod http;
mod normalise;
mod openapi;
mod paths;
mod promises;
mod proofs;
mod protobuf;
mod recordings;
mod replay;
mod request;
mod response;
mod run;
mod text;
mod tidy;
mod views;
mod watch;

use http::Endpoint;
use promises::Promise;
use recordings::Recording;
use replay::Verdict;
use run::{Patience, Target};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

/// Requirements of cases that this gateway does not meet, with the reasons.
const ELSEWHERE: &[(&str, &str)] = &[(
    "sample",
    "needs Kubernetes' sample-apiserver and etcd; `SAMPLE_APISERVER=… make parity` runs it, and \
     tests/extension_server.rs covers aggregation with a server of our own",
)];

const USUAL: Patience = Patience {
    effects: Duration::from_secs(4),
    grace: Duration::from_millis(120),
};

/// For cases that failed on a busy machine, and run again alone.
const LONG: Patience = Patience {
    effects: Duration::from_secs(15),
    grace: Duration::from_millis(500),
};

/// Writes to standard error, past libtest's capture: the totals are of interest when the test passes, too.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The server that the environment names, or a new gateway.
fn target() -> (Option<gateway::Running>, Target) {
    if let Ok(url) = std::env::var("WIRE_SERVER") {
        let ca = std::fs::read(std::env::var("WIRE_CA").expect("WIRE_CA names a file")).unwrap();
        let admin = std::env::var("WIRE_TOKEN").unwrap_or_else(|_| gateway::ADMIN.to_owned());
        return (None, Target::new(Endpoint::new(&url, &ca), &admin));
    }
    let running = gateway::Running::start();
    gateway::wait_until_ready(&running.endpoint);
    let target = Target::new(running.endpoint.clone(), gateway::ADMIN);
    (Some(running), target)
}

/// Why a case cannot run here.
fn reason(recording: &Recording) -> Option<&'static str> {
    recording.case.requires.iter().find_map(|needed| {
        let found = ELSEWHERE.iter().find(|(what, _)| what == needed);
        assert!(found.is_some() || needed == "callback", "nothing offers {needed}");
        found.map(|(_, why)| *why)
    })
}

/// The recordings that can run here. The others are listed with the reason.
fn runnable(all: &[Recording]) -> Vec<&Recording> {
    let (elsewhere, here): (Vec<_>, Vec<_>) = all.iter().partition(|r| reason(r).is_some());
    for recording in elsewhere {
        let (id, why) = (recording.case.id(), reason(recording).unwrap_or_default());
        let count = recording.case.steps.len();
        say(&format!("not run here: {id} ({count} exchanges): {why}"));
    }
    here
}

/// How many exchanges of each area are equal.
fn totals(verdicts: &[Verdict<'_>]) -> BTreeMap<String, Promise> {
    let mut areas = BTreeMap::new();
    for verdict in verdicts {
        let none = Promise { passed: 0, total: 0 };
        let area = areas.entry(verdict.recording.case.area.clone()).or_insert(none);
        area.passed += verdict.passed();
        area.total += verdict.steps.len();
    }
    areas
}

/// The areas with fewer equal exchanges than promised.
fn fallen(totals: &BTreeMap<String, Promise>, promised: &BTreeMap<String, Promise>) -> Vec<String> {
    let kept = |area: &String, passed: usize| promised.get(area).is_none_or(|p| p.passed <= passed);
    let fallen = totals.iter().filter(|(area, now)| !kept(area, now.passed));
    fallen.map(|(area, _)| area.clone()).collect()
}

/// Runs failed cases of the areas again, each on a gateway of its own.
///
/// On a busy machine, effects become visible late; and a node port that a recording names may have been allocated at
/// random to another case's Service.
fn again(verdicts: &mut [Verdict<'_>], areas: &[String]) {
    let failed = |v: &&mut Verdict<'_>| v.passed() < v.steps.len() && areas.contains(&v.recording.case.area);
    for verdict in verdicts.iter_mut().filter(failed) {
        let (_running, target) = target();
        let second = replay::replay_and_compare(&target, verdict.recording, LONG);
        if second.passed() > verdict.passed() {
            let id = verdict.recording.case.id();
            say(&format!(
                "{id} differs less when it runs alone than among others:\n{}",
                verdict.failures()
            ));
            *verdict = second;
        }
    }
}

/// Replays a case with one changed response: exactly that step must fail.
fn prove_that_it_can_fail(target: &Target) {
    let id = "concurrency/delete-preconditions";
    let mut changed = recordings::load_some(&recordings::directory(), id).pop().unwrap();
    changed.recorded[3]["body"]["reason"] = "AlreadyExists".into();
    let verdict = replay::replay_and_compare(target, &changed, USUAL);
    let failed: Vec<&str> = verdict.steps.iter().flatten().map(|d| d.path.as_str()).collect();
    assert_eq!(failed, ["reason"], "{}", verdict.failures());
    assert_eq!(verdict.passed(), verdict.steps.len() - 1);
}

#[test]
fn recorded_exchanges_are_answered_as_by_kube_apiserver() {
    let start = Instant::now();
    let only = std::env::var("WIRE_ONLY").unwrap_or_default();
    let recordings = recordings::load_some(&recordings::directory(), &only);
    let chosen = runnable(&recordings);
    assert!(!chosen.is_empty(), "no case is called {only}");
    let everything = only.is_empty();
    let (_running, target) = target();
    prove_that_it_can_fail(&target);
    let mut verdicts = replay::all(&chosen, |r| replay::replay_and_compare(&target, r, USUAL));
    let promised = promises::read();
    if everything {
        let areas = fallen(&totals(&verdicts), &promised);
        again(&mut verdicts, &areas);
    }
    verdicts.sort_by_key(|v| v.recording.case.id());
    let totals = totals(&verdicts);
    let fallen = fallen(&totals, &promised);
    let mut failures = String::new();
    for verdict in &verdicts {
        if !everything || fallen.contains(&verdict.recording.case.area) {
            failures += &verdict.failures();
        }
    }
    if !everything {
        say(&failures);
        say(&format!("{totals:?}"));
        // The promises are about whole areas, so a run of a part of an area does not check them.
        let whole = |area: &&String| promised[*area].total == totals[*area].total;
        assert_eq!(fallen.iter().find(whole), None, "an area fell below its promise");
        return;
    }
    for (area, now) in &totals {
        let promise = promised.get(area).copied();
        match promise {
            Some(p) if p.total != now.total => {
                failures += &format!("{area} has {} exchanges: update parity.txt\n", now.total)
            }
            Some(p) if p.passed >= now.passed => {}
            _ => say(&format!(
                "docs/wire/parity.txt can promise more: {area} {} {}",
                now.passed, now.total
            )),
        }
        if fallen.contains(area) {
            failures += &format!(
                "{area}: {} of {} are equal, {promise:?} is promised\n",
                now.passed, now.total
            );
        }
    }
    for area in promised.keys().filter(|a| !totals.contains_key(*a)) {
        let listed = recordings.iter().any(|r| r.case.area == **area && reason(r).is_some());
        assert!(listed, "docs/wire/parity.txt names {area}, which has no recordings");
    }
    let sum = |f: fn(&Promise) -> usize| totals.values().map(f).sum::<usize>();
    let (passed, total) = (sum(|p| p.passed), sum(|p| p.total));
    say(&format!(
        "{passed} of {total} exchanges are equal ({:.1} s)",
        start.elapsed().as_secs_f64()
    ));
    assert!(failures.is_empty(), "\n{failures}");
}

/// Records all cases again from the server that the environment names, into the directory `WIRE_RECORD`.
#[test]
#[ignore = "needs a kube-apiserver: README.md"]
fn record() {
    let into = std::env::var("WIRE_RECORD").expect("WIRE_RECORD names a directory");
    assert!(
        std::env::var_os("WIRE_SERVER").is_some(),
        "WIRE_SERVER names the server"
    );
    let recordings = recordings::load(&recordings::directory());
    let (_, target) = target();
    let all: Vec<&Recording> = recordings.iter().collect();
    let mut results = replay::all(&all, |recording| {
        let outcomes = match reason(recording) {
            // A case that cannot be recorded here keeps its recording.
            Some(_) => recording.recorded.iter().cloned().map(Ok).collect(),
            None => replay::record(&target, recording, LONG),
        };
        (recording, outcomes)
    });
    results.sort_by_key(|(recording, _)| recording.case.id());
    let mut problems = Vec::new();
    let recorded = results.into_iter().map(|(recording, outcomes)| {
        let responses = recording.case.steps.iter().zip(outcomes).map(|(step, outcome)| {
            let response = outcome.unwrap_or_else(|why| serde_json::json!({"error": why}));
            if response.get("error").is_some() || step.want.is_some_and(|want| response["status"] != want) {
                problems.push(format!("{} {}: {response}", recording.case.id(), step.id));
            }
            response
        });
        (recording, responses.collect())
    });
    recordings::save(std::path::Path::new(&into), &recorded.collect::<Vec<_>>());
    assert!(
        problems.is_empty(),
        "not as their author expected:\n{}",
        problems.join("\n")
    );
}

//! Runs the cases of `tools/proxy-conformance` against a gateway process. `DIFFERS` lists the expected
//! failures with their reasons, and a case that holds again must be removed from it. Afterwards the audit log
//! is compared with what the backends received.

mod support;

use proxy_conformance::backend::ReceivedRequest;
use proxy_conformance::cases::{self, interpret};
use proxy_conformance::client::Credentials;
use proxy_conformance::environment::{Environment, Options, Via};
use proxy_conformance::report::{self, Format};
use proxy_conformance::run;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use support::Gateway;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;

const LIBRARY: &str =
    "the HTTP library that serves writes trailers to HTTP/1.1 clients only where they were announced and asked for";

/// Cases that do not hold, with the reason.
const DIFFERS: &[(&str, &str)] = &[("3.4.1p", LIBRARY), ("3.4.1q", LIBRARY)];

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

/// A generated certificate and its key.
fn certificate(g: &Gateway, name: &str) -> Credentials {
    let read = |end: &str| {
        let path = g.dir.join("data/pki").join(format!("{name}.{end}"));
        std::fs::read_to_string(path).expect("it was generated")
    };
    Credentials::Certificate(read("crt"), read("key"))
}

/// Runs all applicable cases against a gateway with an audit log and with these flags and environment
/// variables.
fn every_row_holds(flags: &[&str], environment: &[(&str, &str)], options: impl FnOnce(&Gateway) -> Options) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    std::fs::write(&policy, POLICY).expect("it can be written");
    let audit = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let flags: Vec<&str> = audit.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    let mut g = Gateway::start_in(dir.path(), &flags, environment);
    let ca = std::fs::read_to_string(g.dir.join("data/pki/ca.crt")).expect("it was generated");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (results, journal) = runtime.block_on(async {
        let environment = Environment::try_new(&g.url(), &ca, &certificate(&g, "admin"), options(&g)).await;
        let environment = Arc::new(environment.expect("the gateway takes the backends"));
        (
            run::run(environment.clone(), cases::all()).await,
            environment.requests(),
        )
    });
    for slow in results.iter().filter(|v| v.took > Duration::from_secs(3)) {
        eprintln!("{} {} took {:?}", slow.id, slow.combination(), slow.took);
    }
    let known: BTreeSet<&str> = DIFFERS.iter().map(|(id, _)| *id).collect();
    let failed: BTreeSet<&str> = results.iter().filter(|v| v.outcome.is_err()).map(|v| v.id).collect();
    let unexpected: Vec<_> = results
        .iter()
        .filter(|v| v.outcome.is_err() && !known.contains(v.id))
        .cloned()
        .collect();
    assert!(
        unexpected.is_empty(),
        "\n{}",
        report::format(&unexpected, Format::Table)
    );
    let mended: Vec<_> = known.difference(&failed).collect();
    assert!(mended.is_empty(), "these hold again: {mended:?}");

    // Shutdown flushes the audit log.
    g.process.signal("TERM");
    g.process.wait(Duration::from_secs(20));
    let log = std::fs::read_to_string(&log).expect("the log was written");
    seen_by_the_authorizer(&journal, &log);
}

#[test]
fn every_case_holds_with_external_name_services() {
    let egress = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = format!("http://{}", egress.local_addr().expect("it is bound"));
    every_row_holds(&[], &[("HTTPS_PROXY", proxy.as_str())], |g| Options {
        front_proxy: Some(certificate(g, "front-proxy-client")),
        egress: Some(Arc::new(egress)),
        ..Options::default()
    });
}

#[test]
fn every_case_holds_with_endpoints_and_redirects() {
    let flags = [
        "--enable-aggregator-routing",
        "--aggregator-reject-forwarding-redirect=false",
    ];
    every_row_holds(&flags, &[], |_| Options {
        listen: IpAddr::from([0, 0, 0, 0]),
        host: address_of_this_machine().to_string(),
        via: Via::Endpoints,
        redirects_passed: true,
        ..Options::default()
    });
}

/// A non-loopback address of this machine, because Endpoints must not have loopback addresses. Connecting a
/// UDP socket selects the address without sending anything.
fn address_of_this_machine() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").and_then(|s| s.connect("192.0.2.1:9").map(|()| s));
    let own = socket.and_then(|s| s.local_addr());
    own.expect("a network interface beside the loopback").ip()
}

/// Checks that every request received by a backend has an audit event with its id and the same user, object
/// and verb.
fn seen_by_the_authorizer(journal: &[ReceivedRequest], log: &str) {
    let mut events: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in log.lines() {
        let event = json::decode(line.as_bytes()).expect("a line is an event");
        events
            .entry(event.str_at(&["auditID"]).to_owned())
            .or_default()
            .push(event);
    }
    assert!(journal.len() > 1000, "the cases reach the backends: {}", journal.len());
    for seen in journal {
        let id = *seen.values("audit-id").first().expect("the gateway states an audit id");
        let of_that_id = events.get(id).map(Vec::as_slice).unwrap_or_default();
        assert!(
            of_that_id.iter().any(|event| same(seen, event)),
            "{} {} reached a backend as {:?}; the audit log has {of_that_id:?}",
            seen.method,
            seen.target,
            seen.values("x-remote-user"),
        );
    }
}

fn same(seen: &ReceivedRequest, event: &Value) -> bool {
    let stated = if event.get("impersonatedUser").is_null() {
        "user"
    } else {
        "impersonatedUser"
    };
    if seen.values("x-remote-user") != [event.str_at(&[stated, "username"])] {
        return false;
    }
    if event.at(&["annotations", "authorization.k8s.io/decision"]).as_str() != Some("allow") {
        return false;
    }
    let is = interpret(&seen.target);
    let object = |key: &str| event.str_at(&["objectRef", key]);
    (object("namespace"), object("resource"), object("subresource")) == (&is.namespace, &is.resource, &is.subresource)
        && (is.name.is_empty() || object("name") == is.name)
        && (is.special.is_empty() || event.str_at(&["verb"]) == is.special)
}

#[test]
fn case_ids_are_unique() {
    let mut claims: BTreeMap<&str, &str> = BTreeMap::new();
    for case in cases::all() {
        let other = claims.insert(case.id, case.claim).filter(|other| *other != case.claim);
        assert_eq!(other, None, "{} is {:?}, too", case.id, case.claim);
    }
}

//! The rows of `tools/proxy-conformance` against a gateway process of our own. What differs is listed here, with the
//! reason; a row that holds again has to leave the list.

mod support;

use proxy_conformance::client::Credentials;
use proxy_conformance::report::{self, Format};
use proxy_conformance::world::{Options, World};
use proxy_conformance::{rows, run};
use std::collections::BTreeSet;
use std::sync::Arc;
use support::Gateway;

/// Rows that do not hold, and why.
const DIFFERS: &[(&str, &str)] = &[];

fn credentials(g: &Gateway) -> Credentials {
    let read = |name: &str| std::fs::read_to_string(g.dir.join("data/pki").join(name)).expect("it was generated");
    Credentials::Certificate(read("admin.crt"), read("admin.key"))
}

#[test]
fn every_row_holds_but_those_that_are_said_not_to() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let ca = std::fs::read_to_string(g.dir.join("data/pki/ca.crt")).expect("it was generated");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let verdicts = runtime.block_on(async {
        let world = World::try_new(&g.url(), &ca, &credentials(&g), Options::default()).await;
        let world = Arc::new(world.expect("the gateway takes the backends"));
        run::run(world, rows::all()).await
    });
    let known: BTreeSet<&str> = DIFFERS.iter().map(|(id, _)| *id).collect();
    let failed: BTreeSet<&str> = verdicts.iter().filter(|v| v.outcome.is_err()).map(|v| v.id).collect();
    let unexpected: Vec<_> = verdicts
        .iter()
        .filter(|v| v.outcome.is_err() && !known.contains(v.id))
        .cloned()
        .collect();
    assert!(
        unexpected.is_empty(),
        "\n{}",
        report::written(&unexpected, Format::Table)
    );
    let mended: Vec<_> = known.difference(&failed).collect();
    assert!(mended.is_empty(), "these hold again: {mended:?}");
}

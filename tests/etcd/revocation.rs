//! Permissions revoked through one gateway, observed at another gateway on the same etcd.

use crate::etcd_process::{Etcd, is_there};
use crate::revocation_rounds::{ALL, Administrator, prepare, revocation_round};
use crate::support::Gateway;
use std::time::Duration;

/// The longest time for which a token may be accepted from the cache without a look-up.
const SECONDS: Duration = Duration::from_secs(10);

#[test]
fn a_revocation_is_immediate_here_and_within_seconds_elsewhere() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let servers = format!("--etcd-servers=http://127.0.0.1:{}", etcd.port(0));
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let here = Gateway::start_with(dirs[0].path(), &[&servers, "--enable-bootstrap-token-auth"]);
    // Both gateways use the same signing keys, as API servers of one cluster do.
    let keys = here.dir.join("data/pki/sa.key").display().to_string();
    let there = [
        servers.clone(),
        "--enable-bootstrap-token-auth".to_owned(),
        format!("--service-account-signing-key-file={keys}"),
        format!("--service-account-key-file={}", keys.replace("sa.key", "sa.pub")),
    ];
    let there = Gateway::start_with(dirs[1].path(), &there.each_ref().map(String::as_str));
    let mut admin = Administrator::of(&here);
    prepare(&mut admin);
    let mut longest = Duration::ZERO;
    for (n, how) in ALL.into_iter().enumerate() {
        let late = revocation_round(&mut admin, &here, how, &format!("n{n}"));
        assert_eq!(late, None, "{how:?}: allowed here so long after the acknowledgement");
        let late = revocation_round(&mut admin, &there, how, &format!("n{}", n + 100)).unwrap_or_default();
        assert!(late < SECONDS, "{how:?}: allowed at the other gateway for {late:?}");
        longest = longest.max(late);
    }
    println!("at the other gateway, a revoked right was used for {longest:?} at most");
}

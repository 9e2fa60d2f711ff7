//! Attacks a gateway process with hostile requests and peers, by kind of attacker, while a prober sends small
//! requests over new connections. No case may delay the prober, use more memory than it sends, or leave
//! resources behind.
//!
//! The bounded form runs in `make test` with a debug build; `make hostile` runs the full form with a release
//! build.
//!
//! To run only the cases whose attacker or name contains one of some words:
//!
//!     TORANA_HOSTILE=yaml,node cargo test --test hostile -- --nocapture

// clippy's `allow-unwrap-in-tests` does not cover helper functions of a test binary.
#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

mod attackers;
mod backend;
mod campaign;
mod frames;
mod prober;
mod scale;
mod scene;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod usage;
mod wire;

#[test]
fn no_request_or_peer_degrades_others() {
    let filter = std::env::var("TORANA_HOSTILE").unwrap_or_default();
    let mut scale = scale::Scale::of_environment();
    if !filter.is_empty() {
        // A filtered run is for debugging, so show all failures.
        scale.failures = usize::MAX;
    }
    let report = campaign::run(&scale, &filter);
    println!("{}", report.text);
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
}

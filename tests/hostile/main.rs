//! Hostile requests and peers, by the kind of attacker, against a gateway process, while somebody else goes on asking small
//! things over new connections. No case may make the others wait, take memory beyond what it sends, or leave anything.
//!
//! The bounded form runs in `make test` with a debug build; `make hostile` runs the whole form with a release build.
//!
//!     TORANA_HOSTILE=yaml,node cargo test --test hostile -- --nocapture      cases whose attacker or name has one of these

// `allow-unwrap-in-tests` does not reach the helpers of a test binary.
#![allow(clippy::unwrap_used)]

mod attackers;
mod backend;
mod campaign;
mod form;
mod frames;
mod prober;
mod scene;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod usage;
mod wire;

#[test]
fn no_request_or_peer_costs_another() {
    let filter = std::env::var("TORANA_HOSTILE").unwrap_or_default();
    let mut form = form::Form::of_environment();
    if !filter.is_empty() {
        // Whoever asks for some cases wants to see all that fail.
        form.failures = usize::MAX;
    }
    let report = campaign::run(&form, &filter);
    println!("{}", report.text);
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
}

//! The complexity fuzzer: no request costs more than in proportion to its size.
//!
//! A gateway runs in this process. For every kind that discovery lists, the schema table says which fields can be long: lists,
//! maps, texts, free-form values. Each is made longer by doubling, with distinct elements, equal ones, empty ones and
//! invalid ones, and sent through the whole filter chain: create, update, status, every encoding, every kind of patch,
//! tables. CPU time and heap of the process are measured. Where one of them grows by more than three for a doubling, or a
//! request takes more than its budget, the test fails and names the kind, the request, the field, the lengths and the
//! figures. Bodies that the table cannot describe (aliases, equal keys, patch operations) are in [`documents`].
//!
//! A new kind is covered once discovery lists it. It begins with its object in `tests/testdata/every-kind.yaml`, which
//! another test demands, or with what the schema requires; refusals say what else a valid object needs ([`fit`]).
//!
//! Noise does not decide: costs are CPU time, not clock time; growth that looks wrong is measured again at larger lengths,
//! the least of three runs each, until it is plain or the body is as long as the gateway reads ([`judge`]).
//!
//! `cargo test` tries every field once. `make fuzz` tries every field of every kind in every way and pairs of fields, from
//! a random kind on, for `FUZZ_SECONDS`; `FUZZ_SEED` repeats a run, `FUZZ_ONLY` names kinds or documents.

mod catalogue;
mod combine;
mod documents;
mod fit;
mod growth;
mod judge;
mod make;
mod meter;
mod plan;
mod server;
mod sites;
mod ways;

use plan::{Extent, Plan};
use std::time::{Duration, Instant};

/// Values a thousand levels deep are walked by recursion, in frames that no optimiser has made small.
const STACK: usize = 64 << 20;

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_cost_grows_faster_than_its_request() {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(fuzz);
    if let Err(panic) = thread.expect("a thread").join() {
        std::panic::resume_unwind(panic);
    }
}

fn fuzz() {
    let seconds: u64 = variable("FUZZ_SECONDS").unwrap_or(0);
    let only: String = variable("FUZZ_ONLY").unwrap_or_default();
    let server = server::Server::start();
    let start = meter::cpu();
    let mut plan;
    if seconds == 0 {
        plan = Plan::new(&server, Extent::Once);
        plan.documents(&only);
        plan.run(&only, &|| true);
    } else {
        let seed = variable("FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("FUZZ_SEED={seed}");
        let until = Instant::now() + Duration::from_secs(seconds);
        plan = Plan::new(&server, Extent::Everything);
        plan.begin_at(seed);
        plan.documents(&only);
        plan.run(&only, &|| Instant::now() < until);
    }
    let tally = &plan.tally;
    println!(
        "{} fields, {} of them in valid objects; {} requests measured; {:.1} s of CPU time",
        tally.sites,
        tally.accepted,
        tally.requests.get(),
        (meter::cpu() - start).as_secs_f64()
    );
    if variable("FUZZ_VERBOSE") == Some(true) {
        for (field, why) in &tally.refused {
            println!("refused: {field}: {why}");
        }
    }
    assert!(
        plan.findings.is_empty(),
        "{} costs grow faster than their requests:\n{}",
        plan.findings.len(),
        plan.findings.join("\n")
    );
    // Growth of what is refused at once shows nothing of validation: most fields must be reached.
    assert!(
        !only.is_empty() || tally.accepted * 10 >= tally.sites * 6,
        "only {} of {} fields are in valid objects (FUZZ_VERBOSE=true says why)",
        tally.accepted,
        tally.sites
    );
}

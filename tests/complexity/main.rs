//! The complexity fuzzer: the cost of a request is at most proportional to its size.
//!
//! A gateway runs in this process. For every kind in discovery, the schema table says which fields can be
//! long: lists, maps, strings, free-form values. Each field is grown by doubling, with distinct, equal, empty
//! and invalid elements, and sent through the whole filter chain: create, update, status, every encoding,
//! every patch type, tables. CPU time and heap of the process are measured. If a doubling multiplies one of
//! them by more than three, or a request exceeds its budget, the test fails and names the kind, the request,
//! the field, the lengths and the measurements. Bodies that the table cannot describe (aliases, duplicate
//! keys, patch operations) are in [`documents`].
//!
//! A new kind is covered once it appears in discovery. Its first object comes from
//! `tests/testdata/every-kind.yaml`, which another test keeps complete, or from the required fields of its
//! schema; refusals say what else a valid object needs ([`fit`]).
//!
//! Noise does not decide: costs are CPU time, not wall time, and a suspicious growth is measured again at
//! larger lengths, with the minimum of three runs each, until it is certain or the body has its maximum
//! length ([`check_growth`]).
//!
//! `cargo test` tries every field once. `make fuzz` tries every field of every kind in every way, and pairs
//! of fields, starting from a random kind, for `FUZZ_SECONDS`. `FUZZ_SEED` repeats a run, and `FUZZ_ONLY`
//! selects kinds or documents.
//!
//! Because CPU time and heap are those of the whole process, requests are measured one after another. `cargo
//! test` therefore starts one process for each core and gives each its share of the kinds ([`shards`]).

mod catalogue;
mod combine;
mod documents;
mod fit;
mod growth;
mod growth_check;
mod make;
mod meter;
mod plan;
mod server;
mod shards;
mod sites;
mod submissions;

use plan::{Extent, Plan};
use shards::Shard;
use std::time::{Duration, Instant};

/// Stack size in bytes: values a thousand levels deep are walked recursively, with the large frames of an
/// unoptimised build.
const STACK: usize = 64 << 20;

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn cost_is_proportional_to_request_size() {
    // A timed or narrowed run is one process; so is each shard.
    let narrowed = ["FUZZ_SECONDS", "FUZZ_ONLY", shards::VARIABLE]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    if !narrowed {
        return shards::run("cost_is_proportional_to_request_size");
    }
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(fuzz);
    if let Err(panic) = thread.expect("a thread").join() {
        std::panic::resume_unwind(panic);
    }
}

fn fuzz() {
    let seconds: u64 = variable("FUZZ_SECONDS").unwrap_or(0);
    let only: String = variable("FUZZ_ONLY").unwrap_or_default();
    let shard: Shard = variable(shards::VARIABLE).unwrap_or_default();
    let server = server::Server::start();
    let start = meter::cpu();
    let mut plan;
    if seconds == 0 {
        plan = Plan::new(&server, Extent::Once);
        if shard.is_first() {
            plan.documents(&only);
        }
        plan.run(&only, shard, &|| true);
    } else {
        let seed = variable("FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("FUZZ_SEED={seed}");
        let until = Instant::now() + Duration::from_secs(seconds);
        plan = Plan::new(&server, Extent::Everything);
        plan.seed_with(seed);
        plan.documents(&only);
        plan.run(&only, shard, &|| Instant::now() < until);
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
        "{} costs grow faster than the size of their requests:\n{}",
        plan.findings.len(),
        plan.findings.join("\n")
    );
    // A request refused early shows nothing about validation, so most fields must occur in valid objects.
    assert!(
        !only.is_empty() || tally.accepted * 10 >= tally.sites * 6,
        "only {} of {} fields are in valid objects (FUZZ_VERBOSE=true says why)",
        tally.accepted,
        tally.sites
    );
}

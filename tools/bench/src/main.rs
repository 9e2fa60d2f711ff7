//! The load generator behind `make bench`: measures a release build of Torana, and HAProxy and nginx for
//! comparison, in one run.
//!
//! CPU is user + system time of the server process, read from `/proc/<pid>/stat` around the load. Ratios to a
//! peer are computed within one run, because the machines are noisy.

mod aggregation;
mod backend;
mod client;
mod definitions;
mod etcd;
mod gateway;
mod growth;
mod kube_apiserver;
mod loops;
mod peers;
mod process;
mod report;
mod rest;
mod scenarios;
mod svg;
mod train;
mod webhooks;

use std::path::PathBuf;

fn main() {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .expect("no provider was installed before");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the machine can start two threads");
    let done = match args.first().map(String::as_str) {
        Some("backend") => runtime.block_on(backend::run(args.get(1).map(PathBuf::from).expect("backend DIR"))),
        Some("run") => {
            let torana = args.get(1).map(PathBuf::from).expect("run TORANA_BINARY [SCENARIO…]");
            runtime.block_on(scenarios::run(torana, &args[2..]))
        }
        Some("train") => runtime.block_on(train::run(args.get(1).map(PathBuf::from).expect("train TORANA_BINARY"))),
        _ => Err(
            "usage: torana-bench run TORANA_BINARY [SCENARIO…] | torana-bench train TORANA_BINARY | torana-bench backend DIR"
                .into(),
        ),
    };
    if let Err(e) = done {
        eprintln!("torana-bench: {e}");
        std::process::exit(1);
    }
}

//! A gateway with `tower` layers around its filter chain: one of this program's own, two of tower-http's. See
//! README.md.

mod layers;

use std::ffi::OsString;
use std::process::ExitCode;
use torana::gateway::{Command, CompletedOptions, Gateway, parse};

fn main() -> ExitCode {
    match options().and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tower-layer: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the flags of `torana serve`.
fn options() -> Result<CompletedOptions, String> {
    let words = ["tower-layer", "serve"].map(OsString::from);
    match parse(words.into_iter().chain(std::env::args_os().skip(1))) {
        Ok(Command::Serve(options)) => options.complete().map_err(|e| e.to_string()),
        Ok(Command::Print(text)) => {
            print!("{text}");
            std::process::exit(0)
        }
        Ok(_) => Err("it takes the flags of `torana serve`".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

fn serve(options: CompletedOptions) -> Result<(), String> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(8 << 20)
        .build()
        .map_err(|e| format!("cannot start the runtime: {e}"))?;
    let ended = runtime.block_on(layers::around(Gateway::builder(options)).run());
    ended.map_err(|e| e.to_string())
}

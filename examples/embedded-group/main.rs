//! A gateway that serves an additional group, `notes.example.com/v1`, in its own process. See README.md.

mod notes;

use std::ffi::OsString;
use std::process::ExitCode;
use torana::gateway::{self, Command, CompletedOptions, parse};

fn main() -> ExitCode {
    match options().and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("embedded-group: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the flags of `torana serve`.
fn options() -> Result<CompletedOptions, String> {
    let words = ["embedded-group", "serve"].map(OsString::from);
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
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(options.log_filter())
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(8 << 20)
        .build()
        .map_err(|e| format!("cannot start the runtime: {e}"))?;
    let ended = runtime.block_on(gateway::run_with(options, vec![notes::group()]));
    ended.map_err(|e| e.to_string())
}

//! `torana`: reads the command line, installs what is process-wide, runs, and maps the end to an exit code.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use torana::cli::{self, Command, CompletedOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command line is wrong, or a file it names.
const USAGE: u8 = 2;
/// The server could not start or failed.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    raise_open_file_limit();
    let options = match cli::parse(std::env::args_os()) {
        Ok(Command::Serve(options)) => options,
        Ok(Command::Store(command)) => {
            if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
                return fail(FAILED, &"another TLS provider is installed already");
            }
            return answer(torana::app::tool::run(*command));
        }
        Ok(Command::Token(command)) => {
            let print = |token: String| token + "\n";
            return answer(async move { torana::app::credentials::token(&command).await.map(print) });
        }
        Ok(Command::Kubeconfig(command)) => {
            return answer(async move { torana::app::credentials::kubeconfig(&command).await });
        }
        Ok(Command::Print(text)) => {
            // A closed pipe (`torana --help | head`) is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Ok(Command::Status(look)) => return answer(async move { look.run().await }),
        Ok(Command::ExplainAccess(question)) => return answer(async move { question.run().await }),
        Err(error) => return fail(USAGE, &error),
    };
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return fail(FAILED, &"another TLS provider is installed already");
    }
    let seeding = match seed() {
        Ok(seeding) => seeding,
        Err(error) => return fail(FAILED, &format_args!("cannot start a thread: {error}")),
    };
    let options = match options.complete() {
        Ok(options) => options,
        Err(error) => return fail(USAGE, &error),
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(options.logging.filter())
        .init();
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    match run(options, seeding) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &error),
    }
}

/// Prints what a command comes to.
fn answer(command: impl Future<Output = Result<String, String>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(FAILED, &format_args!("cannot start the runtime: {error}")),
    };
    match runtime.block_on(command) {
        Ok(text) => {
            // A closed pipe is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &error),
    }
}

fn run(options: CompletedOptions, seeding: Seeding) -> Result<(), String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = reactor_threads() {
        builder.worker_threads(threads);
    }
    let runtime = builder
        .enable_all()
        // Polls between two looks at the sockets. The default of 61 is made for polls of a few microseconds; uploads poll
        // for 50, and a small request would wait for 3 ms before anybody sees it.
        .event_interval(16)
        // Deep objects are walked recursively.
        .thread_stack_size(8 << 20)
        .thread_name("torana")
        .build()
        .map_err(|e| format!("cannot start the runtime: {e}"))?;
    let end = runtime.block_on(torana::app::run(options));
    // Over long ago: whoever needed a random number has waited for it.
    let _ = seeding.join();
    end
}

type Seeding = std::thread::JoinHandle<Result<(), aws_lc_rs::error::Unspecified>>;

/// The first random number costs some 30 ms, in which the provider measures the processor's jitter. They go by on a
/// thread of their own while flags are read and the store is opened.
fn seed() -> std::io::Result<Seeding> {
    std::thread::Builder::new()
        .name("seed".to_owned())
        .spawn(|| aws_lc_rs::rand::fill(&mut [0; 1]))
}

/// One less than there are cores, and at least one: the committer of the store, blocking work and the kernel's network
/// stack have the other. Handing a request between threads costs about a seventh of a proxied GET (docs/BENCHMARKS.md).
/// `None`: the operator said so himself, in tokio's own `TOKIO_WORKER_THREADS`.
fn reactor_threads() -> Option<usize> {
    if std::env::var_os("TOKIO_WORKER_THREADS").is_some() {
        return None;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Some(cores.saturating_sub(1).max(1))
}

/// Soft up to hard: every connection is a file, and many systems start programs at 1024. Go does the same.
fn raise_open_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused: the connection cap is computed from what the system allows, so there is nothing else to do.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn fail(code: u8, error: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "torana: {error}");
    ExitCode::from(code)
}

//! The `torana` binary: parses the command line, installs process-wide state (allocator, TLS provider, log
//! subscriber), runs the command, and maps its result to an exit code. Everything else is in the library; see
//! [`torana::gateway`].

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use torana::commands::{self, Session};
use torana::gateway::{Command, CompletedOptions, Gateway, parse, shorten_time_slice};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code for an invalid command line, or an invalid file that it names.
const USAGE: u8 = 2;
/// Exit code for a server that could not start, or that failed while running.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    // First: limits derived from it are computed while options are completed.
    raise_open_file_limit();
    let (options, session) = match parse(std::env::args_os()) {
        Ok(Command::Serve(options)) => (*options, None),
        Ok(Command::Dev(command)) => match Session::prepare(command) {
            Ok((session, options)) => (options, Some(session)),
            Err(error) => return fail(USAGE, &error),
        },
        Ok(Command::Store(command)) => {
            if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
                return fail(FAILED, &"another TLS provider is installed already");
            }
            return answer(commands::store(*command));
        }
        Ok(Command::Token(command)) => {
            let print = |token: String| token + "\n";
            return answer(async move { commands::token(&command).await.map(print) });
        }
        Ok(Command::Kubeconfig(command)) => {
            return answer(async move { commands::kubeconfig(&command).await });
        }
        Ok(Command::Print(text)) => {
            // A closed pipe (`torana --help | head`) is not an error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Ok(Command::Doctor(command)) => {
            if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
                return fail(FAILED, &"another TLS provider is installed already");
            }
            let examined = async move {
                let report = commands::doctor(*command).await;
                let _ = std::io::stdout().write_all(report.text.as_bytes());
                match report.healthy {
                    true => Ok(String::new()),
                    false => Err("at least one check failed"),
                }
            };
            return answer(examined);
        }
        Ok(Command::Health(question)) => return answer(async move { question.run().await }),
        Ok(Command::Status(look)) => return answer(async move { look.run().await }),
        Ok(Command::ExplainAccess(question)) => return answer(async move { question.run().await }),
        Err(error) => return fail(USAGE, &error),
    };
    // Before any thread is started; see there.
    let sockets = match inherited_sockets() {
        Ok(sockets) => sockets,
        Err(error) => return fail(USAGE, &error),
    };
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return fail(FAILED, &"another TLS provider is installed already");
    }
    // Started before the options are completed, so that the two overlap.
    let seeding = match seed() {
        Ok(seeding) => seeding,
        Err(error) => return fail(FAILED, &format_args!("cannot start a thread: {error}")),
    };
    let mut options = match options.complete() {
        Ok(options) => options,
        Err(error) => {
            // The provider's state is torn down when the process exits, and aborts it if the thread still uses it.
            let _ = seeding.join();
            return fail(USAGE, &error);
        }
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(options.log_filter())
        .init();
    options.on_idle(release_free_memory);
    for warning in options.warnings() {
        tracing::warn!("{warning}");
    }
    match run(options, session, sockets, seeding) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &error),
    }
}

/// Runs a one-shot command on a current-thread runtime and prints its output.
fn answer<E: std::fmt::Display>(command: impl Future<Output = Result<String, E>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(FAILED, &format_args!("cannot start the runtime: {error}")),
    };
    match runtime.block_on(command) {
        Ok(text) => {
            // A closed pipe is not an error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &error),
    }
}

fn run(
    options: CompletedOptions,
    session: Option<Session>,
    sockets: Vec<TcpListener>,
    seeding: Seeding,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = reactor_threads() {
        builder.worker_threads(threads);
    }
    let runtime = builder
        .enable_all()
        // Task polls between two checks for socket readiness. tokio's default of 61 suits polls of a few
        // microseconds; polls of uploads take 50 µs, so that a small request would go unnoticed for 3 ms.
        .event_interval(16)
        // Deeply nested objects are walked recursively, so workers get 8 MiB instead of tokio's 2 MiB.
        .thread_stack_size(8 << 20)
        .thread_name("torana")
        // Idle blocking threads are woken in turn, so a few handshakes per second would keep all threads of an earlier
        // burst, and what their heaps retain, alive with tokio's default of ten seconds. A new thread costs a fraction
        // of a handshake.
        .thread_keep_alive(Duration::from_millis(250))
        .on_thread_park(before_park)
        .build()
        .map_err(|e| format!("cannot start the runtime: {e}"))?;
    let end = runtime.block_on(match session {
        None => Gateway::builder(options).listen_on(sockets).run(),
        Some(session) => commands::dev(options, session),
    });
    // Returns at once: the thread ended during start-up, long before the server did.
    let _ = seeding.join();
    Ok(end?)
}

/// Returns free memory of the calling thread's heap, and of all arenas, to the system: mimalloc's, and those of the C
/// library, which SQLite uses. glibc itself returns only what is free at the end of an arena, so that the page cache of a
/// burst of writes would stay.
#[allow(unsafe_code, reason = "there are no safe bindings for it")]
fn release_free_memory() {
    // SAFETY: no preconditions; it may be called on any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: as above; it takes the locks of the allocator itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Runs on reactor threads before they wait for events, and not on those of the blocking pool.
fn before_park() {
    thread_local!(static IS_PREPARED: Cell<bool> = const { Cell::new(false) });
    if !IS_PREPARED.replace(true)
        && let Err(error) = shorten_time_slice()
    {
        tracing::debug!(%error, "reactors have the default time slice");
    }
    collect_free_memory();
}

/// Makes the memory that other threads have freed in the calling thread's heap reusable, at most once in
/// [`COLLECT_EVERY`]. mimalloc itself does so only while the thread allocates, so that a reactor that has
/// become idle after a burst would keep it. Takes some microseconds.
#[allow(unsafe_code, reason = "mimalloc has no safe binding for it")]
fn collect_free_memory() {
    thread_local!(static COLLECTED: Cell<Option<Instant>> = const { Cell::new(None) });
    let now = Instant::now();
    if COLLECTED.get().is_some_and(|at| now < at + COLLECT_EVERY) {
        return;
    }
    COLLECTED.set(Some(now));
    // SAFETY: no preconditions; it may be called on any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(false) }
}

/// Time between two collections of a reactor's free memory.
const COLLECT_EVERY: Duration = Duration::from_secs(5);

type Seeding = std::thread::JoinHandle<Result<(), aws_lc_rs::error::Unspecified>>;

/// Draws a first random number on a thread of its own. In a build without `.cargo/config.toml`, such as that
/// of `cargo install`, the first draw takes about 30 ms, because the provider seeds itself from CPU jitter;
/// on a separate thread that overlaps with option parsing and opening the store.
fn seed() -> std::io::Result<Seeding> {
    std::thread::Builder::new()
        .name("seed".to_owned())
        .spawn(|| aws_lc_rs::rand::fill(&mut [0; 1]))
}

/// Number of tokio worker threads: one less than the number of cores, but at least one. The remaining core
/// serves the store's committer, the blocking pool and the kernel's network stack. Handing a request from one
/// worker to another costs about a seventh of a proxied GET (docs/BENCHMARKS.md). `None` if the operator has
/// set tokio's own `TOKIO_WORKER_THREADS`.
fn reactor_threads() -> Option<usize> {
    if std::env::var_os("TOKIO_WORKER_THREADS").is_some() {
        return None;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Some(cores.saturating_sub(1).max(1))
}

/// The listening sockets that a service manager opened for this process (`LISTEN_FDS`, `sd_listen_fds(3)`),
/// such as those of `torana.socket`. Clears the variables that announce them, so it must run before the first
/// thread starts.
fn inherited_sockets() -> std::io::Result<Vec<TcpListener>> {
    let mut given = listenfd::ListenFd::from_env();
    let mut sockets = Vec::with_capacity(given.len());
    for n in 0..given.len() {
        let socket = given.take_tcp_listener(n);
        let refused = |e| std::io::Error::other(format!("socket {n} of the service manager is not a TCP socket: {e}"));
        sockets.extend(socket.map_err(refused)?);
    }
    for socket in &sockets {
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(sockets)
}

/// Raises the soft limit on open files to the hard limit, as the Go runtime does. Every connection holds a
/// descriptor, and many systems start processes with a soft limit of 1024.
fn raise_open_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A failure needs no handling: the connection limit is derived from whatever limit is in force.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn fail(code: u8, error: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "torana: {error}");
    ExitCode::from(code)
}

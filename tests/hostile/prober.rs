//! The prober: an uninvolved client that requests `/livez` and one small object, each over a new connection,
//! during attacks.
//!
//! A second thread is the control. It needs a little CPU time continuously, as a gateway does, and records
//! how late it is scheduled. That delay is the machine's own and is subtracted from the prober's gaps. The
//! control also guards the machine's memory.

use crate::usage;
use crate::wire::{self, Request, Target};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(15);
/// A request is abandoned after this long and repeated; the gap continues.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// Measurements since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Longest time without an answer.
    pub gap: Duration,
    /// Longest scheduling delay of the control.
    pub noise: Duration,
    /// Responses other than 200, and connections without a response.
    pub refused: u64,
    pub rounds: u64,
}

impl Seen {
    /// The gap minus the machine's own delay.
    pub(crate) fn own_gap(&self) -> Duration {
        self.gap.saturating_sub(self.noise)
    }
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    /// Started and finished rounds; changes are signalled.
    ended: Condvar,
    over: AtomicBool,
    killed: AtomicBool,
}

pub(crate) struct Prober {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Prober {
    /// Requests `path` with `token`, expecting a 200.
    pub(crate) fn start(target: Target, token: &str, path: &str, pid: u32, guard: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let questions = [
            (Request::get("/livez"), String::new()),
            (Request::get(path), token.to_owned()),
        ];
        let (mine, control) = (shared.clone(), shared.clone());
        let threads = vec![
            std::thread::spawn(move || probe(&mine, &target, &questions)),
            std::thread::spawn(move || watch_the_machine(&control, pid, guard)),
        ];
        Self { shared, threads }
    }

    /// Clears the measurements.
    pub(crate) fn reset(&self) {
        *self.lock() = Seen::default();
    }

    /// Waits for `rounds` complete rounds that begin from now on. Returns whether they finished in time.
    pub(crate) fn rounds(&self, rounds: u64, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut seen = self.lock();
        // The current round began earlier and does not count.
        let goal = seen.rounds + rounds + 1;
        while seen.rounds < goal {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.shared.killed.load(Ordering::Relaxed) {
                return false;
            }
            let waited = self
                .shared
                .ended
                .wait_timeout(seen, left.min(Duration::from_millis(100)));
            seen = waited.expect("no holder panics").0;
        }
        true
    }

    pub(crate) fn seen(&self) -> Seen {
        *self.lock()
    }

    /// Whether the gateway was killed because it used too much memory.
    pub(crate) fn killed(&self) -> bool {
        self.shared.killed.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.shared.seen.lock().expect("no holder panics")
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn probe(shared: &Shared, target: &Target, questions: &[(Request, String); 2]) {
    let over = || shared.over.load(Ordering::Relaxed);
    while !over() {
        for (question, token) in questions {
            let since = Instant::now();
            while !over() {
                let asked = ask(target, question, token);
                let gap = since.elapsed();
                let mut seen = shared.seen.lock().expect("no holder panics");
                seen.gap = seen.gap.max(gap);
                if asked {
                    break;
                }
                seen.refused += 1;
                drop(seen);
                std::thread::park_timeout(PAUSE);
            }
        }
        shared.seen.lock().expect("no holder panics").rounds += 1;
        shared.ended.notify_all();
        std::thread::park_timeout(PAUSE);
    }
}

fn ask(target: &Target, question: &Request, token: &str) -> bool {
    let Ok(mut io) = target.tls(Ipv4Addr::LOCALHOST) else {
        return false;
    };
    wire::send(&mut io, question, token).is_ok() && wire::answer(&mut io, GIVEN_UP).is_ok_and(|a| a.code == 200)
}

fn watch_the_machine(shared: &Shared, pid: u32, guard: u64) {
    let mut quickest = Duration::MAX;
    while !shared.over.load(Ordering::Relaxed) {
        let began = Instant::now();
        std::thread::park_timeout(Duration::from_millis(4));
        // Busy for about a quarter of a millisecond, so that the scheduler treats this thread as CPU-bound.
        let mut x = 1u64;
        for i in 0..20_000u64 {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i));
        }
        let took = began.elapsed();
        quickest = quickest.min(took);
        let mut seen = shared.seen.lock().expect("no holder panics");
        seen.noise = seen.noise.max(took - quickest);
        drop(seen);
        if usage::resident(pid) > guard && !shared.killed.swap(true, Ordering::Relaxed) {
            let _ = std::process::Command::new("kill")
                .arg("-9")
                .arg(pid.to_string())
                .status();
        }
    }
}

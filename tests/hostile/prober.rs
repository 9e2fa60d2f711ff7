//! Someone else, who asks `/livez` and for one small object, each over a connection of its own, while others attack.
//!
//! A second thread is the control: it needs the processor a little all the time, as a gateway does, and notes how late it
//! gets it. What the machine itself is late is taken off the prober's gaps. It also guards the machine's memory.

use crate::usage;
use crate::wire::{self, Request, Target};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(15);
/// Afterwards a question is given up and asked anew; the gap goes on.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// What happened since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Longest time without an answer.
    pub gap: Duration,
    /// How late the control was at worst.
    pub noise: Duration,
    /// Answers that were not 200, and connections without one.
    pub refused: u64,
    pub rounds: u64,
}

impl Seen {
    /// The gap that is not the machine's.
    pub fn own_gap(&self) -> Duration {
        self.gap.saturating_sub(self.noise)
    }
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    /// Rounds that were begun and ended; their change is signalled.
    ended: Condvar,
    over: AtomicBool,
    killed: AtomicBool,
}

pub struct Prober {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Prober {
    /// Asks with `token` for `path`, which is to be answered with 200.
    pub fn start(target: Target, token: &str, path: &str, pid: u32, guard: u64) -> Self {
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

    /// Forgets what was seen.
    pub fn reset(&self) {
        *self.lock() = Seen::default();
    }

    /// Waits for `rounds` whole rounds that begin from now on; whether they ended in time.
    pub fn rounds(&self, rounds: u64, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut seen = self.lock();
        // The one under way began before.
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

    pub fn seen(&self) -> Seen {
        *self.lock()
    }

    /// Whether the gateway was killed because it took too much memory.
    pub fn killed(&self) -> bool {
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
        // A quarter of a millisecond or so, so that the scheduler treats it as something that computes.
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

//! Runs the cases one after the other and evaluates the measurements of the prober and the kernel.

use crate::attackers::{self, Attacker, Case};
use crate::prober::{Prober, Seen};
use crate::scale::Scale;
use crate::scene::Scene;
use crate::stage::{PROBED, PROBER, Stage};
use crate::usage;
use crate::wire::Request;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Watch caches keep large events for 75 s, and trim idle resources periodically.
const RETURNED_WITHIN: Duration = Duration::from_secs(100);

/// The report and the failures.
pub(crate) struct Report {
    pub text: String,
    pub failures: Vec<String>,
}

struct Row {
    attacker: Attacker,
    name: String,
    seen: Seen,
    slowest: Duration,
    growth: u64,
    /// CPU time of the gateway, which is more reliable than `took` on a busy machine.
    cpu: Duration,
    codes: Vec<(u16, usize)>,
    problems: Vec<String>,
    took: Duration,
}

/// Resources of an idle gateway.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    resident: u64,
    threads: usize,
    files: usize,
    in_flight: f64,
}

struct Campaign<'a> {
    scale: &'a Scale,
    stage: Stage,
    prober: Prober,
    quiet: Duration,
    before: Baseline,
    attacker: Attacker,
}

pub(crate) fn run(scale: &Scale, filter: &str) -> Report {
    let began = Instant::now();
    let mut rows: Vec<Row> = Vec::new();
    let mut campaign: Option<Campaign<'_>> = None;
    for attacker in Attacker::ALL {
        let every = if scale.full || !filter.is_empty() {
            1
        } else {
            attacker.bounded_every()
        };
        let cases: Vec<Case> = attackers::cases(attacker, scale)
            .into_iter()
            .step_by(every)
            .filter(|c| filter.split(',').any(|f| format!("{attacker} {}", c.name).contains(f)))
            .collect();
        if campaign
            .as_ref()
            .is_some_and(|c| c.attacker.needs_webhooks() != attacker.needs_webhooks())
        {
            campaign = None;
        }
        for case in cases {
            let mut c = campaign.take().unwrap_or_else(|| Campaign::start(scale, attacker));
            c.attacker = attacker;
            let row = c.case(case);
            let failed = !row.problems.is_empty();
            eprintln!("{}", line(&row));
            rows.push(row);
            // A damaged gateway would distort the next case, so it is replaced.
            campaign = (!failed).then_some(c);
            if rows.iter().filter(|r| !r.problems.is_empty()).count() >= scale.failures {
                return report(scale, &rows, campaign.as_ref(), began);
            }
        }
        if let Some(c) = &campaign
            && rows.last().is_some_and(|r| r.attacker == attacker)
        {
            let row = c.afterwards(attacker);
            eprintln!("{}", line(&row));
            rows.push(row);
        }
    }
    report(scale, &rows, campaign.as_ref(), began)
}

impl<'a> Campaign<'a> {
    fn start(scale: &'a Scale, attacker: Attacker) -> Self {
        let stage = Stage::start(attacker.needs_webhooks());
        let prober = Prober::start(stage.target.clone(), PROBER, PROBED, stage.pid, scale.guard);
        assert!(prober.rounds(3, Duration::from_secs(60)), "the prober gets answers");
        prober.reset();
        assert!(prober.rounds(20, Duration::from_secs(60)), "the prober gets answers");
        let before = Baseline::of(&stage);
        Self {
            scale,
            quiet: prober.seen().own_gap(),
            stage,
            prober,
            before,
            attacker,
        }
    }

    fn case(&self, case: Case) -> Row {
        let began = Instant::now();
        let pid = self.stage.pid;
        let resident = usage::resident(pid);
        let ticks = usage::ticks(pid);
        usage::reset_peak(pid);
        self.prober.reset();
        let mut scene = Scene {
            scale: self.scale,
            stage: &self.stage,
            prober: &self.prober,
            attacker: self.attacker,
            slowest: Duration::ZERO,
            codes: Vec::new(),
            in_flight: 0,
            problems: Vec::new(),
            leftovers: Vec::new(),
        };
        std::thread::scope(|threads| {
            let attack = threads.spawn(|| {
                // The attacker shares the machine with its target, so it runs at a lower priority and does
                // not steal CPU time from the gateway.
                let _ = rustix::process::nice(10);
                (case.attack)(&mut scene);
            });
            attack.join().expect("the attacker does not panic");
        });
        let Scene {
            slowest,
            codes,
            in_flight,
            mut problems,
            leftovers,
            ..
        } = scene;
        // Work started by the attack may still be running; wait for one more probe.
        if !self.prober.rounds(1, self.scale.answer) {
            problems.push("the prober gets no answer".to_owned());
        }
        let seen = self.prober.seen();
        let growth = usage::peak(pid).saturating_sub(resident + in_flight);
        if self.prober.killed() {
            problems.push(format!("killed at {} MB", self.scale.guard >> 20));
        }
        if growth > self.scale.memory {
            problems.push(format!("memory grew by {} MB beyond the bodies", growth >> 20));
        }
        if seen.own_gap() > self.quiet + self.scale.gap {
            problems.push(format!(
                "the prober waited for {:?}, {:?} of them for the machine",
                seen.gap, seen.noise
            ));
        }
        if slowest > self.scale.answer && problems.is_empty() {
            problems.push(format!("answered after {slowest:?}"));
        }
        if problems.is_empty() {
            for path in &leftovers {
                self.stage.admin(&Request::delete(path));
            }
            self.definitions_are_gone(&leftovers);
        }
        Row {
            attacker: self.attacker,
            name: case.name,
            seen,
            slowest,
            growth,
            cpu: usage::TICK * (usage::ticks(pid) - ticks) as u32,
            codes,
            problems,
            took: began.elapsed(),
        }
    }

    /// Waits until definitions are deleted with their instances: the next case may define the same resource,
    /// and the work for this one must not count against it.
    fn definitions_are_gone(&self, deleted: &[String]) {
        let definitions = deleted
            .iter()
            .filter(|path| path.contains("/customresourcedefinitions/"));
        let until = Instant::now() + RETURNED_WITHIN;
        for path in definitions {
            while self.stage.admin(&Request::get(path)).code != 404 {
                assert!(Instant::now() < until, "{path} does not go");
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
    }

    /// Checks that memory, threads, files and requests in flight have returned to their initial values.
    fn afterwards(&self, attacker: Attacker) -> Row {
        let began = Instant::now();
        let until = began + RETURNED_WITHIN;
        let mut problems;
        let mut now;
        loop {
            let ticks = usage::ticks(self.stage.pid);
            let rested = Instant::now();
            std::thread::park_timeout(Duration::from_millis(200));
            let busy = (usage::ticks(self.stage.pid) - ticks) as f64 * usage::TICK.as_secs_f64()
                / rested.elapsed().as_secs_f64();
            now = Baseline::of(&self.stage);
            problems = self.before.compare(&now, self.scale);
            // In an unoptimised build the prober's handshakes alone take a quarter of a core.
            if busy > 0.7 {
                problems.push(format!("it still computes: {:.0} % of a core", busy * 100.0));
            }
            if problems.is_empty() || Instant::now() > until {
                break;
            }
        }
        Row {
            attacker,
            name: format!(
                "(afterwards: {} MB, {} threads, {} files; before: {} MB, {}, {})",
                now.resident >> 20,
                now.threads,
                now.files,
                self.before.resident >> 20,
                self.before.threads,
                self.before.files
            ),
            seen: Seen::default(),
            slowest: Duration::ZERO,
            growth: 0,
            cpu: Duration::ZERO,
            codes: Vec::new(),
            problems,
            took: began.elapsed(),
        }
    }
}

impl Baseline {
    fn of(stage: &Stage) -> Self {
        let metrics = stage.metrics();
        let sum = |name| usage::sum(&metrics, name);
        Self {
            resident: usage::resident(stage.pid),
            threads: usage::threads(stage.pid),
            files: usage::files(stage.pid),
            in_flight: sum("apiserver_current_inflight_requests") + sum("apiserver_longrunning_requests"),
        }
    }

    fn compare(&self, now: &Self, scale: &Scale) -> Vec<String> {
        let mut problems = Vec::new();
        if now.resident > self.resident + scale.remains {
            problems.push(format!(
                "{} MB are in use, {} before",
                now.resident >> 20,
                self.resident >> 20
            ));
        }
        // Idle threads of the blocking pool linger for a quarter of a second, and the prober's handshakes need some;
        // it and metrics use a few files.
        if now.threads > self.threads + 16 {
            problems.push(format!("{} threads, {} before", now.threads, self.threads));
        }
        if now.files > self.files + 12 {
            problems.push(format!("{} files, {} before", now.files, self.files));
        }
        if now.in_flight > self.in_flight + 4.0 {
            problems.push(format!(
                "{} requests in flight, {} before",
                now.in_flight, self.in_flight
            ));
        }
        problems
    }
}

fn line(row: &Row) -> String {
    let codes: Vec<String> = row.codes.iter().map(|(code, n)| format!("{code}×{n}")).collect();
    let mut line = format!(
        "{:4} {:10} gap {:>5} ms (machine {:>4}) answer {:>6} ms memory {:>4} MB CPU {:>4.1} of {:>5.1} s  {} [{}]",
        if row.problems.is_empty() { "ok" } else { "FAIL" },
        row.attacker.to_string(),
        row.seen.gap.as_millis(),
        row.seen.noise.as_millis(),
        row.slowest.as_millis(),
        row.growth >> 20,
        row.cpu.as_secs_f64(),
        row.took.as_secs_f64(),
        row.name,
        codes.join(" "),
    );
    for problem in &row.problems {
        let _ = write!(line, "\n       {problem}");
    }
    line
}

fn report(scale: &Scale, rows: &[Row], campaign: Option<&Campaign<'_>>, began: Instant) -> Report {
    let cases = rows.iter().filter(|r| !r.name.starts_with('(')).count();
    let mut text = format!(
        "{cases} cases in {:.0} s ({} form)",
        began.elapsed().as_secs_f64(),
        if scale.full { "whole" } else { "bounded" }
    );
    if let Some(c) = campaign {
        let _ = write!(
            text,
            "; without an attack the prober waits for {} ms at most",
            c.quiet.as_millis()
        );
    }
    for attacker in Attacker::ALL {
        let of = || {
            rows.iter()
                .filter(|r| r.attacker == attacker && !r.name.starts_with('('))
        };
        let _ = write!(
            text,
            "\n{attacker}: {} cases; worst gap {} ms, answer {} ms, memory {} MB",
            of().count(),
            of().map(|r| r.seen.own_gap().as_millis()).max().unwrap_or(0),
            of().map(|r| r.slowest.as_millis()).max().unwrap_or(0),
            of().map(|r| r.growth >> 20).max().unwrap_or(0),
        );
    }
    let failures = rows.iter().filter(|r| !r.problems.is_empty()).map(line).collect();
    Report { text, failures }
}

//! Replays many recordings, several at a time.

use crate::compare::{Difference, compare};
use crate::recordings::Recording;
use crate::response::in_order;
use crate::run::{Outcome, Patience, Runner, Target};
use serde_json::{Value, json};
use std::sync::Mutex;

/// Cases that run at the same time. Most of a case is waiting for asynchronous effects.
const JOBS: usize = 12;
/// Cases that run alone although they were not recorded so, because writes of other cases show in them: a
/// watch of an otherwise silent resource gets no bookmark before it ends.
const ALONE: &[&str] = &["watch/timeout-and-bookmark"];
/// The harness walks documents recursively, in the large frames of an unoptimised build.
const STACK: usize = 16 << 20;

/// The result of one case.
pub(crate) struct Verdict<'a> {
    pub recording: &'a Recording,
    /// The differences of each step; none if it passes.
    pub steps: Vec<Vec<Difference>>,
}

impl Verdict<'_> {
    pub(crate) fn passed(&self) -> usize {
        self.steps.iter().filter(|d| d.is_empty()).count()
    }

    /// The failed steps with their differences, as text.
    pub(crate) fn failures(&self) -> String {
        const MAX_DIFFERENCES: usize = 12;
        let case = &self.recording.case;
        let mut out = String::new();
        for (step, differences) in case.steps.iter().zip(&self.steps).filter(|(_, d)| !d.is_empty()) {
            out += &format!("FAIL {} step {}: {step}\n", case.id(), step.id);
            for difference in differences.iter().take(MAX_DIFFERENCES) {
                out += &format!("     {difference}\n");
            }
            if differences.len() > MAX_DIFFERENCES {
                out += &format!("     and {} more\n", differences.len() - MAX_DIFFERENCES);
            }
        }
        out
    }
}

/// Replays a case and compares each response with the recorded one.
pub(crate) fn replay_and_compare<'a>(target: &Target, recording: &'a Recording, patience: Patience) -> Verdict<'a> {
    let steps = &recording.case.steps;
    let wanted = steps.iter().zip(&recording.recorded).map(|(s, r)| in_order(s, r));
    let wanted: Vec<Value> = wanted.collect();
    let runner = Runner::new(recording, target, patience);
    let outcomes = runner.run(|i, got| compare(&steps[i], &wanted[i], got).is_empty());
    let differences = steps
        .iter()
        .zip(&wanted)
        .zip(outcomes)
        .map(|((step, want), got)| match got {
            Ok(got) => compare(step, want, &got),
            Err(why) => vec![Difference {
                path: "transport".to_owned(),
                want: json!("a response"),
                got: json!(why),
            }],
        });
    Verdict {
        recording,
        steps: differences.collect(),
    }
}

/// Runs the cases without comparing them.
pub(crate) fn record(target: &Target, recording: &Recording, patience: Patience) -> Vec<Outcome> {
    Runner::new(recording, target, patience).run(|_, _| true)
}

/// Calls `work` for every recording, several at a time; exclusive cases run alone, at the end.
pub(crate) fn all<'a, T: Send>(recordings: &[&'a Recording], work: impl Fn(&'a Recording) -> T + Sync) -> Vec<T> {
    let is_alone = |r: &&&Recording| r.case.exclusive || ALONE.contains(&r.case.id().as_str());
    let (alone, shared): (Vec<_>, Vec<_>) = recordings.iter().partition(is_alone);
    let (queue, results) = (Mutex::new(shared.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            let worker = || {
                loop {
                    let next = queue.lock().expect("no panic").next();
                    let Some(recording) = next else { return };
                    let result = work(recording);
                    results.lock().expect("no panic").push(result);
                }
            };
            let thread = std::thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, worker).expect("a thread");
        }
    });
    let mut results = results.into_inner().expect("no panic");
    results.extend(alone.into_iter().map(&work));
    results
}

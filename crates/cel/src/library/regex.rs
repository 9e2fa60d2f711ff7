//! Regular expressions in RE2's syntax, in linear time. [`PatternBudget`] bounds their time, because the cost
//! of a call ignores the size of the pattern's program: that of `\\p{L}{40}` is large, and matching takes time
//! in proportion. cel-go charges 1 for the global form, `matches(s, p)`, whatever it matches.

use super::{Body::Strict, Declaration};
use crate::value::{Fail, Out, Val, error, no_overload};
use regex::Regex;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use torana_apimachinery::interrupt::checkpoint_now;
use torana_apimachinery::regexp::{self, SyntaxError};

pub(super) const FUNCTIONS: &[Declaration] = &[
    (
        "matches",
        // The evaluator calls `run`.
        Strict(|_| no_overload()),
        &["(string, string) bool", "string.(string) bool"],
    ),
    ("find", Strict(|_| no_overload()), &["string.(string) string"]),
    (
        "findAll",
        Strict(|_| no_overload()),
        &["string.(string) list(string)", "string.(string, int) list(string)"],
    ),
];

/// Maximum size of a pattern's program, in states.
const MAX_STATES: u32 = 20_000;
/// Maximum states of all patterns of one expression; compiling them takes about 0.15 s.
pub(crate) const MAX_TOTAL_STATES: u32 = 200_000;
/// Memory limit for compiling a pattern; a program of [`MAX_STATES`] fits.
const SIZE_LIMIT: usize = 16 << 20;
/// The limits of [`PatternBudget::full`]. Matching takes at most about a second.
const FULL: (u32, u64) = (MAX_TOTAL_STATES, 300_000_000);
/// The limits of [`PatternBudget::quick`]: 300 µs for compiling and 200 µs for matching at worst, and a tenth of
/// it usually.
const QUICK: (u32, u64) = (400, 60_000);
/// States that take as long to compile as the fixed part of compiling.
const STATES_TO_BEGIN: u32 = 50;
/// Steps of matching between two checks of the clock; they take some milliseconds.
const STEPS_AT_ONCE: u64 = 1_000_000;
/// Steps that take as long as compiling one state.
const STEPS_PER_STATE: u64 = 250;

/// A pattern that was checked. It is compiled when it is first needed.
#[derive(Debug)]
pub(crate) struct Pattern {
    source: Box<str>,
    states: u32,
    compiled: OnceLock<Option<Regex>>,
}

/// Why a pattern is rejected, in Go's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// Its program alone, or with those of the other patterns of the expression, has too many states.
    #[error("error parsing regexp: expression too large: `{0}`")]
    TooLarge(Box<str>),
}

/// The work on regular expressions that evaluations share, such as all those for one object: matching, and
/// compiling patterns. Their cost does not bound it.
#[derive(Debug)]
pub struct PatternBudget {
    /// States that may still be compiled.
    states: Cell<u32>,
    /// Steps that matching may still take.
    steps: Cell<u64>,
    /// Steps since the clock was read.
    unseen: Cell<u64>,
    /// Patterns that were computed.
    computed: RefCell<HashMap<Arc<str>, Arc<Pattern>>>,
    /// True if the first use of a constant pattern, which compiles it, counts like that of a computed one.
    counts_constants: bool,
}

impl PatternBudget {
    /// For a thread that may be busy for a second.
    pub fn full() -> Self {
        Self::of(FULL, false)
    }

    /// For a thread that must not be blocked.
    pub fn quick() -> Self {
        Self::of(QUICK, true)
    }

    fn of((states, steps): (u32, u64), counts_constants: bool) -> Self {
        Self {
            states: Cell::new(states),
            steps: Cell::new(steps),
            unseen: Cell::new(0),
            computed: RefCell::default(),
            counts_constants,
        }
    }

    /// The pattern with this source, which is checked if it is new.
    fn computed(&self, source: &str) -> Result<Arc<Pattern>, PatternError> {
        if let Some(known) = self.computed.borrow().get(source) {
            return Ok(known.clone());
        }
        let new = Arc::new(Pattern::new(source)?);
        self.computed.borrow_mut().insert(source.into(), new.clone());
        Ok(new)
    }

    /// Counts the work of matching `text`, and of compiling the pattern if it is not yet.
    fn spend(&self, pattern: &Pattern, is_constant: bool, text: &str) -> Result<(), Fail> {
        let must_compile = pattern.compiled.get().is_none();
        // Constant patterns were charged when the program was planned.
        if must_compile && (self.counts_constants || !is_constant) {
            let states = pattern.states + STATES_TO_BEGIN;
            let left = self.states.get().checked_sub(states);
            self.states.set(left.ok_or(Fail::Cost)?);
        }
        // One more than the bytes: the program also runs at the end of the text.
        let steps = u64::from(pattern.states).saturating_mul(text.len() as u64 + 1);
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.ok_or(Fail::Cost)?);
        // Compiling counts towards the clock as well, although it has a budget of its own.
        let compiling = u64::from(pattern.states) * STEPS_PER_STATE;
        let unseen = self.unseen.get() + steps + if must_compile { compiling } else { 0 };
        self.unseen.set(unseen);
        if unseen > STEPS_AT_ONCE {
            self.unseen.set(0);
            // The regex crate has no checkpoints, so the clock is read before it runs.
            checkpoint_now();
        }
        Ok(())
    }
}

impl Pattern {
    /// Checks a pattern and the size of its program.
    pub(crate) fn new(source: &str) -> Result<Self, PatternError> {
        let translated = regexp::translate(source)?;
        if translated.cost > MAX_STATES {
            return Err(PatternError::TooLarge(source.into()));
        }
        Ok(Self {
            source: source.into(),
            // At least one, so that matching an empty pattern is not free.
            states: translated.cost.max(1),
            compiled: OnceLock::new(),
        })
    }

    pub(crate) fn states(&self) -> u32 {
        self.states
    }

    fn regex(&self) -> Option<&Regex> {
        // Translated again instead of keeping the text: a pattern is compiled once at most.
        let compile = || regexp::translate(&self.source).ok()?.compile(SIZE_LIMIT).ok();
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// True if the function takes a pattern.
pub(crate) fn is_one(function: &str) -> bool {
    matches!(function, "matches" | "find" | "findAll")
}

/// Calls a function with its constant pattern, or the one it has as its second argument.
pub(crate) fn run<'a>(function: &str, constant: Option<&Pattern>, args: &[Val<'a>], budget: &PatternBudget) -> Out<'a> {
    let [Val::String(s), Val::String(source), rest @ ..] = args else {
        return no_overload();
    };
    let computed;
    let pattern = match constant {
        Some(pattern) => pattern,
        None => {
            computed = match budget.computed(source) {
                Ok(pattern) => pattern,
                // cel-go's own function and Kubernetes' word this error differently.
                Err(why) if function == "matches" => return error(why.to_string()),
                Err(why) => return error(format!("Illegal regex: {why}")),
            };
            &computed
        }
    };
    budget.spend(pattern, constant.is_some(), s)?;
    // The program exceeds `SIZE_LIMIT`, which the limit of states normally prevents.
    let Some(regex) = pattern.regex() else {
        return error(PatternError::TooLarge((**source).into()).to_string());
    };
    match (function, rest) {
        ("matches", _) => Ok(Val::Bool(regex.is_match(s))),
        ("find", _) => Ok(regex.find(s).map_or("", |m| m.as_str()).into()),
        (_, []) => Ok(found(regex, s, -1)),
        (_, [Val::Int(n)]) => Ok(found(regex, s, *n)),
        _ => no_overload(),
    }
}

fn found<'a>(regex: &Regex, s: &str, count: i64) -> Val<'a> {
    // A negative count means all.
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let all = regex.find_iter(s).take(count);
    all.map(|m| Val::from(m.as_str())).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Environment, Exceeded, Program, Variable};
    use std::rc::Rc;
    use torana_apimachinery::interrupt::{self, Interrupted, Limit};

    const NOTHING: [Variable<'_>; 0] = [];

    fn of(source: &str) -> Program {
        Environment::default().compile(source).expect("well typed")
    }

    struct Always;

    impl Limit for Always {
        fn is_exceeded(&self) -> bool {
            true
        }
    }

    #[test]
    fn evaluations_share_a_budget_of_matching() {
        let program = of("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('^[a-z]{1,100}$')");
        let budget = PatternBudget::of((0, 100_000), false);
        let values: Vec<_> = (0..10)
            .map(|_| program.evaluate_within(&NOTHING, 1_000, &budget).value)
            .collect();
        assert!(values[0].is_ok() && matches!(values[9], Err(Fail::Cost)), "{values:?}");
        assert!(program.evaluate(&NOTHING, 1_000).value.is_ok());
    }

    #[test]
    fn a_computed_pattern_counts_once() {
        let program = of("'a'.matches(['^[a-z]{1,', '10}$'].join())");
        let budget = PatternBudget::of((300, 20_000), false);
        assert!((0..10).all(|_| program.evaluate_within(&NOTHING, 1_000, &budget).value.is_ok()));
        assert!(
            program
                .evaluate_within(&NOTHING, 1_000, &PatternBudget::of((20, 20_000), false))
                .value
                .is_err()
        );
    }

    #[test]
    fn the_clock_is_read_before_a_long_match() {
        let program = of("lists.range(2).map(i, 'a').join().matches('^[a-z]{1,10}$')");
        let interrupted = |unseen: u64| {
            let budget = PatternBudget::full();
            budget.unseen.set(unseen);
            interrupt::run(Rc::new(Always), || {
                program.evaluate_within(&NOTHING, 1_000, &budget).cost
            })
        };
        assert!(interrupted(0).is_ok(), "fewer than 256 checkpoints");
        assert_eq!(interrupted(STEPS_AT_ONCE), Err(Interrupted));
    }

    #[test]
    fn quick_evaluations_neither_compile_nor_match_for_long() {
        let long = format!("matches('{}', '^[a-z]{{1,60}}$')", "a".repeat(2_000));
        for source in [&long, "'a'.matches('^[a-z]{1,1000}$')"] {
            let program = of(source);
            let quick = || Budget::quick().evaluate(&program, &NOTHING);
            assert!(matches!(quick(), Err(Exceeded::Costly)), "{source}");
            assert!(Budget::full().evaluate(&program, &NOTHING).is_ok());
            // Now it is compiled; matching still counts.
            assert_eq!(quick().is_ok(), !source.starts_with("matches"), "{source}");
        }
        let ordinary = of("'name-1'.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')");
        assert!(Budget::quick().evaluate(&ordinary, &NOTHING).is_ok());
    }
}

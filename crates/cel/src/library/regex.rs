//! Regular expressions in RE2's syntax, in linear time. [`Work`] bounds their time, because the cost of a
//! call ignores the size of the pattern's program: that of `\\p{L}{40}` is large, and matching takes time in
//! proportion.

use super::{Body::Strict, Declaration};
use crate::value::{Fail, Out, Val, error, no_overload};
use regex::Regex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
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

/// The largest program of a pattern, in states.
const MAX_STATES: u32 = 20_000;
/// The most states of all patterns of one expression, or that one evaluation compiles: about 0.15 s.
pub(crate) const MAX_TOTAL_STATES: u32 = 200_000;
/// Memory limit for compiling a pattern; a program of [`MAX_STATES`] fits.
const SIZE_LIMIT: usize = 16 << 20;
/// The most steps of matching in one evaluation: at most about a second.
const MAX_STEPS: u64 = 300_000_000;
/// Evaluations with lower limits run on threads that serve others meanwhile. There, compiling counts as well.
const SMALL_LIMIT: u64 = 10_000;

/// A pattern that was checked. It is compiled when it is first needed.
#[derive(Debug)]
pub(crate) struct Pattern {
    source: Box<str>,
    states: u32,
    compiled: OnceLock<Option<Regex>>,
}

/// Why a pattern is refused, in Go's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// Its program alone, or with those of the other patterns of the expression, has too many states.
    #[error("error parsing regexp: expression too large: `{0}`")]
    TooLarge(Box<str>),
}

/// Remaining work for the patterns of one evaluation.
pub(crate) struct Work {
    states: u32,
    steps: u64,
    /// Patterns that were computed.
    computed: HashMap<Arc<str>, Arc<Pattern>>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self {
            states: MAX_TOTAL_STATES,
            steps: MAX_STEPS,
            computed: HashMap::new(),
        }
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
            states: translated.cost.max(1),
            compiled: OnceLock::new(),
        })
    }

    pub(crate) fn states(&self) -> u32 {
        self.states
    }

    fn regex(&self) -> Option<&Regex> {
        let compile = || regexp::translate(&self.source).ok()?.compile(SIZE_LIMIT).ok();
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// True if the function takes a pattern.
pub(crate) fn is_one(function: &str) -> bool {
    matches!(function, "matches" | "find" | "findAll")
}

/// Calls a function with its constant pattern, or the one it has as its second argument. `left` is the
/// remaining cost of the evaluation, of `limit`.
pub(crate) fn run<'a>(
    function: &str,
    constant: Option<&Pattern>,
    args: &[Val<'a>],
    work: &mut Work,
    (left, limit): (u64, u64),
) -> Out<'a> {
    let [Val::String(s), Val::String(source), rest @ ..] = args else {
        return no_overload();
    };
    let computed;
    let pattern = match constant {
        Some(pattern) => pattern,
        None => {
            computed = match work.computed.get(&**source) {
                Some(known) => known.clone(),
                None => match Pattern::new(source) {
                    Ok(new) => {
                        work.states = work.states.checked_sub(new.states).ok_or(Fail::Cost)?;
                        let new = Arc::new(new);
                        work.computed.insert((**source).into(), new.clone());
                        new
                    }
                    Err(why) if function == "matches" => return error(why.to_string()),
                    Err(why) => return error(format!("Illegal regex: {why}")),
                },
            };
            &computed
        }
    };
    if limit <= SMALL_LIMIT && pattern.compiled.get().is_none() && u64::from(pattern.states / 4) > left {
        return Err(Fail::Cost);
    }
    let steps = u64::from(pattern.states).saturating_mul(s.len() as u64 + 1);
    work.steps = work.steps.checked_sub(steps).ok_or(Fail::Cost)?;
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
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let all = regex.find_iter(s).take(count);
    all.map(|m| Val::from(m.as_str())).collect::<Vec<_>>().into()
}

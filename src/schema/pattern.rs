//! Regular expressions in Go's RE2 syntax, matched in linear time. [`Pattern`] compiles itself when it is first used;
//! a [`PatternCache`] keeps the compiled forms of many patterns within a limit of memory.

pub(crate) use crate::apimachinery::regexp::SyntaxError;

use crate::apimachinery::regexp;
use crate::interrupt::checkpoint_now;
use crate::sync::Mutex;
use regex::Regex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Maximum size of a compiled program in bytes; [`regexp`] rejects patterns long before that.
const SIZE_LIMIT: usize = 64 << 20;
/// Estimated memory of a compiled expression in bytes: for each state, and for the automata that are built
/// while it matches.
const BYTES_PER_STATE: usize = 320;
const BYTES_OF_AUTOMATA: usize = 64 << 10;
/// Maximum memory of the compiled expressions in a cache, in bytes. Those of a hundred ordinary definitions
/// take a tenth of it.
const CACHE_LIMIT: usize = 64 << 20;
/// The clock is read before matching and compiling that take more steps than this, which is some
/// milliseconds.
const MANY_STEPS: u64 = 1_000_000;

/// The compiled expressions of many schemas, within a limit of memory: a definition may have thousands of
/// patterns, of which each takes megabytes. Those that were not used recently are compiled again when they
/// are needed.
#[derive(Debug, Default)]
pub(crate) struct PatternCache(Mutex<Recent>);

/// Compiled expressions, in the order in which they are considered for removal ("second chance").
#[derive(Debug, Default)]
struct Recent {
    queue: VecDeque<Arc<Compiled>>,
    bytes: usize,
}

#[derive(Debug)]
struct Compiled {
    regex: Option<Regex>,
    bytes: usize,
    /// True if it was used since it was last considered.
    used: AtomicBool,
}

impl PatternCache {
    /// Keeps an expression, and returns those that no longer fit, to be dropped without the lock.
    fn keep(&self, new: Arc<Compiled>) -> Vec<Arc<Compiled>> {
        let mut removed = Vec::new();
        let mut recent = self.0.lock();
        // Reborrowed once, so that queue and size can be borrowed apart below.
        let recent = &mut *recent;
        while recent.bytes + new.bytes > CACHE_LIMIT
            && let Some(oldest) = recent.queue.pop_front()
        {
            // `Relaxed` suffices: the flag is a hint, and the queue itself is under the lock.
            if oldest.used.swap(false, Ordering::Relaxed) {
                // A second chance: it was used since the last pass, so it goes to the back.
                recent.queue.push_back(oldest);
            } else {
                recent.bytes -= oldest.bytes;
                removed.push(oldest);
            }
        }
        // Added even if it is larger than the limit alone; it is the first to go next time.
        recent.bytes += new.bytes;
        recent.queue.push_back(new);
        removed
    }
}

/// A regular expression that was checked, and is compiled when it is needed.
#[derive(Debug)]
pub(super) struct Pattern {
    source: Box<str>,
    /// Most definitions are never used, and a compiled expression takes many times the memory of its source.
    compiled: Mutex<Weak<Compiled>>,
    cache: Arc<PatternCache>,
    states: u32,
}

impl Pattern {
    /// Checks a regular expression, whose compiled form `cache` will keep.
    ///
    /// # Errors
    /// The syntax error, as Go words it.
    pub(super) fn new(source: &str, cache: &Arc<PatternCache>) -> Result<Self, SyntaxError> {
        Ok(Self {
            // At least one, so that an empty pattern still costs a step.
            states: check(source)?.max(1),
            source: source.into(),
            compiled: Mutex::new(Weak::new()),
            cache: cache.clone(),
        })
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The size of the program; matching takes at most so many steps for each byte.
    pub(super) fn states(&self) -> u32 {
        self.states
    }

    /// The maximum steps that matching `text` takes.
    pub(super) fn steps(&self, text: &str) -> u64 {
        // One more than the bytes: the program also runs at the end of the text.
        u64::from(self.states) * (text.len() as u64 + 1)
    }

    /// True if the next match has to compile the expression first.
    pub(super) fn must_compile(&self) -> bool {
        // A hint: another thread may compile or drop the expression in between.
        self.compiled.lock().strong_count() == 0
    }

    /// True if the expression matches anywhere in `text`.
    pub(super) fn is_match(&self, text: &str) -> bool {
        if self.steps(text) > MANY_STEPS {
            // The regex crate has no checkpoints of its own.
            checkpoint_now();
        }
        let compiled = self.compiled();
        compiled.used.store(true, Ordering::Relaxed);
        compiled.regex.as_ref().is_some_and(|r| r.is_match(text))
    }

    fn compiled(&self) -> Arc<Compiled> {
        // The lock is released before compiling, which may take milliseconds.
        let known = self.compiled.lock().upgrade();
        known.unwrap_or_else(|| {
            checkpoint_now();
            let new = Arc::new(Compiled {
                regex: compile(&self.source),
                bytes: BYTES_OF_AUTOMATA + self.states as usize * BYTES_PER_STATE,
                used: AtomicBool::new(true),
            });
            // If two threads compile concurrently, the second replaces the result of the first, which the cache
            // evicts later.
            *self.compiled.lock() = Arc::downgrade(&new);
            // Dropped here, after the cache's lock was released: freeing programs takes time.
            drop(self.cache.keep(new.clone()));
            new
        })
    }
}

/// Checks a regular expression, and returns the size of its program.
///
/// # Errors
/// The syntax error, as Go words it.
pub(super) fn check(source: &str) -> Result<u32, SyntaxError> {
    Ok(regexp::translate(source)?.cost)
}

fn compile(source: &str) -> Option<Regex> {
    let translated = regexp::translate(source).ok()?;
    let built = translated.compile(SIZE_LIMIT);
    // `regexp` accepts only patterns that compile, as a property test of random patterns shows.
    debug_assert!(built.is_ok(), "{source:?} became {:?}: {built:?}", translated.text);
    built.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_patterns_fit_into_the_cache_and_those_in_use_stay() {
        let cache = Arc::new(PatternCache::default());
        let pattern = |source: &str| Pattern::new(source, &cache).unwrap();
        let (used, unused) = (pattern("^a+$"), pattern("^b+$"));
        assert!(used.must_compile() && used.is_match("aa") && unused.is_match("b"));
        assert!(!used.must_compile() && !unused.must_compile());
        // Each stands for many states, so that the test compiles none of that size.
        let large: Vec<Pattern> = (0..40)
            .map(|i| Pattern {
                states: 10_000,
                ..pattern(&format!("^c{i}$"))
            })
            .collect();
        for (i, one) in large.iter().enumerate() {
            assert!(one.is_match(&format!("c{i}")) && used.is_match("a"));
            assert!(cache.0.lock().bytes <= CACHE_LIMIT);
        }
        assert!(!used.must_compile() && unused.must_compile());
        assert!(large[0].must_compile() && !large[39].must_compile());
        assert!(large[0].is_match("c0"), "it is compiled again");
    }
}

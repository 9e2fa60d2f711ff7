//! `docs/wire/parity.txt`: how many exchanges of each area must be equal.

use std::collections::BTreeMap;
use std::path::Path;

/// The promise of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    pub passed: usize,
    pub total: usize,
}

pub(crate) fn read() -> BTreeMap<String, Promise> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wire/parity.txt");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or_default());
    lines
        .filter(|l| !l.trim().is_empty())
        .map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [area, passed, total] => {
                let number = |n: &str| n.parse().unwrap_or_else(|e| panic!("{}: {line}: {e}", file.display()));
                let (passed, total) = (number(passed), number(total));
                (area.to_owned(), Promise { passed, total })
            }
            _ => panic!("{}: expected `area passed total`, found {line:?}", file.display()),
        })
        .collect()
}

//! No two files of a crate import each other, directly or through others. A file may import its own children
//! and be imported by them: they are one module in parts.
//!
//! Imports are read as text: `use` declarations and qualified paths, followed through re-exports to the file
//! that defines the item. Calls of methods are not seen.

use super::{all_sources, code, is_test};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Module = Vec<String>;

/// The items that a file defines, and the paths that its imports name.
struct Source {
    items: BTreeSet<String>,
    /// Name in this file → the path that it stands for.
    imports: BTreeMap<String, Module>,
    /// The paths that the code names, except those that it only re-exports.
    paths: BTreeSet<Module>,
}

impl Source {
    fn parse(text: &str) -> Self {
        let (mut imports, mut paths) = (BTreeMap::new(), BTreeSet::new());
        let mut rest = String::new();
        for statement in text.split_inclusive(';') {
            // The declaration starts at the last line that begins with `use` before the semicolon.
            let lines = statement.rfind("\nuse ").map(|i| i + 1);
            let lines = lines.or_else(|| statement.rfind("\npub use ").map(|i| i + 1));
            let lines = lines.or_else(|| {
                statement
                    .rfind("\npub(")
                    .filter(|i| statement[*i..].contains(") use "))
                    .map(|i| i + 1)
            });
            let lines = lines.or_else(|| (statement.starts_with("use ") || statement.starts_with("pub")).then_some(0));
            match lines.map(|i| &statement[i..]).and_then(|s| s.split_once("use ")) {
                Some((visibility, tree)) if !visibility.contains(['{', '=']) => {
                    let mut found = Vec::new();
                    leaves(&[], tree.trim_end_matches(';'), &mut found);
                    for (path, name) in found {
                        if visibility.is_empty() {
                            paths.insert(path.clone());
                        }
                        imports.entry(name).or_insert(path);
                    }
                }
                _ => rest.push_str(statement),
            }
        }
        paths.extend(qualified(&rest));
        Self {
            items: items(text),
            imports,
            paths,
        }
    }
}

/// The paths of a `use` tree with the names that they get.
fn leaves(prefix: &[String], tree: &str, out: &mut Vec<(Module, String)>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let prefix: Module = prefix.iter().cloned().chain(segments(head)).collect();
        let (mut depth, mut start) = (0, 0);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => {
                    leaves(&prefix, &group[start..i], out);
                    return;
                }
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    leaves(&prefix, &group[start..i], out);
                    start = i + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (path, alias) = tree
        .split_once(" as ")
        .map_or((tree, None), |(p, a)| (p, Some(a.trim())));
    let mut path: Module = prefix.iter().cloned().chain(segments(path)).collect();
    if path.last().is_some_and(|s| s == "self") {
        path.pop();
    }
    if let Some(last) = path.last() {
        let name = alias.unwrap_or(last).to_owned();
        out.push((path, name));
    }
}

fn segments(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(|s| s.trim().to_owned()).filter(|s| !s.is_empty())
}

/// `a::b::c` in code.
fn qualified(text: &str) -> BTreeSet<Module> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c| !is_part(c)).filter(|w| w.contains("::"));
    words
        .map(|w| segments(w).collect::<Module>())
        .filter(|m| m.len() > 1)
        .collect()
}

/// The names that are defined at the top level.
fn items(text: &str) -> BTreeSet<String> {
    const KEYWORDS: [&str; 9] = [
        "fn",
        "struct",
        "enum",
        "trait",
        "type",
        "const",
        "static",
        "union",
        "macro_rules!",
    ];
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|l| !l.starts_with([' ', '}', ')'])) {
        let mut words = line
            .split([' ', '(', '<', ':', ';', '=', '{', ')'])
            .filter(|w| !w.is_empty());
        while let Some(word) = words.next() {
            if KEYWORDS.contains(&word) {
                let mut name = words.next();
                // `const fn`, `static mut`
                while name.is_some_and(|n| KEYWORDS.contains(&n) || n == "mut") {
                    name = words.next();
                }
                found.extend(name.map(str::to_owned));
                break;
            }
        }
    }
    found
}

/// The files of one crate by their module paths.
struct Crate(BTreeMap<Module, Source>);

impl Crate {
    /// The file that defines what `path` names in `module`; `None` for another crate's.
    fn resolve(&self, module: &[String], path: &[String], hops: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut at: Module = match first.as_str() {
            _ if hops > 12 => return None,
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => {
                let mut up = module.split_last()?.1.to_vec();
                while let Some(("super", more)) = rest.split_first().map(|(f, r)| (f.as_str(), r)) {
                    up.pop();
                    rest = more;
                }
                up
            }
            name if self.0.contains_key(&child(module, name)) => child(module, name),
            name => {
                let import = self.0.get(module)?.imports.get(name).filter(|p| *p != path)?;
                let whole: Module = import.iter().chain(rest).cloned().collect();
                return self.resolve(module, &whole, hops + 1);
            }
        };
        while let Some((name, more)) = rest.split_first() {
            if self.0.contains_key(&child(&at, name)) {
                at = child(&at, name);
                rest = more;
                continue;
            }
            let file = self.0.get(&at)?;
            let import = file.imports.get(name).filter(|_| !file.items.contains(name));
            return match import {
                Some(import) => {
                    let whole: Module = import.iter().chain(more).cloned().collect();
                    self.resolve(&at, &whole, hops + 1)
                }
                None => Some(at),
            };
        }
        self.0.contains_key(&at).then_some(at)
    }

    /// The groups of files that import each other.
    fn cycles(&self) -> Vec<BTreeSet<Module>> {
        let arrows: BTreeMap<&Module, BTreeSet<Module>> = self
            .0
            .iter()
            .map(|(module, source)| {
                let all = source.paths.iter().filter_map(|p| self.resolve(module, p, 0));
                (module, all.filter(|to| !module.starts_with(to)).collect())
            })
            .collect();
        let reach = |from: &Module| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = open.pop() {
                for to in arrows.get(&module).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        open.push(to.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> = self.0.keys().map(|m| (m, reach(m))).collect();
        let mut groups: Vec<BTreeSet<Module>> = Vec::new();
        for (module, to) in reached.iter().filter(|(m, to)| to.contains(**m)) {
            if !groups.iter().any(|g| g.contains(*module)) {
                let back = to
                    .iter()
                    .filter(|other| reached.get(other).is_some_and(|r| r.contains(*module)));
                groups.push(back.cloned().collect());
            }
        }
        groups
    }
}

fn child(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for (file, below) in all_sources() {
        let (of, path) = match below.strip_prefix("crates") {
            Ok(rest) => {
                let name = rest.components().next().expect("a crate has a name");
                (
                    format!("crates/{}", name.as_os_str().display()),
                    rest.strip_prefix(name).expect("it starts so"),
                )
            }
            Err(_) => (String::new(), below.as_path()),
        };
        if is_test(&file) || path == Path::new("main") {
            continue;
        }
        let names = path.components().map(|c| c.as_os_str().to_string_lossy().into_owned());
        let module: Module = names.filter(|n| n != "lib").collect();
        let files = crates.entry(of).or_insert_with(|| Crate(BTreeMap::new()));
        files.0.insert(module, Source::parse(&code(&file)));
    }
    let show = |of: &str, module: &Module| {
        let path = module.join("/");
        if of.is_empty() { path } else { format!("{of}/{path}") }
    };
    let mut found: Vec<Vec<String>> = Vec::new();
    for (of, files) in &crates {
        found.extend(files.cycles().iter().map(|g| g.iter().map(|m| show(of, m)).collect()));
    }
    assert!(
        found.is_empty(),
        "move what they share to where both can import it: {found:#?}"
    );
}

//! Checks the module structure of `src/` and `crates/`: a module of the gateway may import only the modules
//! in [`ARROWS`], an external crate may be used only below the paths in [`DEPENDENCIES`], and the crates
//! under `crates/` stay free of what [`SERVER_ONLY`] lists. `cycles` checks the files. A change to a table is
//! a design decision: explain it in the commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[path = "architecture/cycles.rs"]
mod cycles;
#[path = "architecture/tour.rs"]
mod tour;

/// Modules that every other module may import. They import nothing above them.
const FOUNDATIONS: [&str; 5] = ["cache", "sync", "tasks", "telemetry", "x509"];

/// Module → the modules it imports, besides itself and the foundations. Nothing is listed that is not used.
const ARROWS: &[(&str, &[&str])] = &[
    ("cache", &[]),
    ("sync", &[]),
    ("tasks", &["sync", "telemetry"]),
    ("telemetry", &["sync"]),
    ("request", &[]),
    ("x509", &[]),
    ("storage", &[]),
    ("pki", &["request"]),
    // Probes verify certificates as the proxies do; webhooks are called over the proxies' connection pool,
    // which takes requests.
    ("client", &["proxy", "request", "storage"]),
    ("proxy", &["request"]),
    // It takes over a client's connection as the tunnels do.
    ("websocket", &["proxy", "request"]),
    ("authn", &["client", "request", "pki"]),
    ("authz", &["client", "request", "storage"]),
    ("flowcontrol", &["request"]),
    ("audit", &["client", "request"]),
    // Admission defines the interface: the registry calls it, and serves its lookups (`Cluster`).
    ("registry", &["storage", "admission", "request"]),
    // Webhooks are called with the client, and their configurations followed by its informers.
    ("admission", &["request", "authz", "storage", "client"]),
    // Watches over WebSocket.
    (
        "endpoints",
        &["registry", "authz", "request", "storage", "server", "websocket"],
    ),
    ("server", &["audit", "authn", "authz", "flowcontrol", "request"]),
    ("serving", &["request", "pki"]),
    (
        "aggregator",
        &[
            "server",
            "pki",
            "proxy",
            "endpoints",
            "registry",
            "storage",
            "client",
            "request",
        ],
    ),
    (
        "controlplane",
        &[
            "pki",
            "proxy",
            "endpoints",
            "registry",
            "admission",
            "storage",
            "client",
            "request",
            "authz",
            "authn",
            "websocket",
        ],
    ),
    // The loops read stores and write through the filter chain, so of the server they need only a `Handler`.
    (
        "controllers",
        // Certificate signing requests are answered by the CAs of the PKI, token Secrets are filled by the
        // issuer of tokens (`authn`), and which Secrets a Pod uses is what the node authorizer knows
        // (`authz`).
        &[
            "admission",
            "authn",
            "authz",
            "client",
            "pki",
            "registry",
            "request",
            "storage",
        ],
    ),
    // Structural schemas serve custom resources and the kinds of embedding programs alike.
    ("schema", &["registry"]),
    (
        "extensions",
        &[
            "schema",
            "proxy",
            "server",
            "endpoints",
            "registry",
            "admission",
            "storage",
            "client",
            "request",
        ],
    ),
    // The kit for API servers of one's own. It does not depend on CustomResourceDefinitions.
    (
        "sdk",
        &[
            "schema",
            "authn",
            "authz",
            "pki",
            "server",
            "serving",
            "endpoints",
            "registry",
            "admission",
            "storage",
            "client",
            "request",
        ],
    ),
    (
        "cli",
        &[
            "serving",
            "pki",
            "audit",
            "authn",
            "authz",
            "storage",
            "client",
            "controllers",
            "controlplane",
        ],
    ),
];

/// The arrows that run against the order of `lib.rs`: to what a request meets earlier and later stages call as well
/// (reviews, registration of paths), and to the interface that informers follow.
const UPWARDS: &[(&str, &str)] = &[
    ("admission", "authz"),
    ("aggregator", "server"),
    ("client", "storage"),
    ("controllers", "authn"),
    ("controllers", "authz"),
    ("controlplane", "authn"),
    ("controlplane", "authz"),
    ("endpoints", "authz"),
    ("endpoints", "server"),
    ("extensions", "server"),
];

/// Crate → the paths under `src/`, or `crates/<name>/` and the path under its `src/`, where it may be used.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    (
        "hyper",
        &["serving", "aggregator/proxy", "proxy", "client", "websocket"],
    ),
    // `request/h2_body` reads request bodies for `serving` and response bodies for `proxy`.
    ("h2", &["serving", "proxy", "request/h2_body"]),
    (
        "hyper_util",
        &[
            "serving",
            "aggregator/proxy",
            "proxy",
            "client",
            "websocket",
            "storage/encryption/kms_client",
        ],
    ),
    ("tokio_tungstenite", &["websocket"]),
    ("hyper_rustls", &["client/http"]),
    ("tonic", &["storage/encryption"]),
    ("tokio_rustls", &["serving", "aggregator/proxy", "proxy", "client"]),
    ("percent_encoding", &["request/percent"]),
    ("quick_cache", &["cache"]),
    ("memmap2", &["storage/large"]),
    ("rusqlite", &["storage/embedded"]),
    ("etcd_client", &["storage/etcd"]),
    ("crypto_secretbox", &["storage/encryption"]),
    ("rcgen", &["pki"]),
    ("clap", &["cli", "main.rs"]),
    ("clap_complete", &["cli/shell"]),
    ("clap_mangen", &["cli/shell"]),
    // Inside the gateway, filters and handlers have traits of their own (ADR 3); `tower` is for what stands
    // around it. A gRPC channel over a socket that is no TCP address takes its connector as a `tower`
    // service, hyper-util's client its resolver.
    (
        "tower",
        &[
            "server/service",
            "app/builder",
            "storage/encryption/kms_client",
            "client/http",
        ],
    ),
    ("tower_http", &["server/service"]),
    ("saphyr_parser", &["crates/apimachinery/codec"]),
    // These modules hold metric handles; `telemetry` defines the families and their names.
    ("prometheus", &["telemetry", "server", "flowcontrol"]),
];

/// Packages that no crate under `crates/` depends on: they are libraries of pure functions, without I/O,
/// async, TLS or the gateway.
const SERVER_ONLY: [&str; 9] = [
    "torana",
    "tokio",
    "hyper",
    "h2",
    "http",
    "tower",
    "rustls",
    "aws-lc-rs",
    "rusqlite",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directories below `crates/`.
fn crates() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("crates")).expect("crates is readable");
    entries.map(|e| e.expect("an entry").path()).collect()
}

/// Every source file of the gateway and the crates, and its path as [`DEPENDENCIES`] writes it.
fn all_sources() -> Vec<(PathBuf, PathBuf)> {
    let mut roots = vec![(root().join("src"), PathBuf::new())];
    roots.extend(crates().into_iter().map(|c| {
        let name = Path::new("crates").join(c.file_name().expect("a directory has a name"));
        (c.join("src"), name)
    }));
    let mut all = Vec::new();
    for (dir, prefix) in roots {
        let mut files = Vec::new();
        sources(&dir, &mut files);
        all.extend(files.into_iter().map(|f| {
            let below = prefix.join(f.strip_prefix(&dir).expect("below its root").with_extension(""));
            (f, below)
        }));
    }
    all
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The code of a file without comment lines and without its in-file tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source file is text");
    let text = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
        .to_owned();
    text.lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn module_of(src: &Path, path: &Path) -> String {
    let first = path
        .strip_prefix(src)
        .expect("below src")
        .components()
        .next()
        .expect("a name");
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

fn is_test(path: &Path) -> bool {
    path.components().any(|c| {
        matches!(
            c.as_os_str().to_str(),
            Some("tests" | "tests.rs" | "testing" | "testing.rs")
        )
    }) || path
        .file_stem()
        .is_some_and(|s| s.to_string_lossy().ends_with("_tests") || s.to_string_lossy().starts_with("test"))
}

/// The modules that `text` names in paths from the crate root: `crate::a::…`, and each head of
/// `crate::{a::…, b}`.
fn targets(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| -> String {
        let rest = rest.trim_start();
        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = BTreeSet::new();
    for (at, path) in text.match_indices("crate::") {
        // `$crate::`, and names that end in `crate`.
        if text[..at].ends_with(|c: char| c == '$' || c == '_' || c.is_alphanumeric()) {
            continue;
        }
        let rest = &text[at + path.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(name(rest));
            continue;
        };
        let mut depth = 0;
        found.insert(name(group));
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.insert(name(&group[i + 1..]));
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn grouped_imports_are_read() {
    let text = "use crate::{a::{b, c}, d::e,\n    f}; $crate::g!(); use crate::h::i;";
    assert_eq!(targets(text).into_iter().collect::<Vec<_>>(), ["a", "d", "f", "h"]);
}

/// Module → the modules it imports, besides itself, in code that is not a test. `lib`, `main`, `app` and the
/// rooms that only re-export (`gateway`, `commands`, `testing`) may import all.
fn imports() -> BTreeMap<String, BTreeMap<String, PathBuf>> {
    let src = root().join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let modules: BTreeSet<String> = files.iter().map(|f| module_of(&src, f)).collect();
    let mut found: BTreeMap<String, BTreeMap<String, PathBuf>> = BTreeMap::new();
    for file in files.iter().filter(|f| !is_test(f)) {
        let module = module_of(&src, file);
        if matches!(
            module.as_str(),
            "lib" | "main" | "app" | "gateway" | "commands" | "testing"
        ) {
            continue;
        }
        let of = found.entry(module.clone()).or_default();
        for target in targets(&code(file)) {
            if modules.contains(&target) && target != module {
                of.insert(target, file.clone());
            }
        }
    }
    found
}

#[test]
fn modules_import_exactly_the_listed_modules() {
    let listed: BTreeMap<&str, BTreeSet<&str>> = ARROWS
        .iter()
        .map(|(module, to)| (*module, to.iter().copied().collect()))
        .collect();
    let mut wrong = Vec::new();
    for (module, targets) in &imports() {
        let Some(may) = listed.get(module.as_str()) else {
            wrong.push(format!("module `{module}` is not in the table"));
            continue;
        };
        // The foundations import each other only as listed.
        let free = |to: &str| FOUNDATIONS.contains(&to) && !FOUNDATIONS.contains(&module.as_str());
        for (to, file) in targets {
            if !may.contains(to.as_str()) && !free(to) {
                wrong.push(format!(
                    "{}: `{module}` imports `{to}`, which is not listed",
                    file.display()
                ));
            }
        }
        for to in may.iter().filter(|to| !targets.contains_key(**to)) {
            wrong.push(format!("`{module}` does not import `{to}`, which is listed"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_are_declared_before_what_they_import() {
    let text = std::fs::read_to_string(root().join("src/lib.rs")).expect("the library has a root");
    let order: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod ")))
        .filter_map(|line| line.strip_suffix(';'))
        .collect();
    let position = |module: &str| {
        let found = order.iter().position(|m| *m == module);
        found.expect("the tables name modules of the library")
    };
    let upwards: BTreeSet<(&str, &str)> = ARROWS
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)))
        .filter(|&(from, to)| position(to) < position(from))
        .collect();
    let listed: BTreeSet<(&str, &str)> = UPWARDS.iter().copied().collect();
    assert_eq!(upwards, listed);
}

#[test]
fn no_modules_import_each_other_in_a_cycle() {
    let mut open = imports();
    // Remove modules that import no remaining one, until nothing changes. The remaining modules are
    // in a cycle or import one.
    loop {
        let leaves: Vec<String> = open
            .iter()
            .filter(|(_, to)| !to.keys().any(|to| open.contains_key(to)))
            .map(|(module, _)| module.clone())
            .collect();
        if leaves.is_empty() {
            break;
        }
        leaves.iter().for_each(|module| drop(open.remove(module)));
    }
    assert!(open.is_empty(), "in cycles: {:?}", open.keys().collect::<Vec<_>>());
}

#[test]
fn dependencies_are_used_only_where_the_table_allows() {
    let mut wrong = Vec::new();
    for (file, below) in all_sources().iter().filter(|(f, _)| !is_test(f)) {
        let text = code(file);
        for (dependency, places) in DEPENDENCIES {
            let used = text.contains(&format!("use {dependency}::"))
                || text.contains(&format!("{dependency}::")) && {
                    let needle = format!("{dependency}::");
                    text.match_indices(&needle)
                        .any(|(i, _)| !text[..i].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
                };
            let allowed = places.iter().any(|p| below.starts_with(p.trim_end_matches(".rs")));
            if used && !allowed {
                wrong.push(format!(
                    "{}: uses `{dependency}`, which is allowed only in {places:?}",
                    file.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_depend_on_nothing_of_a_server() {
    let mut wrong = Vec::new();
    for dir in crates() {
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).expect("a crate has a manifest");
        let mut table = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                table = line;
            }
            let name = line.split([' ', '=', '.']).next().unwrap_or_default();
            if table == "[dependencies]" && SERVER_ONLY.contains(&name) {
                wrong.push(format!("{}: {name}", dir.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_lock_is_from_the_sync_module() {
    // It holds the policy for locks whose holder panicked.
    let of_std = |text: &str| {
        let imports = text.split("use std::sync::").skip(1);
        let mut names = imports.flat_map(|rest| rest.split(';').next().unwrap_or_default().split(['{', ',', '}', ' ']));
        names.any(|name| ["Mutex", "RwLock", "PoisonError"].contains(&name))
            || text.contains("std::sync::Mutex")
            || text.contains("std::sync::RwLock")
            || text.contains("std::sync::PoisonError")
    };
    let found: Vec<_> = all_sources()
        .into_iter()
        .filter(|(file, below)| file.starts_with(root().join("src")) && below != Path::new("sync"))
        .filter(|(file, _)| of_std(&code(file)))
        .map(|(_, below)| below)
        .collect();
    assert!(found.is_empty(), "use `crate::sync::Mutex`: {found:?}");
}

#[test]
fn no_result_has_a_string_error() {
    let has_text = |line: &str| {
        let results = line.split("Result<").skip(1);
        let mut ends = results.flat_map(|rest| rest.split(", String>").skip(1));
        // After a map of strings, the result continues.
        ends.any(|end| !end.starts_with([',', '>']))
    };
    let mut found = Vec::new();
    for (file, below) in all_sources() {
        if !is_test(&file) {
            let code = code(&file);
            let lines = code.lines().filter(|line| has_text(line));
            found.extend(lines.map(|line| format!("{}: {}", below.display(), line.trim())));
        }
    }
    assert!(found.is_empty(), "make an error type:\n{}", found.join("\n"));
}

#[test]
fn no_module_has_a_mod_rs() {
    let files = all_sources();
    let is_mod = |f: &Path| f.file_name().is_some_and(|n| n == "mod.rs");
    let found: Vec<_> = files.iter().filter(|(f, _)| is_mod(f)).collect();
    assert!(found.is_empty(), "{found:?}");
}

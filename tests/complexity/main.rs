mod catalogue;
mod fit;
mod growth;
mod judge;
mod make;
mod meter;
mod server;
mod sites;
mod ways;

use growth::Growth;
use make::Differ;
use std::cell::Cell;
use std::collections::HashMap;
use torana::apimachinery::Value;
use torana::json;
use ways::{Codec, Target, Way};

struct Stats { cpu: HashMap<String, (f64, usize)>, valid: usize, invalid: Vec<String>, findings: Vec<String> }

#[test]
fn starts() {
    std::thread::Builder::new().stack_size(64<<20).spawn(starts2).unwrap().join().unwrap();
}
fn starts2() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let limit: usize = std::env::var("LIMIT").ok().and_then(|s| s.parse().ok()).unwrap_or(usize::MAX);
    let s = server::Server::start();
    let mut rows = catalogue::rows(&s);
    let seeds = catalogue::seeds();
    let seed = |row: &catalogue::Row| seeds.get(&(row.api_version(), row.kind.clone()));
    rows.sort_by_key(|row| (seed(row).is_none() || !row.has("update"), row.kind != "ConfigMap"));
    for kind in ["Namespace", "ServiceAccount"] {
        let row = rows.iter().find(|r| r.kind == kind).unwrap();
        assert!(s.create(row, seed(row).unwrap()).code == 201);
    }
    let counter = Cell::new(0);
    let mut seen = sites::Seen::default();
    let mut st = Stats { cpu: HashMap::new(), valid: 0, invalid: vec![], findings: vec![] };
    let begin = meter::cpu();
    let mut done = 0;
    for row in &rows {
        let found = sites::sites(row, &mut seen, 1);
        if !row.shown().contains(&only) { continue }
        if row.kind == "ConfigMap" && std::env::var("SKIPCM").is_ok() { continue }
        let base = seed(row).cloned().unwrap_or_else(|| {
            let mut o = make::object(row.def);
            o.set(&["apiVersion"], row.api_version());
            o.set(&["kind"], row.kind.clone());
            o.set(&["metadata"], json!({"name": "every"}));
            o
        });
        for site in &found {
            if site.path[0] == sites::Step::Field("metadata") && site.path.last() == Some(&sites::Step::Field("name")) { continue }
            let part = if site.in_status() { row.parts.iter().find(|p| p.name == "status") } else { None };
            let t0 = meter::cpu();
            scan(&s, row, part, site, &base, &counter, &mut st);
            let spent = (meter::cpu() - t0).as_secs_f64();
            let e = st.cpu.entry(row.shown()).or_default();
            e.0 += spent; e.1 += 1;
            done += 1;
            if done >= limit { break }
        }
        if done >= limit { break }
    }
    println!("total {:?}, {} sites", meter::cpu() - begin, done);
    let mut by: Vec<_> = st.cpu.iter().collect();
    by.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    for (k, (t, n)) in by.iter().take(12) { println!("{k} {t:.1}s {n}") }
    println!("valid {} invalid {}", st.valid, st.invalid.len());
    for i in &st.invalid { println!("INVALID {i}") }
    for f in &st.findings { println!("FINDING {f}") }
}

fn scan(s: &server::Server, row: &catalogue::Row, part: Option<&catalogue::Part>, site: &sites::Site, base: &Value, counter: &Cell<usize>, st: &mut Stats) {
    // A valid object with one element.
    let mut fitted = base.clone();
    let before = make::reach(&mut fitted, row.def, &site.path).clone();
    let target = Target { server: s, row, part, site, base, counter };
    let fine = fit::fit(row.def, &mut fitted, &site.shown(), &|o| {
        counter.set(counter.get() + 1);
        target.refusal(&ways::renamed(row, o, counter.get()))
    });
    let _ = before;
    if fine { st.valid += 1 } else {
        let why = target.refusal(&ways::renamed(row, &fitted, 999_999));
        st.invalid.push(format!("{} {}: {}", row.shown(), site.shown(), why.str_at(&["message"]).chars().take(200).collect::<String>()));
    }
    let target = Target { base: &fitted, ..target };
    let mut copy = fitted.clone();
    let whole = make::reach(&mut copy, row.def, &site.path).clone();
    let sample = match &whole {
        Value::Array(items) => items.first().cloned().unwrap_or_default(),
        Value::Object(m) => m.values().next().cloned().unwrap_or_default(),
        other => other.clone(),
    };
    let differ = [Differ::Keys, Differ::All].into_iter().find(|how| {
        let g = Growth::Distinct(*how);
        target.run(Way::Create(Codec::Json), &g.value(site, &sample, 3)).is_some_and(|s| s.code < 300)
    });
    let growths = Growth::of(site, differ.unwrap_or(Differ::All));
    let growths: Vec<Growth> = if site.is_collection() { growths } else {
        let i = counter.get() % growths.len();
        vec![growths[i]]
    };
    for g in growths {
        let ways: &[Way] = match g {
            Growth::Distinct(d) if d != Differ::Wrong && differ.is_some() => &[Way::Create(Codec::Json), Way::UpdateLong],
            _ => &[Way::Create(Codec::Json)],
        };
        for way in ways {
            let run = |n: usize| (g != Growth::Nested || n <= 900).then(|| target.run(*way, &g.value(site, &sample, n))).flatten();
            if let Some(f) = judge::judge(&run, g.lengths(), false) {
                let line = format!("{} {}{} {} {}: {f}", row.shown(), site.shown(), part.map_or("", |p| &p.name), way.shown(), g.shown());
                println!("FOUND {line}");
                st.findings.push(line);
            }
        }
    }
}

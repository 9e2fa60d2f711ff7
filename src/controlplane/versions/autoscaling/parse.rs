//! Decodes the annotations of v1 into v2 fields. `None` means that the annotation is malformed; the caller
//! then ignores all of it. `annotations` is the inverse.

use crate::apimachinery::quantity;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;

/// Looks up a member like Go's decoder: an exact match, else the last one that matches ignoring case.
fn member<'a>(v: &'a Value, name: &str) -> &'a Value {
    let exact = v.get(name);
    if !exact.is_null() {
        return exact;
    }
    let members = v.as_object().into_iter().flat_map(|m| m.iter());
    members
        .filter(|(k, _)| k.eq_ignore_ascii_case(name))
        .map(|(_, v)| v)
        .next_back()
        .unwrap_or(exact)
}

/// Copies members from a v1 object to a v2 one, with a type check. Absent members are skipped.
struct Reader<'a> {
    from: &'a Value,
    to: Value,
}

impl<'a> Reader<'a> {
    fn of(from: &'a Value) -> Option<Self> {
        from.as_object().map(|_| Self {
            from,
            to: Value::object(),
        })
    }

    fn take(&mut self, name: &str, path: &[&str], fits: fn(&Value) -> Option<Value>) -> Option<()> {
        match member(self.from, name) {
            Value::Null => {}
            v => self.to.set(path, fits(v)?),
        }
        Some(())
    }

    fn text(&mut self, name: &str, path: &[&str]) -> Option<()> {
        self.take(name, path, string)
    }

    fn number(&mut self, name: &str, path: &[&str]) -> Option<()> {
        self.take(name, path, |v| matches!(v, Value::Int(_)).then(|| v.clone()))
    }

    fn amount(&mut self, name: &str, path: &[&str]) -> Option<()> {
        self.take(name, path, amount)
    }
}

fn string(v: &Value) -> Option<Value> {
    v.as_str().map(Value::from)
}

fn amount(v: &Value) -> Option<Value> {
    match v {
        Value::String(s) => quantity::canonicalize(s).ok().map(Value::from),
        // Go's Quantity decodes a bare number too.
        Value::Int(n) => Some(n.to_string().into()),
        _ => None,
    }
}

fn reference(v: &Value) -> Option<Value> {
    let mut r = Reader::of(v)?;
    for key in ["kind", "name", "apiVersion"] {
        r.text(key, &[key])?;
    }
    Some(r.to)
}

fn selector(v: &Value) -> Option<Value> {
    let mut r = Reader::of(v)?;
    r.take("matchLabels", &["matchLabels"], |v| {
        let all = v.as_object()?;
        all.values().all(|v| v.as_str().is_some()).then(|| v.clone())
    })?;
    r.take("matchExpressions", &["matchExpressions"], |v| {
        let one = |e: &Value| {
            let mut r = Reader::of(e)?;
            r.text("key", &["key"])?;
            r.text("operator", &["operator"])?;
            r.take("values", &["values"], |v| {
                v.items()
                    .iter()
                    .map(string)
                    .collect::<Option<Vec<_>>>()
                    .map(Value::from)
            })?;
            Some(r.to)
        };
        v.items().iter().map(one).collect::<Option<Vec<_>>>().map(Value::from)
    })?;
    Some(r.to)
}

const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

fn sources(v: &Value, one: fn(&str, &mut Reader<'_>) -> Option<()>) -> Option<Value> {
    let mut out = Value::object();
    if let kind @ Value::String(_) = member(v, "type") {
        out.set(&["type"], kind.clone());
    }
    for key in SOURCES {
        let source = member(v, key);
        if source.is_null() {
            continue;
        }
        let mut r = Reader::of(source)?;
        one(key, &mut r)?;
        out.set(&[key], r.to);
    }
    v.as_object().map(|_| out)
}

/// Copies the members that identify a metric.
fn named(key: &str, r: &mut Reader<'_>) -> Option<()> {
    match key {
        "resource" => r.text("name", &["name"]),
        "containerResource" => {
            r.text("name", &["name"])?;
            r.text("container", &["container"])
        }
        _ => {
            r.text("metricName", &["metric", "name"])?;
            let by = if key == "external" {
                "metricSelector"
            } else {
                "selector"
            };
            r.take(by, &["metric", "selector"], selector)?;
            if key == "object" {
                r.take("target", &["describedObject"], reference)?;
            }
            Some(())
        }
    }
}

pub(super) fn metric(v: &Value) -> Option<Value> {
    sources(v, |key, r| {
        named(key, r)?;
        let has = |r: &Reader<'_>, path: &str| !r.to.at(&["target", path]).is_null();
        let value = ["target", "value"];
        let average = ["target", "averageValue"];
        let kind = match key {
            "object" => {
                r.amount("targetValue", &value)?;
                r.amount("averageValue", &average)?;
                let averaged = has(r, "averageValue");
                // v1 always encodes a value; zero stands for absent if there is an average.
                if averaged && r.to.str_at(&value) == "0" {
                    r.to.unset(&value);
                } else if !averaged && !has(r, "value") {
                    r.to.set(&value, "0");
                }
                if averaged { "AverageValue" } else { "Value" }
            }
            "external" => {
                r.amount("targetValue", &value)?;
                r.amount("targetAverageValue", &average)?;
                if has(r, "value") { "Value" } else { "AverageValue" }
            }
            "pods" => {
                r.amount("targetAverageValue", &average)?;
                if !has(r, "averageValue") {
                    r.to.set(&average, "0");
                }
                "AverageValue"
            }
            _ => {
                r.number("targetAverageUtilization", &["target", "averageUtilization"])?;
                r.amount("targetAverageValue", &average)?;
                if has(r, "averageUtilization") {
                    "Utilization"
                } else {
                    "AverageValue"
                }
            }
        };
        r.to.set(&["target", "type"], kind);
        Some(())
    })
}

pub(super) fn status(v: &Value) -> Option<Value> {
    sources(v, |key, r| {
        named(key, r)?;
        // Quantities of a v1 status that are not pointers convert to zero if absent.
        let zero = |r: &mut Reader<'_>, path: &[&str]| {
            if r.to.at(path).is_null() {
                r.to.set(path, "0");
            }
        };
        let value = ["current", "value"];
        let average = ["current", "averageValue"];
        match key {
            "object" | "external" => {
                r.amount("currentValue", &value)?;
                zero(r, &value);
                let name = if key == "object" {
                    "averageValue"
                } else {
                    "currentAverageValue"
                };
                r.amount(name, &average)
            }
            "pods" => {
                r.amount("currentAverageValue", &average)?;
                zero(r, &average);
                Some(())
            }
            _ => {
                r.number("currentAverageUtilization", &["current", "averageUtilization"])?;
                r.amount("currentAverageValue", &average)?;
                zero(r, &average);
                Some(())
            }
        }
    })
}

pub(super) fn condition(v: &Value) -> Option<Value> {
    let mut r = Reader::of(v)?;
    for key in ["type", "status", "reason", "message"] {
        r.text(key, &[key])?;
    }
    r.take("lastTransitionTime", &["lastTransitionTime"], |v| {
        let at = time::parse(v.as_str()?).ok()?;
        Some(Value::from(time::format(at)))
    })?;
    Some(r.to)
}

pub(super) fn behavior(v: &Value) -> Option<Value> {
    let rules = |v: &Value| {
        let mut r = Reader::of(v)?;
        // Go field names instead of JSON names: see `annotations::behavior`.
        r.number("StabilizationWindowSeconds", &["stabilizationWindowSeconds"])?;
        r.text("SelectPolicy", &["selectPolicy"])?;
        r.amount("Tolerance", &["tolerance"])?;
        r.take("Policies", &["policies"], |v| {
            let one = |p: &Value| {
                let mut r = Reader::of(p)?;
                r.text("Type", &["type"])?;
                r.number("Value", &["value"])?;
                r.number("PeriodSeconds", &["periodSeconds"])?;
                Some(r.to)
            };
            let all = v.as_array()?;
            all.iter().map(one).collect::<Option<Vec<_>>>().map(Value::from)
        })?;
        Some(r.to)
    };
    let mut r = Reader::of(v)?;
    r.take("ScaleUp", &["scaleUp"], rules)?;
    r.take("ScaleDown", &["scaleDown"], rules)?;
    Some(r.to)
}

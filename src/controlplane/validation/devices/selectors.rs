//! CEL selectors of devices (upstream's `k8s.io/dynamic-resource-allocation/cel/compile.go`). They are
//! compiled to be validated only: the scheduler evaluates them.

use super::at_most;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use std::sync::{Arc, LazyLock};
use torana_cel::{Environment, Schema, Type, Unusable};

// Limits of upstream's API (`pkg/apis/resource/types.go`).
const MAX_SELECTORS: usize = 32;
const MAX_EXPRESSION_LENGTH: usize = 10 * 1024;
/// Estimated CEL cost per selector (`CELSelectorExpressionMaxCost`); the scheduler evaluates a selector for every
/// device of every candidate node.
const MAX_COST: u64 = 1_000_000;

// Sizes that the cost estimate assumes for the parts of a device, as upstream declares them.
const MAX_DRIVER_LENGTH: u64 = 63;
const MAX_DOMAIN_LENGTH: u64 = 63;
const MAX_NAME_LENGTH: u64 = 32;
const MAX_ATTRIBUTES: u64 = 32;
const MAX_ATTRIBUTE_LENGTH: u64 = 64;

/// The CEL environment of selectors. Upstream has two: new expressions may use only what the previous release
/// supported too, stored ones everything. v1.36 adds nothing to v1.35, so that one environment serves both.
static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let by_name = |values: Schema, name_length: u64| Schema {
        // The length of keys matters for estimates of loops over the map.
        keys: Some(Arc::new(Schema::scalar(Type::String, name_length))),
        ..Schema::map(values, MAX_ATTRIBUTES)
    };
    let by_domain = |values: Schema| by_name(by_name(values, MAX_NAME_LENGTH), MAX_DOMAIN_LENGTH);
    let attribute = Schema {
        max_size: MAX_ATTRIBUTE_LENGTH,
        // The type of an attribute is known only at run time: bool, int, string or semantic version.
        ..Schema::json()
    };
    let device = Schema::record(
        "kubernetes.DRADevice",
        vec![
            ("driver", Schema::scalar(Type::String, MAX_DRIVER_LENGTH)),
            // A size, although it is a bool: without one the estimates would be lower than upstream's.
            ("allowMultipleAllocations", Schema::scalar(Type::Bool, 1)),
            ("attributes", by_domain(attribute)),
            ("capacity", by_domain(Schema::scalar(Type::QUANTITY, 0))),
        ],
    );
    let mut environment = Environment::default();
    environment.declare("device", device);
    // `cel.bind` is an extension of this environment; others do not have it.
    environment.allow_binding();
    environment.forget_root();
    environment
});

pub(super) fn selectors(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    for (i, s) in at_most(out, v, MAX_SELECTORS, at).iter().enumerate() {
        let at = at.index(i).child("cel");
        match s.get("cel").is_null() {
            true => out.push(FieldError::required(&at, "")),
            false => expression(out, s.str_at(&["cel", "expression"]), &at.child("expression")),
        }
    }
}

fn expression(out: &mut ErrorList, text: &str, at: &FieldPath) {
    checkpoint();
    // Not compiled: parsing takes time and memory proportional to the length.
    if text.len() > MAX_EXPRESSION_LENGTH {
        out.push(FieldError::too_long(at, MAX_EXPRESSION_LENGTH as i64));
        return;
    }
    // `any` is accepted, since an attribute may turn out to be a bool.
    let error = match ENVIRONMENT.compile_typed(text, |of| matches!(of, Type::Bool | Type::Any)) {
        Ok(program) if program.estimated_cost() > MAX_COST => {
            FieldError::forbidden(at, "too complex, exceeds cost limit")
        }
        Ok(_) => return,
        Err(Unusable::Compilation(issues)) => FieldError::invalid(at, text, format!("compilation failed: {issues}")),
        Err(Unusable::Type(of)) => {
            let why = format!("must evaluate to bool or the unknown type, not {}", of.full_name());
            FieldError::invalid(at, text, why)
        }
        Err(Unusable::Instantiation(issues)) => {
            FieldError::internal(at, format!("program instantiation failed: {issues}"))
        }
    };
    out.push(error);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn errors(text: &str) -> String {
        let mut out = ErrorList::new();
        let list = json!([{"cel": {"expression": (text)}}]);
        selectors(&mut out, &list, &FieldPath::new("selectors"));
        aggregate(&out)
    }

    fn cost(text: &str) -> u64 {
        let program = ENVIRONMENT.compile(text);
        program.unwrap_or_else(|e| panic!("{text}: {e}")).estimated_cost()
    }

    /// The costs are those that upstream's `cel/compile_test.go` expects.
    #[test]
    fn selectors_have_upstreams_cost_estimates() {
        let all = |name: &str, domain: &str| {
            let of = |rest: &str| format!("device.{name}[\"{domain}\"]{rest}");
            [
                of(".quantity.isGreaterThan(quantity(\"1Ki\"))"),
                of("[\"quantity\"].isGreaterThan(quantity(\"1Ki\"))"),
            ]
        };
        for (text, wanted) in [
            (r#"true"#, 0),
            (r#"device.attributes["a.b"].c.isGreaterThan(quantity("0"))"#, 6),
            (r#"device.attributes["a.b"]["c"].isGreaterThan(quantity("0"))"#, 6),
            (r#""a.b" in device.attributes"#, 3),
            (r#"device.driver == """#, 2),
            (r#"device.driver == "dra.example.com""#, 4),
            (r#"device.attributes["dra.example.com"].name"#, 4),
            (r#"device.attributes["dra.example.com"]["name"]"#, 4),
            (r#"cel.bind(dra, device.attributes["dra.example.com"], dra.name)"#, 15),
            (r#"device.attributes["dra.example.com"].name > 0"#, 5),
            (r#"device.attributes["dra.example.com"].name == "fish""#, 5),
            (r#"device.attributes["a.b"].name.isGreaterThan(semver("0.0.1"))"#, 6),
            (
                r#"device.attributes["a.b"].name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)"#,
                7,
            ),
            (&all("capacity", "dra.example.com")[0], 6),
            (&all("capacity", "dra.example.com")[1], 6),
            (
                r#""name" in device.capacity["a.b"] && device.capacity["a.b"].name.isGreaterThan(quantity("1Ki"))"#,
                10,
            ),
            (
                r#"!("name" in device.capacity["a.b"]) || device.capacity["a.b"].name.isGreaterThan(quantity("1Ki"))"#,
                11,
            ),
            (r#"device.attributes.exists_one(x, x == "dra.example.com")"#, 164),
            (
                r#"device.attributes["dra.example.com"].exists_one(x, x == "services")"#,
                133,
            ),
            (r#"device.attributes["a.b"].services.split("example").size() >= 2"#, 19),
            (r#"device.attributes["a.b"].services.matches("[^a]?sym")"#, 18),
            (r#"device.capacity.exists_one(x, x == "dra.example.com")"#, 164),
            (
                r#"device.capacity["dra.example.com"].exists_one(x, x == "memory")"#,
                133,
            ),
            (r#"device.allowMultipleAllocations == true"#, 3),
            // Not in that file: measured with its compiler.
            (r#"isQuantity(string(true))"#, 1_844_674_407_370_955_265),
            (r#"['a'].map(x, x + x).slice(device.driver.size(), -1).isSorted()"#, 50),
        ] {
            assert_eq!(cost(text), wanted, "{text}");
        }
        let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all";
        let mut nested = "int('1'.find('[0-9]*')) < 100".to_owned();
        for i in (0..7).rev() {
            nested = format!("{ten}(x{i}, {nested})");
        }
        assert_eq!(cost(&nested), 85_555_551);
        assert_eq!(
            errors(&nested),
            "selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"
        );
    }

    #[test]
    fn selectors_are_compiled() {
        for text in [
            "true",
            "device.attributes['a.b'].c",
            "cel.bind(all, device.attributes['a.b'], all.c && all.d > 1)",
        ] {
            assert_eq!(errors(text), "[]", "{text}");
        }
        assert_eq!(
            errors("noSuchVar"),
            "selectors[0].cel.expression: Invalid value: \"noSuchVar\": compilation failed: ERROR: <input>:1:1: \
             undeclared reference to 'noSuchVar' (in container '')\n | noSuchVar\n | ^"
        );
        for (text, kind) in [
            ("1", "int"),
            ("dyn(1)", "dyn"),
            ("null", "null_type"),
            ("[duration('1s')]", "list(google.protobuf.Duration)"),
            // Before its constants are evaluated.
            ("int('x')", "int"),
        ] {
            let wanted = format!("must evaluate to bool or the unknown type, not {kind}");
            assert!(errors(text).ends_with(&wanted), "{}", errors(text));
        }
        for (text, wanted) in [
            ("device.names == []", "undefined field 'names'"),
            (
                "cel.bind(1, 2, true)",
                "cel.bind() variable names must be simple identifiers",
            ),
            ("other.bind(a, 2, true)", "undeclared reference to 'bind'"),
            (
                "device.attributes['a.b'].c.exists(x, x > 0)",
                "expression of type 'any' cannot be range of a comprehension",
            ),
            (
                "device.attributes['a.b'].c.includes(1)",
                "undeclared reference to 'includes'",
            ),
        ] {
            assert!(errors(text).contains(wanted), "{text}: {}", errors(text));
        }
    }

    #[test]
    fn long_selectors_are_not_compiled() {
        let text = "?".repeat(MAX_EXPRESSION_LENGTH + 1);
        assert_eq!(
            errors(&text),
            "selectors[0].cel.expression: Too long: may not be more than 10240 bytes"
        );
    }

    #[test]
    fn constants_that_cannot_be_evaluated_are_reported_as_internal_errors() {
        let found = errors("int('x') == 1");
        assert!(
            found.starts_with("selectors[0].cel.expression: Internal error: program instantiation failed: "),
            "{found}"
        );
    }
}

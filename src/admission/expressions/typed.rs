//! [`TypeChecker`]: compiles the expressions of a policy where the types of its objects are known (upstream's
//! `policy/validating/typechecking.go`). Its findings are warnings in the policy's status; admission does not
//! depend on them.

use super::environment::{NAMESPACE, REQUEST};
use torana_cel::{Environment, Program, Schema, Type};

/// The variables that expressions may use, with their types.
pub(crate) struct TypeChecker(Environment);

impl TypeChecker {
    /// Declares the variables of a policy for objects of this type; `params` only if the policy has a
    /// parameter kind.
    pub(crate) fn new(object: &Schema, params: Option<&Schema>) -> Self {
        let mut environment = Environment::default();
        environment.declare("object", object.clone());
        environment.declare("oldObject", object.clone());
        environment.declare("request", REQUEST.clone());
        environment.declare("namespaceObject", NAMESPACE.clone());
        if let Some(params) = params {
            environment.declare("params", params.clone());
        }
        // As upstream, `authorizer.requestResource` is not declared here.
        environment.declare("authorizer", Schema::scalar(Type::AUTHORIZER, 0));
        // For the errors of fields that are not declared; those that are have their dotted names.
        environment.declare("variables", Schema::record("kubernetes.variables", Vec::new()));
        Self(environment)
    }

    /// Declares a variable, which later expressions can read. Its type is that of its expression; any, if the
    /// expression does not compile.
    pub(crate) fn declare(&mut self, name: &str, expression: &str) {
        let program = self.0.compile(expression);
        let ty = program.map_or(Type::Dyn, |p: Program| p.result_type().clone());
        let schema = match ty {
            Type::Dyn => Schema::any(),
            ty => Schema::scalar(ty, u64::MAX),
        };
        self.0.declare(&format!("variables.{name}"), schema);
    }

    /// The errors of an expression, which may have any type.
    pub(crate) fn issues(&self, expression: &str) -> Option<String> {
        match self.0.compile(expression) {
            // Constants are evaluated when a program is made, which type checking does not do.
            Err(issues) if !issues.is_of_constants() => Some(issues.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checker() -> TypeChecker {
        let text = || Schema::scalar(Type::String, 10);
        let spec = Schema::record("Thing.spec", vec![("name", text())]);
        TypeChecker::new(&Schema::record("Thing", vec![("spec", spec)]), None)
    }

    #[test]
    fn fields_and_types_of_objects_are_checked() {
        let checker = checker();
        for fine in [
            "object.spec.name == 'a' && oldObject == null",
            "request.name + object.spec.name",
            "authorizer.group('').resource('pods').check('get').allowed()",
            "int('x') == 1",
        ] {
            assert_eq!(checker.issues(fine), None, "{fine}");
        }
        for (expression, wanted) in [
            (
                "object.names == 1",
                "ERROR: <input>:1:7: undefined field 'names'\n | object.names == 1\n | ......^",
            ),
            ("object.spec == 1", "'_==_' applied to '(Thing.spec, int)'"),
            ("params.x", "undeclared reference to 'params'"),
            (
                "authorizer.requestResource.check('get').allowed()",
                "unexpected failed resolution of 'kubernetes.authorization.Authorizer'",
            ),
        ] {
            let issues = checker.issues(expression).expect("it has issues");
            assert!(issues.contains(wanted), "{issues}");
        }
    }

    #[test]
    fn variables_have_the_types_of_their_expressions() {
        let mut checker = checker();
        checker.declare("spec", "object.spec");
        checker.declare("name", "variables.spec.name");
        checker.declare("broken", "object.nothing");
        assert_eq!(checker.issues("variables.name == 'a' && variables.broken == 1"), None);
        for (expression, wanted) in [
            ("variables.name == 1", "'_==_' applied to '(string, int)'"),
            ("variables.spec.names", "undefined field 'names'"),
            ("variables.unknown", "undefined field 'unknown'"),
        ] {
            let issues = checker.issues(expression).expect("it has issues");
            assert!(issues.contains(wanted), "{issues}");
        }
    }
}

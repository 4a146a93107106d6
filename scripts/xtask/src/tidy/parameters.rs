//! Tuples as parameters of functions: plain parameters or a struct name each value for the caller.
//!
//! Free functions, methods and declarations of traits count, at any depth. Closures do not: items
//! of iterators are tuples. Functions in the body of a `macro_rules` are not parsed.

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{FnArg, Pat, Signature};

use super::Finding;

/// Findings in one file: one for each function.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    // The compiler reports more about a file that cannot be parsed.
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let mut found = Found { functions: Vec::new() };
    found.visit_file(&file);
    let finding = |(name, span): (String, Span)| {
        let message = format!(
            "`{name}` has a tuple as a parameter: use plain parameters, or a struct with a name"
        );
        Finding::new(path, Some(span.start().line), message)
    };
    found.functions.into_iter().map(finding).collect()
}

fn is_tuple(pattern: &Pat) -> bool {
    match pattern {
        Pat::Tuple(tuple) => !tuple.elems.is_empty(),
        Pat::Paren(inner) => is_tuple(&inner.pat),
        Pat::Reference(inner) => is_tuple(&inner.pat),
        _ => false,
    }
}

/// Functions with a tuple as a parameter, and where they are.
struct Found {
    functions: Vec<(String, Span)>,
}

impl<'ast> Visit<'ast> for Found {
    fn visit_signature(&mut self, signature: &'ast Signature) {
        let is_tuple = |input: &FnArg| match input {
            FnArg::Typed(parameter) => is_tuple(&parameter.pat),
            FnArg::Receiver(_) => false,
        };
        if signature.inputs.iter().any(is_tuple) {
            self.functions.push((signature.ident.to_string(), signature.fn_token.span));
        }
        visit::visit_signature(self, signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Option<usize>> {
        check("a.rs", text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn tuple_parameter_of_a_function_is_found_with_its_line() {
        for text in [
            "fn f((a, b): (u8, u8)) {}",
            "fn f(&(a, b): &(u8, u8)) {}",
            "fn f(a: u8, ((b, c)): (u8, u8)) {}",
            "impl A { pub fn f(&mut self, (a, b): (u8, u8)) {} }",
            "impl B for A { fn f((a, b): (u8, u8)) {} }",
            "trait B { fn f((a, b): (u8, u8)) {} }",
            "mod tests { fn f((a, b): (u8, u8)) {} }",
            "fn g() { fn f((a, b): (u8, u8)) {} }",
        ] {
            let findings = check("a.rs", &format!("\n\n{text}\n"));
            assert_eq!(findings.len(), 1, "{text}");
            assert_eq!(findings[0].line, Some(3), "{text}");
            assert!(findings[0].message.starts_with("`f` has a tuple"), "{text}");
        }
    }

    #[test]
    fn function_over_several_lines_is_reported_at_its_first_line_and_once() {
        let text = "#[inline]\nfn f(\n    (a, b): (u8, u8),\n    (c, d): (u8, u8),\n) {\n}\n";
        assert_eq!(lines(text), [Some(2)]);
        assert_eq!(lines(&format!("{text}\n{text}")), [Some(2), Some(9)]);
    }

    #[test]
    fn closures_bindings_and_structs_are_not_found() {
        for text in [
            "fn f(pairs: &[(u8, u8)]) { pairs.iter().map(|(a, b): &(u8, u8)| a + b); }",
            "fn f() { let (a, b): (u8, u8) = (1, 2); }",
            "fn f(A { a, b }: A, (): ()) {}",
            "fn f(Seconds(a): Seconds, [b, c]: [u8; 2]) {}",
            "fn f(with: impl Fn((u8, u8))) {}",
            "fn f() { for (a, b) in c {} }",
            "// fn f((a, b): (u8, u8)) {}",
            "fn f((a, b): (u8, u8)",
        ] {
            assert_eq!(lines(text), [], "{text}");
        }
    }
}
